"""The steps of a run: their list, the detail of one, how it went. Clean text in, parts out."""

from __future__ import annotations

import textwrap
import time

from textual.binding import Binding
from textual.message import Message

from console.common.logs.cause import cause_of
from console.common.text import clean
from console.common.units import format_duration, format_number
from console.journal.run_view import RunView, StepView
from console.journal.state import UNDECIDED, RunState, StepState
from console.render.cells import glyphs, outcome, standing
from console.render.cutover import cut_over
from console.render.measuring import measuring
from console.render.progress import step_progress
from widgets.rows import Part, Row, RowsView, fit, moving, spread, width_of

TONE = {
    "running": "accent", "succeeded": "good", "failed": "bad", "skipped": "dim",
    "cancelled": "warn", "in_doubt": "warn", "retry_wait": "warn", "pending": "dim",
}  # fmt: skip
VERDICT_TONE = {"GO": "good", "NO-GO": "bad", "HOLD": "warn"}

EVIDENCE = ("tok_s", "ttft_s", "error_rate", "tok_s_drift", "restarts")
"""Figures that an approval is shown."""


def tone_of(step: StepView) -> str:
    """The tone of a step: that of its state, or that of a warning."""
    return "warn" if step.warned else TONE.get(step.state, "")


def short(seconds: float) -> str:
    """A duration in at most six cells: 4.1s, 12:05, 1h07."""
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    return f"{int(seconds) // 3600}h{int(seconds) % 3600 // 60:02d}"


def elapsed(step: StepView, now: float) -> float | None:
    """Seconds this step has taken so far or in all; None before it began."""
    if step.state is StepState.RUNNING and step.started:
        return max(0.0, now - step.started)
    return step.duration_s


def times(step: StepView, now: float) -> str:
    """`actual/planned`, each only if known."""
    took = elapsed(step, now)
    actual = short(took) if took is not None else ""
    return f"{actual or '-'}/{short(step.takes_s)}" if step.takes_s else actual


def step_row(
    step: StepView, width: int, now: float, verdict: str = "", *, down: bool = False,
    until: float = 0.0,
) -> Row:  # fmt: skip
    """One line: sign, id (title if there is room), attempt, a gate's verdict, times at the right
    edge, or when a question expires, and a sign if the baseline is `down` for it. A gate that ran
    and said no has the sign of its verdict."""
    signs = glyphs()
    tone = VERDICT_TONE.get(verdict) or tone_of(step)
    again = f" #{step.attempt}" if step.attempt > 1 else ""
    left: list[Part] = [
        (f"{signs.step(standing(step.state, verdict, warned=step.warned))} ", tone),
        (clean(step.id) + again, _name_tone(step)),
    ]
    if verdict:
        left.append((f" {verdict}", tone))
    if width >= 52 and step.title and step.title != step.id:
        left.append((f"  {clean(step.title)}", "dim"))
    over = _late(step, now)
    clock = f"until {time.strftime('%H:%M', time.localtime(until))}" if until else times(step, now)
    mark: Part = (f" {signs.down}" if down else "  ", "warn")
    right: Row = ((clock, "warn" if over and not until else "dim"), mark)
    return spread(tuple(left), right, width, signs.ellipsis)


def outage_steps(view: RunView) -> frozenset[str]:
    """The steps for which the baseline is down: from where it is stopped until it is back."""
    found, down = [], False
    for step in view.steps:
        down = down or step.kind == "baseline:stop"
        if down:
            found.append(step.id)
        if step.kind == "restore":
            down = False
    return frozenset(found)


def _late(step: StepView, now: float) -> bool:
    took, usual = elapsed(step, now), step.takes_s or 0.0
    return took is not None and usual > 0 and took > max(usual * 1.5, 5)


def _name_tone(step: StepView) -> str:
    if step.state is StepState.RUNNING:
        return "bold"
    return "" if step.state is not StepState.PENDING else "dim"


