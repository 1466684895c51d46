"""The reader's place in a log: at its end, or at a line that stays put while others come."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from console.common.logs.buffer import LogBuffer
from console.common.logs.line import LogLine

Rows = Callable[[LogLine], int]
"""How many rows of the screen a line takes; at least one."""


class Row(NamedTuple):
    """One row of the page: the line's number, the line, and the part of it in this row."""

    number: int
    line: LogLine
    part: int


class Place:
    """The top of the page. It follows the end until it is moved, and then stays at its line."""

    def __init__(self, buffer: LogBuffer) -> None:
        self.buffer = buffer
        self.follow = True
        self.height = 1
        self.rows: Rows = lambda line: 1
        self._top = (0, 0)
        self._since = 0
        self._filtered = False
        self.page: list[Row] = []
        """The rows shown, as `turn` found them; fewer than `height` in a short log."""

    def reset(self) -> None:
        """To the end of another log."""
        self.follow = True
        self._top = (0, 0)
        self.page = []

    @property
    def new(self) -> int:
        """Visible lines that came since the reader stopped following."""
        if self.follow:
            return 0
        if self.buffer.filter is None:
            return self.buffer.end - self._since
        return self.buffer.visible - self.buffer.index(self._since)

    @property
    def gone(self) -> bool:
        """Whether the page shows lines that the log no longer keeps."""
        return bool(self.page) and not self.follow and self.page[0].number < self.buffer.first

    def turn(self) -> list[Row]:
        if self.follow:
            self._top = self._last()
        elif self.gone and self._top == (self.page[0].number, self.page[0].part):
            # What is being read stays, even when the log has dropped it.
            self.page = self.page[: self.height]
            return self.page
        self.page = self._fill(*self._visible(self._top))
        if self._filtered and not self.follow and len(self.page) < self.height:
            # Few lines are left below: show those above too.
            self.page = self._fill(*self._visible(min(self._top, self._last())))
        if self.buffer.settled:
            self._filtered = False
            if self.page:
                self._top = (self.page[0].number, self.page[0].part)
        return self.page

    def _visible(self, row: tuple[int, int]) -> tuple[int, int]:
        """(index among the visible lines, part) of a row; if its line is not visible, of the first
        row of the next visible line."""
        number, part = row
        at = self.buffer.index(number)
        there = at < self.buffer.visible and self.buffer.number(at) == number
        return at, part if there else 0

    def _fill(self, at: int, part: int) -> list[Row]:
        page: list[Row] = []
        while at < self.buffer.visible and len(page) < self.height:
            number = self.buffer.number(at)
            line = self.buffer.line(number)
            rows = self.rows(line)
            room = self.height - len(page)
            first = min(part, rows - 1)
            page += [Row(number, line, row) for row in range(first, min(rows, first + room))]
            at, part = at + 1, 0
        return page

    def _last(self) -> tuple[int, int]:
        """The top of the last full page."""
        return self._back(self.buffer.visible, 0, self.height)

    def _back(self, at: int, part: int, rows: int) -> tuple[int, int]:
        """The row this many rows above a row of a visible line; at most the very top."""
        rows -= part
        while rows > 0 and at > 0:
            at -= 1
            rows -= self.rows(self.buffer.line(self.buffer.number(at)))
        if at >= self.buffer.visible:
            return (0, 0)
        return (self.buffer.number(at), max(0, -rows))

    def move(self, by: int) -> None:
        """Move down this many rows (negative: up), never past the last page. Stops following."""
        self.stop()
        at, part = self._visible(self._top)
        if by < 0:
            self._top = self._back(at, part, -by)
            return
        while at < self.buffer.visible:
            rows = self.rows(self.buffer.line(self.buffer.number(at)))
            if part + by < rows:
                break
            by -= rows - part
            at, part = at + 1, 0
        there = (self.buffer.number(at), part + by) if at < self.buffer.visible else self._last()
        self._top = min(there, self._last())

    def stop(self) -> None:
        """Stop following; the page stays as it is."""
        if self.follow:
            page = self.page
            self._top = (page[0].number, page[0].part) if page else self._last()
            self._since = page[-1].number + 1 if page else self.buffer.end
            self.follow = False

    def anew(self) -> None:
        """The set of visible lines has changed: stay at the same line, or the next one left."""
        self.page = []
        self._filtered = True

    def to_top(self) -> None:
        """To the oldest line kept."""
        self.stop()
        self._top = (self.buffer.first, 0)

    def to_end(self) -> None:
        """To the newest line, and follow."""
        self.follow = True

    def bring(self, number: int) -> None:
        """Bring a visible line onto the page, a third down unless it is there already."""
        self.stop()
        if any(row.number == number and row.part == 0 for row in self.page):
            return
        at = self.buffer.index(number)
        self._top = min(self._back(at, 0, self.height // 3), self._last())

    def seek_from(self, here: int | None, step: int) -> int:
        """The number from which a search goes on: `here` if on the page, else the page's edge."""
        if not self.page or (self.follow and step < 0):
            return self.buffer.end
        if here is not None and any(row.number == here for row in self.page):
            return here
        return self.page[0].number - (step > 0)

    def nearest_match(self, here: int | None) -> int | None:
        """The newest match when following; else the first from here on, or the last before."""
        if self.follow:
            return self.buffer.match(self.buffer.end, -1)
        start = self.seek_from(here, 1)
        line_number = self.buffer.match(start, 1)
        if line_number is not None and line_number <= start:
            return self.buffer.match(start + 1, -1)
        return line_number
