"""The steps of a run: one row each, a cursor that follows the run until somebody moves it."""

from __future__ import annotations

from textual.binding import Binding
from textual.message import Message

from console.journal.run_view import RunView
from widgets.rows import RowsView
from widgets.step_text import list_rows


class StepList(RowsView):
    """`j`/`k` look at another step, `home`… nothing here starts or approves anything."""

    BINDINGS = [
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("pagedown,ctrl+d", "move(8)", "Page down", show=False),
        Binding("pageup,ctrl+u", "move(-8)", "Page up", show=False),
        Binding("g,home", "move(-9999)", "First", show=False),
        Binding("G,end", "move(9999)", "Last", show=False),
        Binding("enter", "output", "Output", show=False),
    ]

    class Selected(Message):
        """The operator looks at a step; `step` is its id, "" to follow the run."""

        def __init__(self, step: str) -> None:
            super().__init__()
            self.step = step

    class OutputAsked(Message):
        """The operator wants to read a step's output."""

        def __init__(self, step: str) -> None:
            super().__init__()
            self.step = step

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
        rows, self._index = list_rows(view, self.size.width - 1 or 40, now, at)
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
