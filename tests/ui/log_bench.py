"""A log pane alone in an app, and what an operator does and sees there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from unittest.mock import patch

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Footer

from console.common.logs.line import log_line
from tests.ui.opened import settled
from widgets.log_bars import Words
from widgets.log_pane import LogPane


class Bench(App[None]):
    """A pane and nothing else, with keys of its own that the pane must keep to itself."""

    BINDINGS = [Binding("n,N,e,f,g,G,w", "spoilt", "Spoilt"), Binding("escape", "back", "Back")]

    def __init__(self) -> None:
        super().__init__()
        self.pane = LogPane()
        self.steps: list[int] = []
        self.spoilt = self.backs = 0

    def compose(self) -> ComposeResult:
        yield self.pane
        yield Footer()

    def on_mount(self) -> None:
        self.pane.attach("api", "no output yet")
        self.pane.focus()

    def on_log_pane_source_asked(self, event: LogPane.SourceAsked) -> None:
        self.steps.append(event.step)

    def action_spoilt(self) -> None:
        self.spoilt += 1

    def action_back(self) -> None:
        self.backs += 1


class Hand:
    """What an operator does and sees."""

    def __init__(self, app: Bench, pilot: Pilot[None]) -> None:
        self.app = app
        self.pane = app.pane
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Keys, and what they set going is done: a search goes on in slices of time."""
        await self.pilot.press(*keys)
        if self.busy:
            await self.until(lambda: not self.busy)

    @property
    def busy(self) -> bool:
        return self.pane._timer is not None or self.pane._planned

    async def type(self, key: str, words: str) -> None:
        await self.pilot.press(key)
        self.app.query_one(Words).value = words
        await self.press("enter")

    async def until(self, true: Callable[[], object]) -> None:
        await settled(self.pilot, true)

    async def resize(self, width: int, height: int) -> None:
        """Another size of the terminal, drawn."""
        await self.pilot.resize_terminal(width, height)
        await self.until(lambda: self.widths == {width})

    @property
    def widths(self) -> set[int]:
        """The widths of all rows of the screen."""
        return {strip.cell_length for strip in self.app.screen._compositor.render_strips()}

    async def take(self, *texts: str) -> None:
        """Lines, painted."""
        self.pane.take([log_line(text) for text in texts])
        await self.until(lambda: not self.busy)

    def rows(self, first: int, last: int) -> list[str]:
        """The rows of the screen as text."""
        strips = self.app.screen._compositor.render_strips()
        return [strip.text for strip in strips][first:last]

    @property
    def title(self) -> str:
        return self.rows(0, 1)[0].rstrip()

    @property
    def body(self) -> list[str]:
        return [row.rstrip() for row in self.rows(1, 1 + self.pane.view.size.height)]

    @property
    def shown(self) -> list[str]:
        """The body without gutter and blank rows."""
        return [row[2:] for row in self.body if row]


@asynccontextmanager
async def bench(
    width: int = 60, height: int = 12, *, paint_s: float = 0.0, notice_s: float = 3600.0
) -> AsyncIterator[Hand]:
    """A pane that paints at once and whose words in the title stay until they are read."""
    app = Bench()
    with (
        patch("widgets.log_pane.PAINT_S", paint_s), patch("widgets.log_pane._NOTICE_S", notice_s)
    ):  # fmt: skip
        async with app.run_test(size=(width, height)) as pilot:
            await pilot.pause()
            yield Hand(app, pilot)


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last)]
