"""What the panel Now says: of a step, what it does, how far it is and what was measured; of a run
that is over, how it went. Clean text in, parts out.

What decides comes first, then the keys, then what only explains: a low panel shows no more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from console.bench.metrics import METRICS, SOAK_METRICS
from console.common.logs.cause import cause_of
from console.common.progress import clock
from console.common.text import clean
from console.common.units import format_duration, format_number
from console.journal.run_view import RunView, StepView
from console.journal.state import UNDECIDED, Decision, RunState, StepState
from console.recovery.rollback.baseline_state import time_words
from console.render.cells import glyphs, padded
from console.render.facts.gate import doubts, gates
from console.render.facts.run import IS_DOWN, baseline_after, notes
from console.render.facts.step import StepFacts, facts_of
from console.render.facts.words import VERDICT_TONE, state_words
from console.render.measuring import brief_answers, measuring, run_bars
from console.render.progress import step_progress
from console.render.upcoming import NOTHING, ShownBaseline, of_site, on_site
from widgets.rows import Row, fit, width_of
from widgets.steps import behind, paragraph, wrapped

if TYPE_CHECKING:
    from console.frontends.tui.watch.history import RunRow

EVIDENCE = [name for name, metric in {**METRICS, **SOAK_METRICS}.items() if metric.evidence]
"""Figures that an approval is shown."""
LOWEST, LOW = 7, 12
"""Rows of a panel from which on there is a title, and from which on a title and a criterion have as
many rows as they need."""
MIN_BESIDE = 44
"""Columns beside the bars from which on the earlier runs stand there."""
BARS, EARLIER = 16, 5
"""Rows of a measurement's bars, and earlier runs, at most."""
OUTPUT_LINES = 12
"""Last lines of a failed step's output that are shown."""


def detail_rows(
    view: RunView, step: StepView, can: list[Row], width: int, now: float, height: int = 0
) -> list[Row]:
    """What a step does and why, how far it is, what went wrong, what was measured, what can be
    done, and its output; `now` in Unix seconds, `height`: rows of the panel, 0 for any number."""
    awaits_approval = view.state is RunState.WAITING_APPROVAL and step is view.current
    low = 0 < height < LOW
    rows = [] if low else paragraph(clean(step.title), width, "bold")
    if LOWEST <= height < LOW:
        rows.append(fit(((clean(step.title), "bold"),), width, glyphs().ellipsis))
    if not (low and view.reason in UNDECIDED and step is view.current):
        rows.append(_state_row(view, step, width, awaits_approval=awaits_approval))
    rows += _why(view, step, width, awaits_approval=awaits_approval)
    if progress_row := step_progress(step, now, width):
        rows.append(progress_row)
    if step.state is StepState.RUNNING:
        if step.message and not step.runs:
            rows += paragraph(clean(step.message), width, "accent")
        rows += measuring(view, step, width, glyphs())
    rows += _verdict_rows(view, "" if awaits_approval else step.id, width, low=low)
    rows += _evidence_rows(view, width) if awaits_approval else []
    for lesson in step.lessons:
        words = f"lesson {clean(lesson)}"
        whole = paragraph(words, width, "warn", "  ")
        rows += [fit(((words, "warn"),), width, glyphs().ellipsis)] if low else whole
    failure_rows = _output_rows(step, width) if step.state is StepState.FAILED else []
    rows += [*can, *failure_rows] if low else [*failure_rows, *can]
    for effect in step.effects:
        rows += paragraph(clean(effect), width, "dim", "  ")
    spoken = [] if awaits_approval else answer_rows(view, step.id, width)
    return rows + spoken + _metric_rows(view, step, width)


def _state_row(view: RunView, step: StepView, width: int, *, awaits_approval: bool) -> Row:
    """`failed (not ready)  attempt 2, service in Trial`; the phase goes where it has no room."""
    facts = facts_of(view, step)
    state, tone = "waits for an answer" if awaits_approval else facts.state, facts.tone
    state += f" ({state_words(facts.cause)})" if facts.cause else ""
    attempt = f"{facts.again}, " if facts.again else ""
    forms = (f"  {attempt}{step.kind} in {clean(step.phase)}", f"  {attempt}{step.kind}")
    return next(
        (row for form in forms if width_of(row := ((state, tone), (form, "dim"))) <= width),
        fit(((state, tone),), width, glyphs().ellipsis),
    )


def _why(view: RunView, step: StepView, width: int, *, awaits_approval: bool) -> list[Row]:
    """What a step asks, or why it is as it is; of a failure the line of its output that explains
    it."""
    rows: list[Row] = []
    if awaits_approval:
        rows += paragraph(clean(view.detail), width, "warn")
        if view.until:
            when = time.strftime("%H:%M:%S", time.localtime(view.until))
            rows.append(((f"expires at {when}", "dim"),))
    if view.reason in UNDECIDED and step is view.current:
        rows += paragraph(clean(view.detail), width, "warn")
    elif step.detail and not awaits_approval:
        rows += paragraph(clean(step.detail), width, StepFacts(step).tone)
    if explanation := StepFacts(step).explanation:
        rows += _line_rows(explanation, width, "bad")
    return rows


