"""The machine on the main screen: framed panels where there is room, else plain rows."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable

from textual.events import Resize
from textual.geometry import Size
from textual.reactive import var
from textual.strip import Strip

from console.common.text import clean
from console.host.sample import NO_MARKS, History, Marks, Sample
from console.render.cells import glyphs
from console.render.gauges import all_rows
from console.render.panels import beside, machine_panels
from widgets.rows import Row, Rows

PLAIN_BELOW = 30
"""Rows of a window below which there is no room for frames."""
INSIDE = ((50, 6), (38, 4), (PLAIN_BELOW, 3))
"""From how many rows of a window on, and how many rows a panel then has inside."""
NAME = 20
"""Cells for a machine's name."""
ROOMY = 2
"""How many times as many it has while there is no run to show."""


def logged_in_to() -> Row:
    """This machine's name, for an operator who is logged in from another one; else nothing."""
    if "SSH_CONNECTION" not in os.environ:
        return ()
    return ((f"{clean(platform.node(), NAME).partition('.')[0]} ", "accent"),)


def gauge_rows(
    sample: Sample | None, now: float, width: int, history: History, max_rows: int = 0,
    marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """Every gauge in `width` cells and at most `max_rows` rows (0: no limit); `now` in monotonic
    seconds. Before the first sample: one row that says so."""
    if sample is None:
        return [(("sampling ", "dim"), (glyphs().ellipsis, "dim"))]
    return all_rows(sample, width, now, glyphs(), history, max_rows, marks)


class MachinePanels(Rows):
    """Cards, memory and disks. Its height depends on the window, the number of cards and disks, and
    not on any figure."""

    window = var(0, init=False)
    """Rows of the window; 0 until it is known."""
    roomy = var(False, init=False)
    """Whether there is no run, which would need the room."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sample: Sample | None = None
        self._now = 0.0
        self._marks = NO_MARKS
        self._history = History()
        self._guard: Callable[[int], Row] = lambda width: ()

    def draw(
        self, sample: Sample, now: float, history: History, marks: Marks = NO_MARKS,
        guard: Callable[[int], Row] = lambda width: (),
    ) -> None:  # fmt: skip
        """Draw this sample; ages are relative to `now` (monotonic seconds). Call it at each tick,
        even with an old sample, because its age is shown. `marks`: where a guard acts; `guard`:
        what it says, in so many cells."""
        self._sample, self._now, self._marks = sample, now, marks
        self._history, self._guard = history, guard
        self.watch_window()

    def watch_roomy(self) -> None:
        self.watch_window()

    def watch_window(self) -> None:
        if self.is_mounted and self.size.width:
            self.show(self.rows(self.size.width))

    @property
    def says_guard(self) -> bool:
        """Whether a panel has the guard's words."""
        return bool(self._panels(self.size.width, apart=True))

    def rows(self, width: int) -> list[Row]:
        """What it draws at this width."""
        framed = self._panels(width, apart=True) or self._panels(width, apart=False)
        if framed:
            return framed
        most = 0 if not self.window else 2 if self.window < 24 else 5
        return gauge_rows(self._sample, self._now, width, self._history, most, self._marks)

    def _panels(self, width: int, *, apart: bool) -> list[Row]:
        if self._sample is None or self.window < PLAIN_BELOW:
            return []
        inside = next(rows for least, rows in INSIDE if self.window >= least)
        panels = machine_panels(
            self._sample, self._history, self._now, glyphs(), self._marks, self._guard, apart=apart
        )
        most = (self.window - 16) // 3
        if self.roomy and (higher := beside(panels, width, inside * ROOMY, most)):
            return higher
        return beside(panels, width, inside, most)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width))

    def render_line(self, y: int) -> Strip:
        return super().render_line(y).simplify()  # neighbours of one style are sent as one

    def on_resize(self, event: Resize) -> None:
        self._rows = tuple(self.rows(event.size.width))
        self.refresh()
