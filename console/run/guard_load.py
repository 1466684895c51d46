"""What a load held before it was stopped, from the recorder's records of a second. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

LAST_S = 120.0
HELD = ("ram", "held", "memory")
"""Where a record of a kill may say what its victim held, bytes."""


def held(
    victim: Mapping[str, Any], records: Iterable[Mapping[str, Any]], breach: Mapping[str, Any]
) -> float | None:
    """Bytes of RAM that a victim held: its own word, else the figure that broke its limit, else the
    last record before the breach that knew it; None where nobody did."""
    for key in HELD:
        if (found := _number(victim.get(key))) is not None:
            return found
    name = str(victim.get("name") or "").partition(" (")[0]
    if cause(breach) == name and (value := _number(breach.get("value"))) is not None:
        return value
    kill, last = _number(breach.get("at")), None
    for at, found in curve(records, name):
        if found and (kill is None or at <= kill):
            last = found
    return last


def cause(breach: Mapping[str, Any]) -> str:
    """The service whose memory broke a limit; "" where something else did."""
    limit = breach.get("limit")
    if not isinstance(limit, dict) or limit.get("metric") != "service.ram_used":
        return ""
    return str(breach.get("of") or limit.get("of") or "")


def curve(
    records: Iterable[Mapping[str, Any]], name: str, key: str = "wall"
) -> Iterator[tuple[float, float | None]]:
    """(time, RAM in bytes or None) of a load, oldest first; `key`: wall or mono."""
    for record in records:
        at, loads = _number(record.get(key)), record.get("loads")
        if at is None or not isinstance(loads, list):
            continue
        found = [one for one in loads if isinstance(one, dict) and one.get("name") == name]
        if found:
            yield at, _number(found[0].get("ram"))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e18 else None