def list_rows(
    view: RunView, width: int, now: float, at: str = "", height: int = 0, looked: str = ""
) -> tuple[list[Row], list[int]]:
    """Rows with phase headings, and for each row the step's index (-1: a heading).

    `at`: the step before which a paused run stands; it has its own sign. If `height` is not 0 and
    too little for all rows, phases that are done are only a heading, the earliest first; that of
    the step that is `looked` at stays open.
    """
    groups: list[list[int]] = []
    for number, step in enumerate(view.steps):
        if number and step.phase == view.steps[number - 1].phase:
            groups[-1].append(number)
        else:
            groups.append([number])
    too_many = len(view.steps) + len(groups) - height if height else 0
    verdicts = {one.step: clean(one.verdict, 10) for one in view.verdicts}
    down = outage_steps(view)
    rows: list[Row] = []
    index: list[int] = []
    for group in groups:
        steps = [view.steps[number] for number in group]
        heading: Row = ((clean(steps[0].phase), "bold"),)
        done = all(step.state in (StepState.SUCCEEDED, StepState.SKIPPED) for step in steps)
        if too_many > 0 and done and looked not in [step.id for step in steps]:
            too_many -= len(steps)
            count: Row = ((f"{len(steps)} of {len(steps)} {glyphs().succeeded}  ", "dim"),)
            rows.append(spread(heading, count, width, glyphs().ellipsis))
            index.append(-1)
            continue
        rows.append(fit(heading, width, glyphs().ellipsis))
        index.append(-1)
        for number, step in zip(group, steps, strict=True):
            said = verdicts.get(step.id, "") if step.state is StepState.SUCCEEDED else ""
            asks = view.state is RunState.WAITING_APPROVAL and step.state is StepState.RUNNING
            until = view.until if asks else 0.0
            row = step_row(step, width, now, said, down=step.id in down, until=until)
            if step.id == at and step.state is StepState.PENDING:
                row = ((f"{glyphs().arrow} ", "warn"), *row[1:])
            rows.append(row)
            index.append(number)
    return rows, index


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Words of one line of clean text over as many lines as they need."""
    return textwrap.wrap(
        text, max(10, width), subsequent_indent=indent, break_on_hyphens=False,
    ) or [""]  # fmt: skip


def paragraph(text: str, width: int, tone: str = "", indent: str = "") -> list[Row]:
    """Clean text as rows of one tone."""
    return [((line, tone),) for line in wrapped(text, width, indent)]


def behind(lead: Row, text: str, width: int) -> list[Row]:
    """Clean text after `lead`, with further lines indented to its start."""
    room = width_of(lead)
    first, *more = wrapped(text, width - room)
    return [(*lead, (first, "")), *(((" " * room + line, ""),) for line in more)]


def hanging(line: str, width: int, tone: str, marks: str = " ") -> list[Row]:
    """A line; if it is wrapped, each row is indented like the first, with its `marks`."""
    if len(line) <= width:
        return [((line, tone),)]
    body = line.lstrip(marks)
    lead = line[: len(line) - len(body)]
    first, *more = wrapped(body, width - len(lead) - 2)
    return [((lead + first, tone),), *(((f"{lead}  {text}", tone),) for text in more)]


def detail_rows(view: RunView, step: StepView, can: list[Row], width: int, now: float) -> list[Row]:
    """What a step does and why, how far it is, its output, what went wrong, and what can be done;
    `now` in Unix seconds."""
    asked = view.state is RunState.WAITING_APPROVAL and step is view.current
    said = next((one.verdict for one in view.verdicts if one.step == step.id), "")
    state = "waits for an answer" if asked else outcome(step.state, said, warned=step.warned)
    state += f" ({step.cause.replace('_', ' ')})" if step.cause else ""
    attempt = f", attempt {step.attempt}" if step.attempt > 1 else ""
    tone = (VERDICT_TONE.get(said) if step.state is StepState.SUCCEEDED else "") or tone_of(step)
    rows = paragraph(clean(step.title), width, "bold")
    rows.append(((state, tone), (f"  {step.kind}{attempt} in {clean(step.phase)}", "dim")))
    if asked:
        rows += paragraph(clean(view.detail), width, "warn")
        if view.until:
            when = time.strftime("%H:%M:%S", time.localtime(view.until))
            rows.append(((f"expires at {when}", "dim"),))
    if view.reason in UNDECIDED and step is view.current:
        rows += paragraph(clean(view.detail), width, "warn")
    elif step.detail and not asked:
        rows += paragraph(clean(step.detail), width, tone)
    if far := step_progress(step, now, width):
        rows.append(far)
    if step.said and step.state is StepState.RUNNING and not step.runs:
        rows += paragraph(clean(step.said), width, "accent")
    if step.state is StepState.RUNNING:
        rows += measuring(view, step, width, glyphs())
    rows += can
    rows += _evidence_rows(view, width) if asked else []
    rows += _verdict_rows(view, "" if asked else step.id, width)
    if step.state is StepState.FAILED:
        why = cause_of(step.lines)[1]
        for line in map(clean, step.lines[-12:]):
            tone = "bad" if why and why in line else ""
            rows += [(("| ", "bad"), (text, tone)) for text in wrapped(line, width - 2)]
    for effect in step.effects:
        rows += paragraph(clean(effect), width, "dim", "  ")
    for lesson in step.lessons:
        rows += paragraph(f"lesson {clean(lesson)}", width, "warn", "  ")
    return rows + _metric_rows(view, step, width)


def summary_rows(view: RunView, width: int) -> list[Row]:
    """A finished run: how it ended, what was decided, where the baseline is, what is next."""
    rows = paragraph(clean(view.title), width, "bold")
    took = f" in {format_duration(view.ended - view.created)}" if view.ended else ""
    rows.append(((str(view.state).replace("_", " "), "bold"), (f"{took}", "dim")))
    if view.detail:
        rows += paragraph(clean(view.detail), width)
    for step in view.steps:
        if step.state is StepState.FAILED:
            rows += paragraph(f"{step.id}: {step.cause}: {clean(step.detail)}", width, "bad")
    rows += _verdict_rows(view, "", width)
    if view.cutover:
        rows.append(((cut_over(view), "warn"), (": F12 brings the baseline back", "bold")))
    elif view.outage and view.state is RunState.ROLLBACK_FAILED:
        words = ": mend that, then F12 tries again"
        rows.append((("the baseline is DOWN", "bad"), (words, "bold")))
    elif view.outage:
        rows.append((("the baseline is DOWN", "bad"), (": F12 brings it back", "bold")))
    elif view.serving:
        slow = "serves again" if view.restored_s else "serves"
        slow = "DEGRADED" if view.serving.get("degraded") else slow
        back = f", back in {format_duration(view.restored_s)}" if view.restored_s else ""
        rows.append(((f"the baseline {slow}{back}", "warn" if "DEG" in slow else "good"),))
    return rows + paragraph("o reads the report, 2 picks the next playbook", width, "dim")


def lessons_of(view: RunView, step_id: str) -> tuple[str, ...]:
    """Ids of the lessons that apply to a step, then of those the playbook names."""
    step, asked = view.step(step_id), view.header.get("lessons")
    bearing = [line.split()[0] for line in step.lessons if line.split()] if step else []
    return (*bearing, *(map(str, asked) if isinstance(asked, list) else ()))


def result_row(step: StepView, width: int, verdict: str = "") -> Row:
    """The result of a step in one line, for a run that waits before the next one."""
    took = f" {short(step.duration_s)}" if step.duration_s is not None else ""
    tone = VERDICT_TONE.get(verdict) or tone_of(step)
    words = f" {clean(step.detail)}" if step.detail else ""
    state = outcome(step.state, verdict, warned=step.warned)
    parts: Row = (
        (f"{glyphs().step(standing(step.state, verdict, warned=step.warned))} ", tone),
        (clean(step.id), "bold"),
        (f" {state}{took}", "dim"), (words, ""),
    )  # fmt: skip
    return fit(parts, width, glyphs().ellipsis)


def _verdict_rows(view: RunView, step_id: str, width: int) -> list[Row]:
    """The verdict of one step's gate; of every gate for ""."""
    rows: list[Row] = []
    for verdict in view.verdicts:
        if step_id and verdict.step != step_id:
            continue
        named = f"  {clean(verdict.outcome)}" if verdict.outcome else ""
        tone = VERDICT_TONE.get(verdict.verdict, "")
        rows.append((("GATE ", "bold"), (verdict.verdict, tone), (named, "bold")))
        for row in verdict.criteria:
            word = row.get("verdict", "")
            lead = (f"{word:>6} ", VERDICT_TONE.get(word, ""))
            rows += behind((lead,), clean(row.get("why", "")), width)
        if verdict.overridden:
            rows += paragraph(f"overridden by {clean(verdict.overridden)}", width, "warn")
    return rows


