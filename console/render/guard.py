"""The guard in words: one line for the console and for `gauges --watch`, limits and leases, events,
and what was done after a breach.

Rows are parts of (text, tone), as in console.render.cells; a state is a word before it is a
colour.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from console.common.text import clean, one_line
from console.common.units import format_bytes, format_duration
from console.host.sample import Marks, Sample
from console.journal import guard_status as guards
from console.journal.breach import killed_row, limit_in
from console.journal.events import Breach
from console.journal.guard_status import OLD_S, GuardView, Lease
from console.journal.run_view import GuardEvent
from console.recovery.guard.config import ALLOCATION, LEASE, Limit
from console.recovery.guard.metrics import METRICS
from console.recovery.guard.record.read import utc
from console.render.cells import Glyphs, Part, Row, amount, bar, cells, cut, fitted, pair, rate
from console.render.gauges import memory_of

SOON_S = 600.0
"""A time to exhaustion longer than this is not shown."""
UNIX = 1e9
"""Larger times are Unix times: no machine has been up for that many seconds."""
PROTECTIONS = {
    "priority": "top priority", "oom_score_adj": "OOM protection", "memory": "locked memory",
    "kill path": "complete kill path",
}  # fmt: skip
"""First words of a message on a missing protection → the protection's name."""


def line(view: GuardView, now: float, width: int = 0, key: str = "b") -> Row:
    """`guard ok  RAM +1.2 GiB/s  kills candidate below 32 GiB free`; what does not fit in `width`
    cells (0: no limit) is dropped from its end. `now`: monotonic seconds. `key` opens the
    details in the console; "" outside it."""
    view = replace(view, word=view.word_at(now))
    parts = [*_state(view, key)]
    if view.alone and view.word != guards.ACTED:
        parts.append((", its runner is gone", "warn"))
    old = age(view, now)
    if old:
        parts.append((f"  {old}", "warn"))
    for text, tone in _facts(view, key):
        if not width or sum(cells(part_text) for part_text, _ in parts) + cells(text) + 2 <= width:
            parts.append((f"  {text}", tone))
    return tuple(parts)


def lines(view: GuardView, now: float, width: int) -> list[Row]:
    """The line; after a crash as many lines as its message takes."""
    if view.word != guards.ENDED or not view.after or view.run is None:
        return [line(view, now, width)]
    words = f"{view.after}: omni-console recorder {view.run.id[-4:]} shows it"
    return [((text, "bad"),) for text in textwrap.wrap(words, max(20, width))]


STATES: dict[str, list[Part]] = {
    guards.NONE: [("no run, nothing guarded", "dim")],
    guards.LOOKING: [("guard: looking", "dim")],
    guards.STARTING: [("guard: starting", ""),
                      ("  the sentinel is there before the first effect", "dim")],
    guards.GONE: [("no guard: sentinel gone", "alarm"), ("  no load starts without it", "")],
    guards.SILENT: [("guard SILENT", "alarm"), (": the sentinel lives and says nothing", "bold")],
    guards.ENDED: [("Guard off: no active run", "dim")],
}  # fmt: skip


def _state(view: GuardView, key: str) -> list[Part]:
    word = view.word
    if word == guards.ENDED and view.after:
        return [(f"its runner is gone; {view.after}", "bad")]
    if word in STATES:
        return STATES[word]
    if word == guards.UNREADABLE:
        return [("guard unknown", "bad"), (f": {view.detail}", "")]
    if word == guards.ACTED:
        return [*acted(view.breach), (f": {key} shows why, and what next" if key else "", "bold")]
    advisory = ", warns only while it rolls back" if view.advisory else ""
    if word == guards.WARN:
        words = filling(view) or "; ".join(view.reasons[:1])
        return [("guard WARN", "warn"), (f": {words}{advisory}" if words else advisory, "bold")]
    return [("guard ok", "good"), (advisory, "warn")]


