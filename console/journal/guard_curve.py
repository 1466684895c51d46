"""The curve of the figure that made a breach, and where its limit lies on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.common.text import clean
from console.recovery.guard.defaults import NAMES
from console.recovery.guard.limits import METRICS, Limit

RAM, SWAP, FULL = 1, 2, 3
COLUMNS = {
    RAM: ("RAM available", "B"), SWAP: ("swap used", "B"),
    FULL: (NAMES["host.pressure"], "%"),
}  # fmt: skip
"""What the window's rows hold behind their Unix second: names and units."""
DROPS = frozenset({"host.ram_available", "host.time_to_full"})
Points = tuple[tuple[float, float | None], ...]


@dataclass(frozen=True, slots=True)
class Crossed:
    """`points`: (Unix second, figure in `unit` or None), oldest first; `level`: where the limit
    lies among them, None where it is on another figure; `below`: it is passed under it. `column`:
    of the window's rows, 0 where it is none of them."""

    name: str
    unit: str
    points: Points
    level: float | None = None
    below: bool = False
    column: int = 0


def crossed(breach: Mapping[str, Any]) -> Crossed | None:
    """The curve of a breach as breach.json or the journal has it; None where it has none."""
    curve, limit = breach.get("curve"), limit_in(breach)
    if not isinstance(curve, dict):
        return None
    column = curve.get("column")
    if isinstance(column, int) and column in COLUMNS:
        return _of_column(breach, column, limit)
    points = _points(curve.get("points"))
    at, value = number(breach.get("at")), number(breach.get("value"))
    if at is not None and value is not None and (not points or points[-1][0] < at):
        points = (*points, (at, value))
    if not any(figure is not None for _, figure in points):
        return None
    metric = str(curve.get("metric") or "")
    level = limit.count if limit and limit.log else _value(limit)
    below = limit is not None and limit.below is not None
    return Crossed(_name(curve, metric), Limit(metric).unit, points, level, below)


def limit_in(breach: Mapping[str, Any]) -> Limit | None:
    """The limit that was passed, where it is on record."""
    try:
        return Limit.from_json(breach.get("limit"))
    except (ValueError, TypeError):
        return None


def number(value: object) -> float | None:
    """A figure; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None


def _of_column(breach: Mapping[str, Any], column: int, limit: Limit | None) -> Crossed | None:
    window = breach.get("window")
    points = _points(window.get("fast") if isinstance(window, dict) else None, column)
    known = [(at, figure) for at, figure in points if figure is not None]
    if not known:
        return None
    kill = number(breach.get("at"))
    then = [figure for at, figure in known if kill is None or at <= kill] or [known[-1][1]]
    level = _level(limit, then[-1], number(breach.get("value")))
    below = limit is not None and limit.metric in DROPS
    return Crossed(*COLUMNS[column], points, level, below, column)


def _level(limit: Limit | None, then: float, value: float | None) -> float | None:
    """A limit as a figure of its column, which stood at `then` when the limit's own was `value`."""
    metric, level = limit.metric if limit is not None else "", _value(limit)
    if level is None or metric == "host.time_to_full":
        return None
    if metric == "host.swap_growth":
        return None if value is None else then - value + level
    if metric == "host.swap_free":
        return None if value is None else then + value - level
    return level


def _value(limit: Limit | None) -> float | None:
    if limit is None:
        return None
    return limit.below if limit.below is not None else limit.above


def _name(curve: Mapping[str, Any], metric: str) -> str:
    of = clean(str(curve.get("of") or ""), 80)
    if curve.get("log"):
        return f"lines in the log of {of}"
    name = NAMES.get(metric, clean(metric, 40))
    name += ", a second" if METRICS.get(metric) == "B/s" else ""
    return f"{name} of {of}" if of else name


def _points(rows: object, column: int = 1) -> Points:
    found = [
        (at, number(row[column]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) > column and (at := number(row[0])) is not None
    ]
    return tuple(sorted(found, key=lambda one: one[0]))
