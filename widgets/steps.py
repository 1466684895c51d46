"""The list of a run's steps, and the forms of text that every panel uses. Clean text in, parts
out."""

from __future__ import annotations

import textwrap
import time

from textual.binding import Binding
from textual.message import Message

from console.common.progress import clock
from console.common.text import clean
from console.journal.run_view import RunView, StepView
from console.journal.state import RunState, StepState
from console.render.cells import glyphs
from console.render.facts.step import StepFacts, facts_of
from widgets.rows import Part, Row, RowsView, fit, moving, spread, width_of

LATE, MIN_LATE_S = 1.05, 2.0
"""A step that takes so many times what it usually does, and so much longer, is late."""


def elapsed(step: StepView, now: float) -> float | None:
    """Seconds this step has taken so far or in all; None before it began."""
    if step.state is StepState.RUNNING and step.started:
        return max(0.0, now - step.started)
    return step.duration_s


def times(step: StepView, now: float) -> str:
    """`actual/planned`, each only if known."""
    took = elapsed(step, now)
    actual = clock(took) if took is not None else ""
    return f"{actual or '-'}/{clock(step.takes_s)}" if step.takes_s else actual


def step_row(
    facts: StepFacts, width: int, now: float, *, down: bool = False, until: float = 0.0
) -> Row:
    """One line: sign, id (title if there is room), attempt, a gate's verdict, times at the right
    edge, or when a question expires, and a sign if the baseline is `down` for it. A gate that ran
    and said no has the sign of its verdict."""
    signs, step = glyphs(), facts.step
    again = f" #{step.attempt}" if step.attempt > 1 else ""
    left: list[Part] = [
        (f"{signs.step(facts.standing)} ", facts.tone),
        (clean(step.id) + again, _name_tone(step)),
    ]
    if facts.verdict:
        left.append((f" {facts.verdict}", facts.tone))
    if width >= 52 and step.title and step.title != step.id:
        left.append((f"  {clean(step.title)}", "dim"))
    over = _late(step, now)
    clock = f"until {time.strftime('%H:%M', time.localtime(until))}" if until else times(step, now)
    mark: Part = (f" {signs.down}" if down else "  ", "warn")
    right: Row = ((clock, "warn" if over and not until else "dim"), mark)
    return spread(tuple(left), right, width, signs.ellipsis)


def outage_steps(view: RunView) -> frozenset[str]:
    """The steps for which the baseline is down: from where it is stopped until it is back."""
    step_ids, down = [], False
    for step in view.steps:
        down = down or step.kind == "baseline:stop"
        if down:
            step_ids.append(step.id)
        if step.kind == "restore":
            down = False
    return frozenset(step_ids)


def _late(step: StepView, now: float) -> bool:
    took, usual = elapsed(step, now), step.takes_s or 0.0
    return took is not None and usual > 0 and took > max(usual * LATE, usual + MIN_LATE_S)


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
            facts = facts_of(view, step)
            asks = view.state is RunState.WAITING_APPROVAL and step.state is StepState.RUNNING
            until = view.until if asks else 0.0
            row = step_row(facts, width, now, down=step.id in down, until=until)
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