def _output_rows(step: StepView, width: int) -> list[Row]:
    """The last lines of a failed step's output, without the one that explains and leads."""
    why = cause_of(step.lines)[1]
    lines = [line for line in map(clean, step.lines[-OUTPUT_LINES:]) if not (why and why in line)]
    return [row for line in lines for row in _line_rows(line, width, "")]


def _line_rows(line: str, width: int, tone: str) -> list[Row]:
    """A line of a program's output; what has no room in its first row is indented."""
    first, *more = wrapped(line, width - 4)
    return [(("| ", "bad"), (first, tone)), *((("    ", ""), (text, tone)) for text in more)]


def summary_rows(
    view: RunView, width: int, now: float, shown: ShownBaseline = NOTHING
) -> list[Row]:
    """A finished run: how it ended, what was decided, where the baseline is, what was measured.
    `shown`: whose baseline is on show."""
    where = on_site(view, shown)
    rows = paragraph(clean(view.title), width, "bold")
    took = f" in {format_duration(view.ended - view.created)}" if view.ended else ""
    rows.append(((state_words(view.state), "bold"), (f"{took}", "dim")))
    if where:
        rows.append(((where, "warn"),))
    for fact in notes(view):
        rows.append(fit(((fact.line, fact.tone or "dim"),), width, glyphs().ellipsis))
    if view.detail:
        rows += paragraph(clean(view.detail), width)
    for step in view.steps:
        if step.state is StepState.FAILED:
            rows += paragraph(f"{step.id}: {StepFacts(step).why}", width, "bad")
    rows += _verdict_rows(view, "", width)
    after = baseline_after(view)
    if after.key in ("cutover", "down"):
        words = f": F12 brings {'it' if after.key == 'down' else 'the baseline'} back"
        if view.state is RunState.ROLLBACK_FAILED and after.key == "down":
            words = ": mend that, then F12 tries again"
        left = IS_DOWN if after.key == "down" else after.brief
        rows.append(((of_site(where, left), after.tone), (words, "bold")))
    elif view.serving:
        # what was seen at the run's end says nothing of now: the header does
        slow = view.serving.degraded
        at = view.serving.looked_at or view.serving.at
        when = f"at {time_words(at, now)}" if at else "when it was last seen"
        words = f"{when} the baseline {'was DEGRADED' if slow else 'served'}"
        back = f", back in {format_duration(view.restored_s)}" if view.restored_s else ""
        rows += paragraph(of_site(where, words + back), width, "warn" if slow else "good")
        for note in view.serving.notes:
            rows += paragraph(clean(note), width, "warn")
    return rows + _evidence_rows(view, width)


def more_rows(
    view: RunView, step: StepView, earlier: Sequence[RunRow], width: int, room: int
) -> list[Row]:
    """For the rows that a panel has left: each run of the measurement that counts here, and the
    earlier runs of the same playbook."""
    if room < 2:
        return []
    judged = step if step.runs and not view.over else _measured(view)
    bars: list[Row] = []
    if judged is not None:
        bars = run_bars(view, judged, width, min(BARS, room - 2), glyphs())
    if bars and judged is not None:
        bars.insert(0, ((clean(judged.id), "bold"), ("  each valid run", "dim")))
    beside = max(map(width_of, bars), default=0) + 4
    if not bars or width - beside < MIN_BESIDE:
        left = room - len(bars) - (2 if bars else 1)
        earlier_rows = _earlier_rows(view, earlier, width, left)
        return [*([(), *bars] if bars else []), *([(), *earlier_rows] if earlier_rows else [])]
    earlier_rows = _earlier_rows(view, earlier, width - beside, room - 1)
    lines = zip_longest(bars, earlier_rows, fillvalue=())
    return [(), *((*padded(bar, beside), *other) for bar, other in lines)]


def _earlier_rows(view: RunView, earlier: Sequence[RunRow], width: int, room: int) -> list[Row]:
    """A heading and a row for each earlier run; none without room for one."""
    if not earlier or room < 2:
        return []
    head: Row = (("earlier runs", "bold"), (f" of {clean(view.playbook, 60)}", "dim"))
    shown = earlier[: min(EARLIER, room - 1)]
    return [fit(head, width, glyphs().ellipsis), *(_earlier_row(row, width) for row in shown)]


def _measured(view: RunView) -> StepView | None:
    """The step whose runs a gate judged last, else the last one that measured a candidate."""
    judged = [row.get("metric", "").partition(".")[0]
              for verdict in reversed(view.verdicts) for row in verdict.criteria]  # fmt: skip
    wanted = [*judged, *(step.id for step in reversed(view.steps) if not step.implicit)]
    steps = (view.step(step_id) for step_id in wanted)
    return next((step for step in steps if step is not None and step.runs), None)


