"""What the guard stopped: why, the curve before it, what was killed, what came after, what next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from console.journal.guard_status import ACTED, LOOKING, NOBODY, GuardView
from console.render.cells import glyphs
from console.render.guard import acted, line
from console.render.text_chart import LABEL, Curve, chart
from screens.base import Page
from widgets.bars import BaselineBadge, KeyLine
from widgets.lists import TextView
from widgets.rows import Row, Rows, fit, spread
from widgets.step_text import wrapped

if TYPE_CHECKING:
    from console.journal.run_dir import RunDir
    from console.render.breach import BreachPage, Found

AGAIN_S = 2.0
LOW, HIGH = 5, 10
"""Rows of a curve, on a low screen and on a high one."""


class BreachScreen(Page):
    """The run it was opened for; read anew while it is open, for memory and baseline come back
    while it is looked at. Of another run that is on show meanwhile the head tells its guard; once
    that one acts, the page is that run's."""

    SCOPE = "breach"
    DEFAULT_CSS = """
    BreachScreen #head { background: $panel; }
    BreachScreen TextView { padding: 0 1; }
    """

    def __init__(self, run: RunDir | None) -> None:
        super().__init__()
        self.run_dir = run
        self.found: Found | None = None
        self.loaded = self.reading = False

    def compose(self) -> ComposeResult:
        yield BaselineBadge()
        yield Rows(id="head")
        yield TextView(id="breach")
        yield KeyLine()

    def stand(self) -> None:
        self.set_focus(self.query_one(TextView))
        self.console.sampled.subscribe(self, lambda sample: self._draw_head())
        self._draw()
        self._look()
        self.set_interval(AGAIN_S, self._look)

    def _look(self) -> None:
        self._follow()
        if not self.reading and self.run_dir is not None:
            self.reading = True
            self.in_thread(self._read)
        elif self.run_dir is None:
            self._loaded(None)

    def _follow(self) -> None:
        """A page without a breach, and one whose successor on show has one, goes on to that."""
        other, shown = self._other(), self.found
        if other is not None and (other.word == ACTED or (shown is not None and not shown.breach)):
            self.run_dir, self.found, self.loaded = other.run, None, False

    def _other(self) -> GuardView | None:
        """The guard of the run on show, where that is another than this page's."""
        snapshot = self.console.snapshot
        run = snapshot.run if snapshot is not None else None
        if run is None or (self.run_dir is not None and run.path == self.run_dir.path):
            return None
        view: GuardView = self.console.watchers.guard.latest
        same = view.run is not None and view.run.path == run.path
        return view if same else GuardView(run, LOOKING)

    def _read(self) -> None:
        from console.render.breach import read

        run = self.run_dir
        try:
            found = read(run) if run is not None else None
        finally:
            self.reading = False
        self.on_loop(self._loaded, found)

    def _loaded(self, found: Found | None) -> None:
        if found is not None and found.run is not self.run_dir:
            return  # it was read before another run took the page
        self.found, self.loaded = found, True
        self._draw()

    def redraw(self) -> None:
        self._draw()

    @property
    def view(self) -> GuardView:
        """The guard of this run, as the watcher knows it."""
        view: GuardView = self.console.watchers.guard.latest
        if self.run_dir is None:
            return NOBODY
        same = view.run is not None and view.run.path == self.run_dir.path
        return view if same else GuardView(self.run_dir, LOOKING)

    def _draw_head(self) -> None:
        if self.stands:
            head = self.query_one("#head", Rows)
            width = head.size.width or self.app.size.width
            head.show([*self._now(width), self._head(width)])

    def _now(self, width: int) -> list[Row]:
        """That another run is on show, what its guard says and how to see it."""
        other = self._other()
        if other is None or other.run is None:
            return []
        lead: Row = ((f"on show now is {other.run.id[-4:]}: ", "bold"),)
        left = (*lead, *line(other, time.monotonic(), key=""))
        return [spread(left, (("Esc, then b", "dim"),), width)]

    def _head(self, width: int) -> Row:
        if self.found is None or not self.found.breach:
            return line(self.view, time.monotonic(), width)
        from console.render.breach import title

        return fit(tuple(acted(self.found.breach, title(self.found))), width)

    def _draw(self) -> None:
        view = self.query_one(TextView)
        if not view.size.width:
            return  # it is drawn when its size is known
        self._draw_head()
        if not self.loaded:
            view.show([(("reading the recording …", "dim"),)])
            return
        from console.render.breach import page

        width = max(30, view.size.width - 3)
        view.show(page_rows(page(self.found, self.view), width, self.app.size.height))


def page_rows(page: BreachPage, width: int, height: int) -> list[Row]:
    """The page in `width` cells; `height` is the screen's, for how high a curve may be."""
    rows = _paragraphs(page.above, width)
    high = HIGH if height >= 36 else LOW
    first, *others = (_curve_rows(page, curve, width, high) for curve in page.curves or (None,))
    rows += [*first, *([()] if page.below else []), *_paragraphs(page.below, width)]
    return [*rows, *(row for other in others for row in other)]


def _curve_rows(page: BreachPage, curve: Curve | None, width: int, high: int) -> list[Row]:
    if curve is None:
        return []
    head: Row = ((curve.name, "bold"), (f"  {page.end - page.begin:.0f} s", "dim"))
    rows = [(), head, *chart(curve, page.begin, page.end, width, high, glyphs(), page.moment)]
    begin, end = page.spans
    if begin:
        rows.append(spread(((" " * LABEL + begin, "dim"),), ((end, "dim"),), width))
    return rows


def _paragraphs(words: tuple[tuple[str, str], ...], width: int) -> list[Row]:
    return [((text, tone),) for words_, tone in words for text in wrapped(words_, width, "  ")]
