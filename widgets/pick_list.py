"""A list to pick from: rows, a cursor, `/` nothing, Enter picks."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding
from textual.message import Message

from widgets.rows import Row, RowsView


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
