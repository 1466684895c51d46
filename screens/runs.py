"""The runs: a list of all, and marked ones side by side."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.common.progress import clock
from console.common.text import clean
from console.journal.run_dir import RunDir
from console.journal.state import Decision
from console.render.cells import glyphs
from console.render.facts.words import RUN_TONE, VERDICT_TONE, state_words
from screens.base import Page, ReadingPage
from widgets.bars import bindings
from widgets.rows import PickList, Row, Rows, fit

if TYPE_CHECKING:
    from console.frontends.tui.watch.history import RunRow
    from console.render.report.compare import Comparison


REFRESH_S = 2.0

STATE, DECISION, TOOK, ID = 16, 6, 6, 4
"""Cells of the columns after a run's playbook, separated by a blank."""


class CompareScreen(ReadingPage):
    """Marked runs side by side: what differs, what was measured, what went wrong. A table of
    attempts, or one block each if it is too wide."""

    SCOPE = "compare"

    def __init__(self, ids: Iterable[str]) -> None:
        super().__init__()
        self.ids = frozenset(ids)
        self.made: Comparison | None = None
        self.broken: list[str] = []

    def stand(self) -> None:
        self.in_thread(self._read)

    def _read(self) -> None:
        from console.frontends.tui.watch.history import side_by_side

        self.on_loop(self._show, *side_by_side(self.ids))

    def _show(self, made: Comparison, broken: list[str]) -> None:
        self.made, self.broken = made, broken
        self.redraw()

    def head(self, width: int) -> list[Row]:
        if self.made is None:
            return [(("reading the runs …", "dim"),)]
        names = " ".join(attempt.short for attempt in self.made.attempts)
        tail = f"   omni-console report {names} prints this"
        return [((f"{len(self.made.attempts)} attempts", "bold"), (clean(tail), "dim"))]

    def rows(self, width: int) -> list[Row]:
        return compare_rows(self.made, self.broken, width) if self.made is not None else []


def compare_rows(made: Comparison, broken: Iterable[str], width: int) -> list[Row]:
    """Heads bold; runs that could not be read at the end."""
    from console.render.report.compare import lines

    heads = ("run ", *(attempt.short for attempt in made.attempts))
    rows: list[Row] = [
        ((line, "bold" if line.startswith(heads) else ""),) for line in lines(made, width)
    ]
    return [*rows, *(((clean(words), "bad"),) for words in broken)]


class RunsScreen(Page):
    """The history: live runs first, then the newest. Enter shows one, marked ones are compared."""

    SCOPE = "runs"
    BINDINGS = bindings("runs")

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[RunRow] = []
        self.loaded = False
        self.reading = False
        self.marked: set[str] = set()

    def body(self) -> ComposeResult:
        yield PickList(id="list")

    def stand(self) -> None:
        self._refresh_rows()
        self.set_interval(REFRESH_S, self._refresh_rows)

    def _refresh_rows(self) -> None:
        if not self.reading:
            self.reading = True
            self.in_thread(self._load)

    def _load(self) -> None:
        from console.frontends.tui.watch.history import rows

        try:
            run_rows = rows()
        finally:
            self.reading = False
        self.on_loop(self._loaded, run_rows)

    def _loaded(self, run_rows: list[RunRow]) -> None:
        picker = self.query_one(PickList)
        at = picker.cursor or 0
        chosen = self.rows[at].id if at < len(self.rows) else ""
        self.rows, self.loaded = run_rows, True
        self.marked &= {row.id for row in run_rows}
        # a new run on top must not move the cursor to another one
        picker.cursor = next((n for n, row in enumerate(run_rows) if row.id == chosen), 0)
        self.redraw()

    def redraw(self) -> None:
        head = self.query_one("#head", Rows)
        if not self.loaded:
            head.show([(("reading the runs …", "dim"),)])
        elif not self.rows:
            head.show([(("No run yet.", "bold"), ("  2 picks a playbook", ""))])
        else:
            count = f"{len(self.rows)} run{'s' if len(self.rows) != 1 else ''}"
            words = "   Enter shows one, Space marks it to be compared"
            if self.marked:
                words = f"   {len(self.marked)} marked, c compares them"
            head.show([((count, "bold"), (words, "dim"))])
        picker = self.query_one(PickList)
        width = max(20, picker.size.width - 1)
        picker.fill([run_row(row, width, marked=row.id in self.marked) for row in self.rows])

    def action_mark(self) -> None:
        """Mark or unmark the run under the cursor; the cursor moves to the next."""
        picker = self.query_one(PickList)
        if picker.cursor is None or picker.cursor >= len(self.rows):
            return
        row = self.rows[picker.cursor]
        if row.problem:
            self.console.say(f"this run cannot be read: {row.problem}")
            return
        self.marked ^= {row.id}
        self.redraw()
        picker.action_move(1)

    def action_compare(self) -> None:
        if len(self.marked) < 2:
            self.console.say("mark two runs or more with Space, then compare them")
            return
        self.app.push_screen(CompareScreen(self.marked))

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        if event.index < len(self.rows):
            run = RunDir(self.rows[event.index].path)
            self.console.watchers.watch.show(run)
            self.console.action_operations()


def run_row(row: RunRow, width: int, *, marked: bool) -> Row:
    """`* 2026-11-20 14:03  ik-llama-phase2  SUCCEEDED  GO   12:05   1a2b`."""
    mark = f"{glyphs().dot} " if marked else "  "
    width -= len(mark)
    form = "%Y-%m-%d %H:%M" if width >= 76 else "%m-%d %H:%M"
    when = time.strftime(form, time.localtime(row.created)) if row.created else "?" * 11
    decision = Decision(row.decision).word
    state = state_words(row.state).upper()
    took = clock(row.took_s) if row.took_s is not None else ""
    note = f" {row.mark}" if row.mark else ""
    rest = sum(column_width + 1 for column_width in (len(when), STATE, DECISION, TOOK, ID))
    room = max(8, max(8, width - rest) - len(note))
    playbook = clean(row.playbook or row.problem, 200)[:room]
    return fit(
        (
            (mark, "accent"), (f"{when} ", "dim"), (f"{playbook:<{room}}", "bold"),
            (f"{note} ", "warn"),
            (f"{state:<{STATE}} ", RUN_TONE.get(row.state, "")),
            (f"{decision:<{DECISION}} ", VERDICT_TONE.get(decision, "")),
            (f"{took:>{TOOK}} ", ""), (clean(row.id[-ID:]), "dim"),
        ),
        width + len(mark),
    )  # fmt: skip
