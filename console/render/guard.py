"""Guards in words: a limit with where it is from, the lease, an event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.common.text import clean, one_line
from console.common.units import format_bytes, format_duration
from console.journal.breach import killed_row, limit_in
from console.journal.run_view import GuardEvent
from console.recovery.guard.config import Limit
from console.recovery.guard.metrics import METRICS

OLD_S, GAP_S = 1.0, 0.1
"""A figure older than the first, and a look later than the second, are told so."""
OF = {"sum": " of all cards together", "max": " of the fullest card", "min": " of any card"}
MARKS = {
    "watching": "watching", "warn": "WARNS", "act": "ACTS", "clear": "calm", "restarted": "NEW",
    "gone": "GONE", "breach": "BREACH",
}  # fmt: skip


def limit_words(limit: Limit) -> str:
    """`RAM available below 24.0 GiB for 2.00 s: kills the load, rolls back (playbook, line 17)`."""
    if limit.log:
        times = "a line" if limit.count == 1 else f"{limit.count} lines"
        what = f"{times} of {one_line(limit.log, 60)}'s log matching {one_line(limit.matches, 120)}"
    else:
        side, value = ("below", limit.below) if limit.below is not None else ("above", limit.above)
        held = f" for {format_duration(limit.for_s)}" if limit.for_s else ""
        of = OF.get(limit.of, f" of {one_line(limit.of, 80)}" if limit.of else "")
        side = "in less than" if limit.metric == "host.time_to_full" else side
        what = f"{METRICS[limit.metric].words}{of} {side} "
        what += f"{value_words(value or 0.0, limit.unit)}{held}"
        if limit.scarce:
            what += f", while RAM available is below {format_bytes(limit.scarce)}"
    does = "kills the load, rolls back" if limit.act == "kill" else "warns"
    blind = "; no figure counts as breached" if limit.missing == "breach" else ""
    source = f" ({one_line(limit.source, 80)})" if limit.source else ""
    return f"{what}: {does}{blind}{source}"


def value_words(value: float, unit: str) -> str:
    if unit == "B":
        return format_bytes(value)
    if unit == "B/s":
        return f"{format_bytes(value)}/s"
    if unit == "s":
        return format_duration(value)
    return f"{value:g} %" if unit == "%" else f"{value:g}"


def lease_words(lease_s: float) -> str:
    """What the lease does, or that there is none."""
    if not lease_s:
        return "none: the baseline stays down for as long as the run takes"
    return (
        f"{format_duration(lease_s)}: with the baseline down and nobody attached for that long, "
        "the baseline comes back"
    )


def event_words(event: GuardEvent) -> str:
    if event.kind == "breach" and event.data.get("cause") == "lease":
        return f"LEASE RAN OUT: {clean(event.words, 400)}"
    return f"GUARD {MARKS.get(event.kind, clean(event.kind, 20))}: {clean(event.words, 400)}"


def deeds(breach: Mapping[str, Any]) -> list[str]:
    """What was done, a line for each victim: what it held, by which rungs, how fast; and how late
    it was looked. `breach`: as the journal or breach.json has it."""
    limit = limit_in(breach)
    for_s = limit.for_s if limit is not None else 0.0
    killed = [killed_row(one) for one in each(breach.get("killed")) if isinstance(one, dict)]
    gap = gap_words(breach)
    return [f"killed {killed_words(row, for_s)}" for row in killed] + ([gap] if gap else [])


def each(value: object) -> list[Any]:
    """A list as it is; an empty one for whatever else stands there."""
    return value if isinstance(value, list) else []


def killed_words(row: Mapping[str, Any], for_s: float = 0.0) -> str:
    """`cand (container), held 4.0 GiB, by cgroup.kill 18 ms after the sample that showed it, gone
    after 220 ms`. `row`: see console.journal.breach.killed_row; `for_s`: of the limit, since a kill
    is counted from when it had been passed for that long."""
    text = clean(str(row.get("name") or "?"), 80)
    if row.get("kind") and "(" not in text:
        text += f" ({clean(str(row['kind']), 40)})"
    held = held_words(row.get("held"))
    text += f", {held}" if held else ""
    text += f"{',' if held else ''} by {clean(str(row['rung']), 80)}" if row.get("rung") else ""
    wrote, empty = row.get("write_s"), row.get("empty_s")
    if isinstance(wrote, int | float):
        passed = f"it had been passed for {format_duration(for_s)}"
        text += f" {soon(wrote)} after {passed if for_s else 'the sample that showed it'}"
        text += "" if isinstance(empty, int | float) else ", not gone yet"
    if isinstance(empty, int | float):
        text += f", gone after {soon(empty)}"
    why = row.get("why")
    return f"{text}; {clean(str(why), 120)}" if why else text


def held_words(held: object) -> str:
    """`held 616.0 MiB and 1.0 GiB of swap, 1.2 s before`; "" where it is not known."""
    ram = held.get("ram") if isinstance(held, dict) else None
    if not isinstance(held, dict) or not isinstance(ram, int | float):
        return ""
    swap, age = held.get("swap"), held.get("age_s")
    text = f"held {format_bytes(ram)}"
    text += f" and {format_bytes(swap)} of swap" if isinstance(swap, int | float) and swap else ""
    old = isinstance(age, int | float) and age >= OLD_S
    return f"{text}, {format_duration(age)} before" if old and age is not None else text


def gap_words(breach: Mapping[str, Any]) -> str:
    """`nobody had looked for 0.25 s before the sample that showed it`, where that is long."""
    gap = breach.get("gap_s")
    if not isinstance(gap, int | float) or gap <= GAP_S:
        return ""
    return f"nobody had looked for {format_duration(gap)} before the sample that showed it"


def soon(seconds: float) -> str:
    """Milliseconds below a second."""
    return f"{seconds * 1000:.0f} ms" if 0 <= seconds < 1 else format_duration(seconds)