def _facts(view: GuardView, key: str) -> list[Part]:
    if view.word not in (guards.OK, guards.WARN):
        return []
    facts: list[Part] = []
    if view.word == guards.WARN:
        forecast = filling(view)
        for text in view.reasons[0 if forecast else 1 :][:1]:
            # the forecast's own reason begins with what was just said
            again = forecast and text.startswith(f"{view.filling} full in")
            facts.append((text.partition(": ")[2] if again else text, ""))
    if view.rate is not None and view.rate >= 1 << 20:
        facts.append((f"{view.filling} +{rate(view.rate)}", "dim"))
    lead = "kills candidate "
    for words in nearest(view.limits):
        facts.append((f"{lead}{words}", "dim"))
        lead = ""
    facts += [(text, "warn") for text in (*view.spared, *view.trouble)]
    if view.missing:
        facts.append((lacks(view.missing) + (f" ({key}: details)" if key else ""), "warn"))
    return facts


def filling(view: GuardView) -> str:
    """`RAM full in 18 s`, or "" if nothing fills up soon, or while the sentinel does not warn of
    it: far from its limits a load fills memory at any rate and harms nobody."""
    if view.tte_s is None or view.tte_s > SOON_S or view.word != guards.WARN:
        return ""
    if view.reasons and not any(view.filling in text for text in view.reasons):
        return ""
    return f"{view.filling} full in {seconds(view.tte_s)}"


def seconds(count: float) -> str:
    """Whole seconds, minutes from 100 on: `18 s`, `4:12`."""
    whole = max(0, int(count))
    return f"{whole} s" if whole < 100 else f"{whole // 60}:{whole % 60:02d}"


def age(view: GuardView, now: float) -> str:
    """`data 4 s old` if it is older than OLD_S; data without a time is marked as such."""
    if view.word not in (guards.OK, guards.WARN, guards.SILENT, guards.GONE):
        return ""
    if view.at is None:
        return "age of its data unknown"
    old = now - view.at
    return f"data {seconds(old)} old" if old > OLD_S else ""


def lacks(missing: tuple[str, ...]) -> str:
    """`no locked memory, no top priority`: protections that the sentinel did not get."""
    names = [text.partition(":")[0] for text in missing]
    return ", ".join(f"no {PROTECTIONS.get(name, name)}" for name in names)


def acted(breach: Breach, when: str = "") -> list[Part]:
    """`guard ACTED 14:03:12 UTC`, or the end of a lease, which is no breach; `when`: other words
    for the time."""
    at = wall_of(breach)
    when = when or (utc(at) if at is not None else "at a time that is not known")
    if ended := EXPIRED.get(breach.cause):
        return [(ended, "warn"), (f" {when}", "bold")]
    return [("guard ACTED", "alarm"), (f" {when}", "bold")]


def wall_of(breach: Breach) -> float | None:
    """When a breach happened, Unix seconds; None if it does not say."""
    return next((at for at in (breach.wall, breach.at) if at is not None and at > UNIX), None)


def nearest(limits: tuple[Limit, ...]) -> list[str]:
    """The nearest kill limit of each gauge: `below 32 GiB free`, `swap above 11 GiB`."""
    limit_by_metric: dict[str, Limit] = {}
    for limit in limits:
        if (
            limit.act == "kill"
            and limit.metric
            and METRICS[limit.metric].short
            and not limit.scarce
        ):
            before = limit_by_metric.setdefault(limit.metric, limit)
            nearer = max if limit.below is not None else min
            limit_by_metric[limit.metric] = nearer(before, limit, key=_value)
    return [_kill_words(name, kill_limit) for name, kill_limit in limit_by_metric.items()]


def _kill_words(name: str, limit: Limit) -> str:
    side = "below" if limit.below is not None else "above"
    value = _value(limit)
    words = amount(value) if limit.unit == "B" else value_words(value, limit.unit)
    if name == "host.ram_available":
        return f"{side} {words} free"
    return f"{METRICS[name].short} {side} {words}"


