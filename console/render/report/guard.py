"""The guard in a report: what was breached, the memory before it, what was killed and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from console.common.units import format_bytes, format_duration, number
from console.journal.breach import Crossed, crossed, each, limit_in
from console.journal.run_view import GuardEvent, RunView
from console.journal.state import Cause
from console.recovery.guard.config import ALLOCATION, EXPIRIES, LEASE
from console.recovery.guard.metrics import RAM, SWAP
from console.render.facts.words import when
from console.render.guard import MARKS, deeds, limit_words, value_words
from console.render.report.charts import (
    LEFT,
    PANEL,
    WIDTH,
    Chart,
    draw_bytes_axis,
    draw_lines,
)
from console.render.report.markdown import plain, prose, table, took
from console.render.report.svg import BAD, INK, Panel, Svg, seconds_ticks, x_axis, y_axis

LAST_S = 120.0
SHOWN = 40
HEADS = {LEASE: "The lease ran out", ALLOCATION: "The allocation was lost"}
NOT_SHOWN = frozenset({"watching", "breach"})
Point = tuple[float, float]


def guard_lines(view: RunView, drawn: dict[str, list[str]]) -> Iterator[str]:
    """The section; nothing if the guard had nothing to report."""
    events = [event for event in view.guards if event.kind not in NOT_SHOWN]
    breach = view.breach
    if breach is None and not events:
        return
    yield from ("## Guard", "")
    if breach is not None:
        yield from _breach(view, breach)
        yield from drawn.get("guard", [])
    rows = [
        [when(e.at), MARKS.get(e.kind, prose(e.kind, 20)), prose(e.words, 300)]
        for e in events[:SHOWN]
    ]
    yield from table(("when", "what", "why"), rows)
    if len(events) > SHOWN:
        yield from (f"{len(events) - SHOWN} more of these are in the journal.", "")


def _breach(view: RunView, breach: GuardEvent) -> Iterator[str]:
    head = HEADS.get(breach.body.cause, "The guard stopped the load")
    yield from (f"**{head}** at {when(breach.body.at or breach.at)}: "
                f"{prose(breach.words, 400)}.", "")  # fmt: skip
    for reason in breach.body.reasons:
        if reason != breach.words:
            yield f"- {prose(reason, 300)}"
    limit = limit_in(breach.body)
    if limit is not None:
        yield f"- the limit: {prose(limit_words(limit), 300)}"
    yield from (f"- {prose(text, 300)}" for text in deeds(breach.body))
    if not breach.body.killed and breach.body.cause not in EXPIRIES:
        yield "- killed: nothing was alive that it may kill"
    low = lowest(breach)
    if low is not None:
        yield f"- the least RAM available that was seen: {format_bytes(low)}"
    for stage in view.stages:
        if (stage.rung, stage.state) == ("memory", "failed"):
            yield f"- {prose(stage.detail, 300)}"
    yield from (f"- {_restored(view)}", "")


def _restored(view: RunView) -> str:
    if view.outage:
        return "the baseline has not been brought back yet"
    if view.restored_s is None and view.down_s:
        return f"the baseline was down for {took(view.down_s)} in all"
    if view.restored_s is None:
        return "the baseline was not down"
    return f"the baseline served again {took(view.restored_s)} after its restore began"


def window(breach: GuardEvent) -> list[tuple[float, float, float | None]]:
    """(seconds, RAM available, swap used), with the kill at 0 s: the two minutes before it, and
    what was recorded until its memory was free."""
    known = [
        (t, available, number(row[2]) if len(row) > 2 else None)
        for row in each(breach.body.window.get("fast"))
        if isinstance(row, list) and len(row) > 1
        and (t := number(row[0])) is not None and (available := number(row[1])) is not None
    ]  # fmt: skip
    kill = breach.body.at or 0.0
    if not any(t <= kill for t, _, _ in known):  # times of another clock: the last one is the kill
        kill = max((t for t, _, _ in known), default=0.0)
    return [(t - kill, a, s) for t, a, s in sorted(known) if abs(t - kill) <= LAST_S]


def lowest(breach: GuardEvent) -> float | None:
    return min((available for _, available, _ in window(breach)), default=None)


def guard_chart(view: RunView) -> Chart | None:
    """The curve that crossed (and swap, if any was used) before the kill, with limit and kill
    marked; RAM available if no curve is on record."""
    breach = view.breach
    rows = window(breach) if breach is not None else []
    begin, span = (-rows[0][0], rows[-1][0] - rows[0][0]) if rows else (0.0, 0.0)
    if breach is None or span <= 0:
        return None
    curve, line = _crossed(breach, rows, begin)
    lines, level = [(curve.name, line)], curve.level
    swap = [(t + begin, s) for t, _, s in rows if s is not None]
    if curve.unit == "B" and curve.column != SWAP and any(s > 0 for _, s in swap):
        lines.append(("swap used", swap))
    about = "The upright line: the kill."
    about += " Broken line: the limit." if level is not None else ""
    title = _title(curve)
    svg = Svg(WIDTH, 84 + PANEL * 2, f"{title} before the guard acted", about)
    high = max([v for _, points in lines for _, v in points] + [level or 0.0, 1.0]) * 1.12
    panel = Panel(LEFT, 84, WIDTH - LEFT - 130, PANEL * 2 - 50, span, high)
    if curve.unit.startswith("B"):
        draw_bytes_axis(svg, panel, title.lower())
    else:
        y_axis(svg, panel, curve.unit)
    x_axis(svg, panel, seconds_ticks(span))
    draw_lines(svg, panel, lines)
    if level is not None:
        y = panel.y(level)
        svg.line((panel.left, y), (panel.right, y), INK, 1.2, "5 4")
        svg.text(panel.left + 4, y - 5, f"limit {value_words(level, curve.unit)}", size=11)
    x = panel.x(begin)
    svg.line((x, panel.top - 4), (x, panel.bottom), BAD, 1.6)
    svg.text(x, panel.top - 10, "kill", at="middle", colour=BAD)
    return Chart(
        "guard", f"{title} before the guard acted: {_worst_words(curve, line, begin)}", str(svg)
    )


def _crossed(
    breach: GuardEvent, rows: list[tuple[float, float, float | None]], begin: float
) -> tuple[Crossed, list[Point]]:
    """The curve that crossed and its points on the chart; RAM available if there is none."""
    kill = breach.body.at or 0.0
    curve = crossed(breach.body)
    if curve is not None and curve.column != RAM:
        line = [
            (at - kill + begin, figure)
            for at, figure in curve.points
            if figure is not None and 0 <= at - kill + begin <= begin + LAST_S
        ]
        if len(line) > 1:
            return replace(curve, name=plain(curve.name, 60)), line
    limit = limit_in(breach.body)
    level = limit.below if limit is not None and limit.metric == "host.ram_available" else None
    return Crossed("RAM available", "B", (), level, True, RAM), [(t + begin, a) for t, a, _ in rows]


def _title(curve: Crossed) -> str:
    if not curve.unit.startswith("B"):
        return "What was on the limit"
    return "Disk" if curve.name.startswith("disk") else "Memory"


def _worst_words(curve: Crossed, line: list[Point], begin: float) -> str:
    """Where the curve was at its worst."""
    until = [figure for at, figure in line if at <= begin] or [line[-1][1]]
    worst = value_words(min(until) if curve.below else max(until), curve.unit)
    if curve.below:
        return f"{curve.name} fell to {worst} in {format_duration(begin)}"
    return f"{curve.name} rose to {worst}"


def guard_json(view: RunView) -> list[dict[str, Any]]:
    """Every event; of a breach with its curve."""
    return [
        {"at": event.at, "kind": event.kind, "words": event.words, **event.body.data()}
        for event in view.guards
    ]


def guard_next(view: RunView) -> Iterator[str]:
    breach = view.breach
    gone = any(event.kind == "gone" for event in view.guards)
    if breach is None and gone and view.over and view.reason == Cause.GUARD:
        yield (
            "The load did nothing wrong: no sentinel watched over it any more, and one that was "
            "started anew did not stay. The run's `guard/sentinel.log` says why, "
            "`omni-console doctor` what this machine refuses it; then run it again."
        )
    if breach is None:
        return
    if breach.body.cause == ALLOCATION:
        yield "Slurm took the cards back: run it again, if need be with a longer `time`."
        return
    if breach.body.cause == LEASE:
        yield (
            "Nobody was attached while the baseline was down, and the lease ran out: stay attached "
            "(`omni-console attach`), or give a longer `--lease`."
        )
        return
    yield (
        f"The guard stopped the load: {plain(breach.words, 300)}. Do not start it again as it is: "
        "less context, fewer layers in RAM, `mmap` in place of a resident load, or a memory limit "
        "on the service; `omni-console check checkpoint` shows what it needs."
    )


def guard_lessons(view: RunView) -> Iterator[str]:
    """Candidates for lessons: each breach with what was tried, its effect, and the figures."""
    breach = view.breach
    if breach is None or breach.body.cause in EXPIRIES:
        return
    low = lowest(breach)
    least = f" Least RAM available: {format_bytes(low)}." if low is not None else ""
    names = ", ".join(plain(row.get("name") or "", 60) for row in breach.body.killed)
    result = f"the guard killed {names or 'nothing'} and the baseline came back"
    cause = plain(breach.words, 300)
    yield f"Attempted: {plain(view.title, 120)}. Result: {result}. Cause: {cause}.{least}"