def _earlier_row(row: RunRow, width: int) -> Row:
    """`11-13 14:03  NO-GO  15:55  rolled back  1a2b`."""
    decision = Decision(row.decision)
    when = time.strftime("%m-%d %H:%M", time.localtime(row.created))
    took = clock(row.took_s) if row.took_s is not None else ""
    word = decision.word or "none"
    parts: Row = (
        (f"{when}  ", "dim"), (f"{word:<6}", VERDICT_TONE.get(decision.word, "dim")),
        (f"{took:>7}  ", ""), (row.outcome or state_words(row.state), ""),
        (f"  {row.id[-4:]}", "dim"),
    )  # fmt: skip
    return fit(parts, width, glyphs().ellipsis)


def lessons_of(view: RunView, step_id: str) -> tuple[str, ...]:
    """Ids of the lessons that apply to a step, then of those the playbook names."""
    step = view.step(step_id)
    bearing = [line.split()[0] for line in step.lessons if line.split()] if step else []
    return (*bearing, *view.header.lessons)


def result_row(facts: StepFacts, width: int) -> Row:
    """The result of a step in one line, for a run that waits before the next one."""
    step = facts.step
    took = f" {clock(step.duration_s)}" if step.duration_s is not None else ""
    words = f" {facts.detail}" if facts.detail else ""
    parts: Row = (
        (f"{glyphs().step(facts.standing)} ", facts.tone), (clean(step.id), "bold"),
        (f" {facts.state}{took}", "dim"), (words, ""),
    )  # fmt: skip
    return fit(parts, width, glyphs().ellipsis)


def _verdict_rows(view: RunView, step_id: str, width: int, *, low: bool = False) -> list[Row]:
    """The verdict of one step's gate; of every gate for "". `low`: a row for each criterion. What
    makes one doubtful leads, before the word GO is read."""
    rows: list[Row] = []
    for doubt in doubts(view, step_id):
        whole = paragraph(doubt.line, width, doubt.tone)
        rows += [fit(((doubt.line, doubt.tone),), width, glyphs().ellipsis)] if low else whole
    for gate in gates(view, step_id):
        named = f"  {gate.outcome}" if gate.outcome else ""
        rows.append((("GATE ", "bold"), (gate.verdict, gate.tone), (named, "bold")))
        for row in gate.criteria:
            lead = (f"{row.label:>6} ", row.tone)
            if low:
                rows.append(fit((lead, (row.value, "")), width, glyphs().ellipsis))
            else:
                rows += behind((lead,), row.value, width)
        for mark in gate.marks:
            rows += paragraph(mark.line, width, mark.tone)
    return rows


def _evidence_rows(view: RunView, width: int) -> list[Row]:
    """What was measured, beside the baseline: the evidence for an approval."""
    measurements: list[tuple[str, str, str]] = []
    judged = {row.get("metric") for verdict in view.verdicts for row in verdict.criteria}
    for scope, metrics in view.metrics.items():
        if "." in scope:
            continue
        before = view.metrics.get(f"{scope}.baseline", {})
        for name in EVIDENCE:
            figures, base = metrics.get(name, {}), before.get(name, {})
            if figures.get("value") is None or (f"{scope}.{name}" in judged and not base):
                continue
            beside = ""
            if base.get("value") is not None:
                beside = f"baseline {format_number(base['value'], base.get('unit', ''))}"
            value = format_number(figures["value"], figures.get("unit", ""))
            measurements.append((f"{clean(scope)}.{name}", value, beside))
    label, figure = (max((len(row[at]) for row in measurements), default=0) for at in (0, 1))
    rows = [
        fit(
            ((f"{name:<{label}}  ", "dim"), (f"{value:>{figure}}", ""), (f"  {base}", "dim")), width
        )
        for name, value, base in measurements
    ]
    return rows + [row for scope in view.metrics for row in answer_rows(view, scope, width)]


def answer_rows(view: RunView, scope: str, width: int) -> list[Row]:
    """What candidate and baseline answered to one prompt of a measurement, a row each."""
    if "." in scope:
        return []
    return [
        fit(
            ((f"{who + ' said':<15}  ", "dim"), (words, "bad" if garbled else "")),
            width, glyphs().ellipsis,
        )
        for who, words, garbled in brief_answers(view, scope)
    ]  # fmt: skip


def _metric_rows(view: RunView, step: StepView, width: int) -> list[Row]:
    rows: list[Row] = []
    for name, figures in view.metrics.get(step.id, {}).items():
        value = figures.get("value")
        if value is None:
            continue
        figure = format_number(value, figures.get("unit", ""))
        rows.append(fit(((f"{clean(name):<18} ", "dim"), (figure, "")), width))
    return rows