def _evidence_rows(view: RunView, width: int) -> list[Row]:
    """What was measured so far, beside the baseline: the evidence for an approval."""
    rows: list[Row] = []
    for scope, metrics in view.metrics.items():
        if "." in scope:
            continue
        before = view.metrics.get(f"{scope}.baseline", {})
        for name in EVIDENCE:
            figures, base = metrics.get(name, {}), before.get(name, {})
            if figures.get("value") is None:
                continue
            words = format_number(figures["value"], figures.get("unit", ""))
            if base.get("value") is not None:
                words += f"   baseline {format_number(base['value'], base.get('unit', ''))}"
            label = f"{clean(scope)}.{name}"
            rows.append(fit(((f"{label:<18} ", "dim"), (words, "")), width))
    return rows


def _metric_rows(view: RunView, step: StepView, width: int) -> list[Row]:
    rows: list[Row] = []
    for name, figures in view.metrics.get(step.id, {}).items():
        value = figures.get("value")
        if value is None:
            continue
        figure = format_number(value, figures.get("unit", ""))
        rows.append(fit(((f"{clean(name):<18} ", "dim"), (figure, "")), width))
    return rows


def progress_words(view: RunView) -> str:
    """`4/12 steps`, the plan's own rows included."""
    done = sum(s.state not in (StepState.PENDING, StepState.RUNNING) for s in view.steps)
    return f"{done}/{len(view.steps)} steps"