def _value(limit: Limit) -> float:
    return limit.below if limit.below is not None else limit.above or 0.0


def lease_words(lease: Lease | None, *, brief: bool = False) -> str:
    """`baseline returns in 4:12 unless somebody attaches`; "" without a lease."""
    if lease is None or lease.left_s is None:
        return ""
    left = _left(int(lease.left_s))
    if lease.attended:
        return f"lease {left}, renewed" if brief else f"lease {left}, renewed: somebody is attached"
    if brief:
        return f"back in {left} unless attached"
    return f"baseline returns in {left} unless somebody attaches"


def _left(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours}:{minutes % 60:02d}:{seconds % 60:02d}"
    return f"{minutes}:{seconds % 60:02d}"


LATE_S, GAP_S = 1.0, 0.1
"""Figures older than the first, and samples later than the second, are marked."""
EXPIRED = {LEASE: "lease ran out", ALLOCATION: "allocation was lost"}
"""What has ended where the guard killed nothing, by the breach's cause."""
MARKS = {
    "watching": "watching", "warn": "WARNS", "act": "ACTS", "clear": "calm", "restarted": "NEW",
    "gone": "GONE", "breach": "BREACH", "lease": "LEASE",
}  # fmt: skip


def limit_words(limit: Limit) -> str:
    """`RAM available below 24.0 GiB for 2.00 s: kills the load, rolls back (playbook, line 17)`."""
    if limit.log:
        times = "a line" if limit.count == 1 else f"{limit.count} lines"
        what = f"{times} of {one_line(limit.log, 60)}'s log matching {one_line(limit.matches, 120)}"
    else:
        side, value = ("below", limit.below) if limit.below is not None else ("above", limit.above)
        held = f" for {format_duration(limit.for_s)}" if limit.for_s else ""
        metric = METRICS[limit.metric]
        of = metric.of.get(limit.of) or (f"of {one_line(limit.of, 80)}" if limit.of else "")
        side = "in less than" if limit.metric == "host.time_to_full" else side
        what = f"{metric.words} {of} {side} " if of else f"{metric.words} {side} "
        what += f"{value_words(value or 0.0, limit.unit)}{held}"
        if limit.scarce:
            what += f", while RAM available is below {format_bytes(limit.scarce)}"
    does = "kills the load, rolls back" if limit.act == "kill" else "warns"
    blind = "; an unreadable figure counts as breached" if limit.missing == "breach" else ""
    source = f" ({one_line(limit.source, 80)})" if limit.source else ""
    return f"{what}: {does}{blind}{source}"


def value_words(value: float, unit: str) -> str:
    if unit == "B":
        return format_bytes(value)
    if unit == "B/s":
        return f"{format_bytes(value)}/s"
    if unit == "s":
        return format_duration(value)
    return f"{value:g} {unit}" if unit else f"{value:g}"


def lease_terms(lease_s: float) -> str:
    """What the lease does, or that there is none."""
    if not lease_s:
        return "none: the baseline stays down for as long as the run takes"
    return (
        f"{format_duration(lease_s)}: with the baseline down and nobody attached for that long, "
        "the baseline comes back"
    )


def event_words(event: GuardEvent) -> str:
    ended = EXPIRED.get(event.body.cause, "")
    if event.kind == "breach" and ended:
        return f"{ended.upper()}: {clean(event.words, 400)}"
    return f"GUARD {MARKS.get(event.kind, clean(event.kind, 20))}: {clean(event.words, 400)}"


def deeds(breach: Breach) -> list[str]:
    """What was done, a line per victim: the memory it held, the stages used, how fast; and how late
    the sample was."""
    limit = limit_in(breach)
    for_s = limit.for_s if limit is not None else 0.0
    killed = [killed_row(victim) for victim in breach.killed]
    gap = gap_words(breach)
    return [f"killed {killed_words(row, for_s)}" for row in killed] + ([gap] if gap else [])


