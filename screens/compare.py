"""Marked runs side by side: what differs, what was measured, what went wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.common.text import clean
from screens.page import Page
from widgets.badge import BaselineBadge
from widgets.options import KeyLine
from widgets.pick_list import TextView
from widgets.rows import Row, Rows

if TYPE_CHECKING:
    from console.render.report.compare import Comparison


class CompareScreen(Page):
    """The table of attempts, or one block each where it is too wide."""

    SCOPE = "compare"
    DEFAULT_CSS = """
    CompareScreen #head { background: $panel; }
    CompareScreen TextView { padding: 0 1; }
    """

    def __init__(self, ids: Iterable[str]) -> None:
        super().__init__()
        self.ids = frozenset(ids)
        self.made: Comparison | None = None
        self.broken: list[str] = []

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield Rows(id="head")
        yield TextView(id="compare")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self._draw()
        self.in_thread(self._read)

    def redraw(self) -> None:
        self._draw()

    def _read(self) -> None:
        from console.frontends.tui.watch.history import side_by_side

        made, broken = side_by_side(self.ids)
        self.on_loop(self._show, made, broken)

    def _show(self, made: Comparison, broken: list[str]) -> None:
        self.made, self.broken = made, broken
        self._draw()

    def _draw(self) -> None:
        head, view = self.query_one("#head", Rows), self.query_one(TextView)
        if self.made is None:
            head.show([(("reading the runs …", "dim"),)])
            return
        names = " ".join(one.short for one in self.made.attempts)
        tail = f"   omni-console report {names} prints this"
        head.show([((f"{len(self.made.attempts)} attempts", "bold"), (clean(tail), "dim"))])
        if view.size.width:
            view.show(compare_rows(self.made, self.broken, max(20, view.size.width - 3)))


def compare_rows(made: Comparison, broken: Iterable[str], width: int) -> list[Row]:
    """Heads bold; runs that could not be read at the end."""
    from console.render.report.compare import lines

    heads = ("run ", *(one.short for one in made.attempts))
    rows: list[Row] = [
        ((line, "bold" if line.startswith(heads) else ""),) for line in lines(made, width)
    ]
    return [*rows, *(((clean(words), "bad"),) for words in broken)]