class OfStep(Message):
    """What the operator wants of the step with this id."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = step


class StepList(RowsView):
    """The steps of a run, one row each; the cursor follows the run until somebody moves it. `j`/`k`
    move to another step; no key here starts or approves anything."""

    BINDINGS = [*moving(8), Binding("enter", "output", "Output", show=False)]

    class Selected(OfStep):
        """The operator looks at a step; `step` is its id, "" to follow the run."""

    class OutputAsked(OfStep):
        """The operator wants to read a step's output."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = RunView()
        self.chosen = ""
        self.at = ""
        self._index: list[int] = []

    def draw(self, view: RunView, now: float, at: str = "") -> None:
        """The steps as they stand; `now` in Unix seconds, `at`: where a paused run stands."""
        self.at = at
        if view.run_id != self.view.run_id:
            self.chosen = ""
        self.view = view
        size = self.size
        rows, self._index = list_rows(view, size.width - 1 or 40, now, at, size.height, self.step)
        self.show(rows, self._row_of(self.step))

    @property
    def step(self) -> str:
        """The id of the step that is looked at."""
        if self.chosen and self.view.step(self.chosen) is not None:
            return self.chosen
        current = self.view.step(self.at) or self.view.current
        return current.id if current else (self.view.steps[0].id if self.view.steps else "")

    def _row_of(self, step_id: str) -> int | None:
        for row, number in enumerate(self._index):
            if number >= 0 and self.view.steps[number].id == step_id:
                return row
        return None

    def action_move(self, by: int) -> None:
        if not self.view.steps:
            return
        ids = [step.id for step in self.view.steps]
        at = ids.index(self.step) if self.step in ids else 0
        self.chosen = ids[max(0, min(len(ids) - 1, at + by))]
        self.post_message(self.Selected(self.chosen))

    def action_output(self) -> None:
        if self.step:
            self.post_message(self.OutputAsked(self.step))

    def follow(self) -> bool:
        """Look at the current step again; whether that changed anything."""
        had, self.chosen = self.chosen, ""
        return bool(had)