def killed_words(row: Mapping[str, Any], for_s: float = 0.0) -> str:
    """`cand (container), held 4.0 GiB, by cgroup.kill 18 ms after the sample that showed it, gone
    after 220 ms`. `row`: see console.journal.breach.killed_row; `for_s`: the limit's duration, from
    whose end the kill is timed."""
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
    """`held 616.0 MiB and 1.0 GiB of swap, 1.2 s before`; "" if unknown."""
    ram = held.get("ram") if isinstance(held, dict) else None
    if not isinstance(held, dict) or not isinstance(ram, int | float):
        return ""
    swap, old_s = held.get("swap"), held.get("age_s")
    text = f"held {format_bytes(ram)}"
    text += f" and {format_bytes(swap)} of swap" if isinstance(swap, int | float) and swap else ""
    old = isinstance(old_s, int | float) and old_s >= LATE_S
    return f"{text}, {format_duration(old_s)} before" if old and old_s is not None else text


def gap_words(breach: Breach) -> str:
    """`nobody had looked for 0.25 s before the sample that showed it`, if that is long."""
    gap = breach.gap_s
    if gap is None or gap <= GAP_S:
        return ""
    return f"nobody had looked for {format_duration(gap)} before the sample that showed it"


def soon(seconds: float) -> str:
    """A duration, in milliseconds if below a second."""
    return f"{seconds * 1000:.0f} ms" if 0 <= seconds < 1 else format_duration(seconds)


NAME, FIGURE = 14, 16
LONGEST, SHORTEST = 40, 8


def marked_rows(sample: Sample, marks: Marks, width: int, signs: Glyphs) -> list[Row]:
    """Each figure that a guard may watch as a bar with its mark, its limit and the remaining
    margin: a row each for RAM, swap, cards and disks; unknown figures are words."""
    rows: list[Row] = []

    def add(name: str, used: int | None, total: int | None, mark: float | None, why: str) -> None:
        label = (fitted(name, NAME - 1) + " ", "dim")
        if used is None or not total:
            rows.append((label, (why or "not known", "dim" if why == "none" else "warn")))
        else:
            rows.append((label, *_figure(used, total, mark, width, signs)))

    memory = sample.memory
    if memory is None:
        add("RAM", None, None, None, sample.memory_why)
    else:
        add("RAM", memory.total - memory.available, memory.total, marks.ram(memory), "")
        mark = marks.swap(memory)
        add("swap", memory.swap_used, memory.swap_total, mark, "none")
        if memory.swap_total and mark is None and marks.swap_growth is not None:
            words = f"acts when it grows by {amount(marks.swap_growth)}"
            rows[-1] = (*rows[-1][:-1], (words, ""))
    for gpu in sample.gpu.gpus if sample.gpu is not None else ():
        add(f"GPU{gpu.index}", gpu.used_bytes, gpu.total_bytes, marks.card(gpu), memory_of(gpu))
    for disk in sample.disks:
        used = None if disk.free is None or not disk.total else disk.total - disk.free
        add(f"disk {disk.path}", used, disk.total, marks.disk(disk), disk.why)
    return [cut(row, width, signs) for row in rows]


def _figure(used: int, total: int, mark: float | None, width: int, signs: Glyphs) -> Row:
    long = min(LONGEST, max(SHORTEST, width - NAME - FIGURE - 33))
    figure = fitted(pair(used, total), FIGURE)
    drawn = bar(used / total, long, signs, mark)
    if mark is None:
        words = ("no limit set", "dim")
    elif used / total >= mark:
        words = (f"PAST its limit {amount(mark * total)}", "bad")
    else:
        words = (f"acts at {amount(mark * total)}, {amount(mark * total - used)} left", "")
    return ((drawn + " ", ""), (figure + " ", ""), words)
