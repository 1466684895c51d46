"""Lists with a cursor (the steps of a run, rows to pick from), and text to read."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding
from textual.message import Message

from console.journal.run_view import RunView
from widgets.rows import Row, RowsView
from widgets.step_text import list_rows


class StepList(RowsView):
    """The steps of a run, one row each; the cursor follows the run until somebody moves it. `j`/`k`
    look at another step, `home`… nothing here starts or approves anything."""

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


class PickList(RowsView):
    """Rows with a cursor; what a row means is the screen's business."""

    BINDINGS = [
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("pagedown,ctrl+d", "move(10)", "Page down", show=False),
        Binding("pageup,ctrl+u", "move(-10)", "Page up", show=False),
        Binding("g,home", "move(-99999)", "First", show=False),
        Binding("G,end", "move(99999)", "Last", show=False),
        Binding("enter", "pick", "Pick", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another row."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class Picked(Message):
        """Enter was pressed on a row."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.count = 0

    def fill(self, rows: Sequence[Row]) -> None:
        """Other rows; the cursor stays where it is, as far as there are rows."""
        self.count = len(rows)
        at = min(self.cursor or 0, self.count - 1) if rows else None
        self.show(rows, at)

    def action_move(self, by: int) -> None:
        if not self.count:
            return
        at = max(0, min(self.count - 1, (self.cursor or 0) + by))
        if at != self.cursor:
            self.show(self._rows, at)
            self.post_message(self.Moved(at))

    def action_pick(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Picked(self.cursor))


class TextView(RowsView):
    """Text to read: scrolled by the usual keys."""

    BINDINGS = [
        Binding("j,down", "scroll_down", "Down", show=False),
        Binding("k,up", "scroll_up", "Up", show=False),
        Binding("pagedown,space,ctrl+d", "page_down", "Page down", show=False),
        Binding("pageup,ctrl+u", "page_up", "Page up", show=False),
        Binding("g,home", "scroll_home", "Top", show=False),
        Binding("G,end", "scroll_end", "End", show=False),
    ]
