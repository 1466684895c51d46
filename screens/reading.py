"""One text to read on a page of its own, laid out for the width there is."""

from __future__ import annotations

from textual.app import ComposeResult

from screens.page import Page
from widgets.badge import BaselineBadge
from widgets.options import KeyLine
from widgets.pick_list import TextView
from widgets.rows import Row

LEAST = 20
"""Columns; narrower is not laid out for."""


class ReadingPage(Page):
    """`rows` gives the text; it is asked again when the width changes."""

    DEFAULT_CSS = "ReadingPage TextView { padding: 0 1; }"

    def rows(self, width: int) -> list[Row]:
        """The text in lines of at most `width` columns."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield TextView(id="text")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self.redraw()

    def redraw(self) -> None:
        view = self.query_one(TextView)
        if view.size.width:  # else it is drawn when its size is known
            view.show(self.rows(max(LEAST, view.size.width - 3)))
