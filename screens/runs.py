"""Every run, newest first; Enter shows one, marked ones are compared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.common import paths
from console.common.text import clean
from console.render.glyph import glyphs
from screens.page import Page
from widgets.badge import BaselineBadge
from widgets.keys import bindings
from widgets.options import KeyLine
from widgets.pick_list import PickList
from widgets.rows import Row, Rows, fit
from widgets.status_line import DECISION_TONE, STATE_TONE
from widgets.step_text import short

if TYPE_CHECKING:
    from console.frontends.tui.watch.history import RunRow

REFRESH_S = 2.0


class RunsScreen(Page):
    """The history; a live run stands first."""

    SCOPE = "runs"
    BINDINGS = bindings("runs")
    DEFAULT_CSS = "RunsScreen #head { background: $panel; }"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[RunRow] = []
        self.loaded = False
        self.reading = False
        self.marked: set[str] = set()

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield Rows(id="head")
        yield PickList(id="list")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(PickList))
        self._draw()
        self._refresh_rows()
        self.set_interval(REFRESH_S, self._refresh_rows)

    def redraw(self) -> None:
        self._draw()

    def _refresh_rows(self) -> None:
        if not self.reading:
            self.reading = True
            self.in_thread(self._load)

    def _load(self) -> None:
        from console.frontends.tui.watch.history import rows

        try:
            found = rows()
        finally:
            self.reading = False
        self.on_loop(self._loaded, found)

    def _loaded(self, found: list[RunRow]) -> None:
        picker = self.query_one(PickList)
        at = picker.cursor or 0
        chosen = self.rows[at].id if at < len(self.rows) else ""
        self.rows, self.loaded = found, True
        self.marked &= {row.id for row in found}
        # a new run on top must not move the cursor to another one
        picker.cursor = next((n for n, row in enumerate(found) if row.id == chosen), 0)
        self._draw()

    def _draw(self) -> None:
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
        """Mark the run under the cursor, or take its mark away; the cursor goes on to the next."""
        picker = self.query_one(PickList)
        if picker.cursor is None or picker.cursor >= len(self.rows):
            return
        row = self.rows[picker.cursor]
        if row.problem:
            self.console.say(f"this run cannot be read: {row.problem}")
            return
        self.marked ^= {row.id}
        self._draw()
        picker.action_move(1)

    def action_compare(self) -> None:
        from screens.compare import CompareScreen

        if len(self.marked) < 2:
            self.console.say("mark two runs or more with Space, then compare them")
            return
        self.app.push_screen(CompareScreen(self.marked))

    def on_pick_list_picked(self, event: PickList.Picked) -> None:
        from console.journal.run_dir import RunDir

        if event.index < len(self.rows):
            run = RunDir(paths.runs_dir() / self.rows[event.index].id)
            self.console.desk.watch.show(run)
            self.console.action_operations()


def run_row(row: RunRow, width: int, *, marked: bool = False) -> Row:
    """`* 2026-11-20 14:03  ik-llama-phase2  SUCCEEDED  GO migrate   12:05   1a2b`."""
    mark = f"{glyphs().dot} " if marked else "  "
    width -= len(mark)
    form = "%Y-%m-%d %H:%M" if width >= 76 else "%m-%d %H:%M"
    when = time.strftime(form, time.localtime(row.created)) if row.created else "?" * 11
    decision = (row.decision or "").upper().replace("_", "-")
    state = row.state.replace("_", " ").upper()
    took = short(row.took_s) if row.took_s is not None else ""
    name = max(8, width - len(when) - 1 - 17 - 7 - 7 - 4 - 1)
    note = f" {row.mark}" if row.mark else ""
    room = max(8, name - len(note))
    playbook = clean(row.playbook or row.problem, 200)[:room]
    return fit(
        (
            (mark, "accent"), (f"{when} ", "dim"), (f"{playbook:<{room}}", "bold"),
            (f"{note} ", "warn"),
            (f"{state:<16} ", STATE_TONE.get(row.state, "")),
            (f"{decision:<6} ", DECISION_TONE.get(row.decision or "", "")),
            (f"{took:>6} ", ""), (clean(row.id[-4:]), "dim"),
        ),
        width + len(mark),
    )  # fmt: skip
