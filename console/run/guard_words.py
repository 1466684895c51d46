"""Guards in words: a limit with where it is from, the lease, an event. Pure."""

from __future__ import annotations

from console.guard.defaults import NAMES
from console.guard.limits import Limit
from console.run.view import GuardEvent
from console.text import clean, one_line
from console.units import format_bytes, format_duration

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
        what = f"{NAMES.get(limit.metric, limit.metric)}{of} {side} "
        what += f"{value_words(value or 0.0, limit.unit)}{held}"
        if limit.scarce:
            what += f", while RAM available is below {format_bytes(limit.scarce)}"
    does = "kills the load, rolls back" if limit.act == "kill" else "warns"
    blind = "; no figure counts as breached" if limit.missing == "breach" else ""
    source = f" ({one_line(limit.source, 80)})" if limit.source else ""
    return f"{what}: {does}{blind}{source}"


def value_words(value: float, unit: str) -> str:
    """A limit's figure with its unit."""
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
    """One line of an event, for a terminal."""
    if event.kind == "breach" and event.data.get("cause") == "lease":
        return f"LEASE RAN OUT: {clean(event.words, 400)}"
    return f"GUARD {MARKS.get(event.kind, clean(event.kind, 20))}: {clean(event.words, 400)}"


def killed_words(row: dict[str, object]) -> str:
    """`cand (container) seen holding 4.0 GiB by cgroup.kill, signalled after 18 ms`."""
    parts = [clean(str(row.get("name") or "?"), 80)]
    if row.get("kind") and "(" not in parts[0]:
        parts.append(f"({clean(str(row['kind']), 40)})")
    size = row.get("ram")
    if isinstance(size, int | float):
        parts.append(f"seen holding {format_bytes(size)}")
    if row.get("rung"):
        parts.append(f"by {clean(str(row['rung']), 80)}")
    text = " ".join(parts)
    for key, words in (("write_s", "signalled"), ("empty_s", "gone")):
        value = row.get(key)
        if isinstance(value, int | float):
            text += f", {words} after {soon(float(value))}"
    why = row.get("why")
    return f"{text}: {clean(str(why), 120)}" if why else text


def soon(seconds: float) -> str:
    """Milliseconds below a second."""
    return f"{seconds * 1000:.0f} ms" if 0 <= seconds < 1 else format_duration(seconds)
