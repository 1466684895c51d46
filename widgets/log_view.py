"""The body of the log pane: it draws the rows on show and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.common.logs.buffer import LogBuffer, TooSlow, at_most
from console.common.logs.line import Kind, LogLine
from console.common.logs.viewport import Place
from console.render.cells import glyphs

GUTTER = 2
"""Cells for the sign in front of a line."""
_CUT_FROM = 6
"""Characters kept per cell when a line is cut: combining marks take no cell, and there may be
some."""

_SIDEWAYS = 16
_LAID_OVER = ("log--match", "log--current")
_PARTS = ("log--error", "log--warning", "log--marker", "log--stamp", *_LAID_OVER)
_MATCH_CPU_S = 0.1


@dataclass(frozen=True, slots=True)
class Look:
    """How lines are drawn. `left`: cells scrolled to the side, if lines are not wrapped."""

    width: int
    wrap: bool
    stamps: bool
    left: int
    styles: Mapping[str, Style]
    """By the kind of a line; `stamp`, `match` and `current` for parts of one."""

    @property
    def room(self) -> int:
        """Cells for text; at least one."""
        return max(1, self.width - GUTTER)


def sign(kind: Kind) -> str:
    """The sign in the gutter, so that no kind is shown by colour alone."""
    return {"plain": " ", "error": "!", "warning": glyphs().dot, "marker": glyphs().arrow}[kind]


def row_count(line: LogLine, look: Look) -> int:
    """How many rows a line takes."""
    return len(_pieces(_prefix(line, look) + line.text, look.room)) if look.wrap else 1


def row(line: LogLine, part: int, look: Look, spans: list[tuple[int, int]], here: bool) -> Strip:
    """One row of a line: sign, time, text, matches; exactly as wide as the look says. `spans`:
    matches, in characters of the text. `here`: whether it is the current match or error."""
    prefix = _prefix(line, look)
    text = prefix + line.text
    start, shift = 0, look.left
    if look.wrap:
        pieces, shift = _pieces(text, look.room), 0
        if part >= len(pieces):
            return Strip.blank(look.width, look.styles["plain"])
        start = sum(len(piece) for piece in pieces[:part])
        end = start + len(pieces[part])
    elif text.isascii():
        start, shift = look.left, 0
        end = start + look.room
    else:
        end = (look.left + look.room) * _CUT_FROM
    style = look.styles[line.kind]
    marks = [(0, len(prefix), look.styles["stamp"])] if prefix else []
    shown = look.styles["current"] if here else look.styles["match"]
    marks += [(a + len(prefix), b + len(prefix), shown) for a, b in spans]
    body = Strip(_segments(text, start, min(end, len(text)), style, marks))
    more = not look.wrap and (end < len(text) or body.cell_length > shift + look.room)
    if shift or body.cell_length > look.room:
        body = body.crop(shift, shift + look.room)
    if more and look.room > 1:
        body = Strip([*body.crop(0, look.room - 1), Segment(glyphs().more, look.styles["stamp"])])
    gutter = Segment(f"{sign(line.kind) if part == 0 else ' '} ", shown if here else style)
    return Strip([gutter, *body]).adjust_cell_length(look.width, look.styles["plain"])


def note(words: str, look: Look) -> Strip:
    """A row with a message of the pane."""
    segment = Segment("  " + words, look.styles["stamp"])
    return Strip([segment]).adjust_cell_length(look.width, look.styles["plain"])


def _prefix(line: LogLine, look: Look) -> str:
    return f"{line.stamp} " if look.stamps and line.stamp else ""


def _segments(
    text: str, start: int, end: int, style: Style, marks: list[tuple[int, int, Style]]
) -> list[Segment]:
    """The characters from `start` to `end`; marks are in order and do not overlap."""
    segments = []
    for a, b, marked in marks:
        a, b = max(a, start), min(b, end)
        if b <= a:
            continue
        if a > start:
            segments.append(Segment(text[start:a], style))
        segments.append(Segment(text[a:b], style + marked))
        start = b
    if end > start:
        segments.append(Segment(text[start:end], style))
    return segments


@lru_cache(maxsize=1024)
def _pieces(text: str, room: int) -> tuple[str, ...]:
    """A text cut into rows; one empty row for an empty text."""
    if len(text) <= room and text.isascii():
        return (text,)
    if text.isascii():
        return tuple(text[at : at + room] for at in range(0, len(text), room))
    # A room of one cell cannot hold a wide character; it is cropped when it is drawn.
    return tuple(piece for piece in chop_cells(text, max(2, room)) if piece) or ("",)


class LogView(Widget):
    """Rows of a log. The page is computed when something moved, not when the terminal repaints.

    It keeps its own place in the log, because a scroll offset would mean another line each time the
    oldest ones are dropped.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = set(_PARTS)
    DEFAULT_CSS = """
    LogView { height: 1fr; width: 1fr; }
    LogView > .log--error { color: $text-error; text-style: bold; }
    LogView > .log--warning { color: $text-warning; }
    LogView > .log--marker { color: $text-muted; text-style: italic; }
    LogView > .log--stamp { color: $text-muted; }
    LogView > .log--match { text-style: reverse; }
    LogView > .log--current { text-style: reverse bold underline; }
    """

    def __init__(self, buffer: LogBuffer) -> None:
        super().__init__()
        self.place = Place(buffer)
        self.wrapped = False
        self.stamped = False
        self.here: int | None = None
        """Number of the current match or error."""
        self.words = ""
        """What to show if there are no lines."""
        self._buffer = buffer
        self._left = 0
        self._look: Look | None = None
        self._strips: list[Strip] = []

    def repaint(self) -> None:
        """Find the page and draw the rows that changed."""
        before, look_before = self._strips, self._look
        self._strips = self._draw()
        if look_before is not self._look or len(before) != len(self._strips):
            self.refresh()
            return
        changed = [y for y, strip in enumerate(self._strips) if strip != before[y]]
        if changed:
            width = self.size.width
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        if self._look is None or len(self._strips) != self.size.height:
            self._strips = self._draw()
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._look = None

    def on_resize(self) -> None:
        self._look = None
        self.repaint()

    def move(self, by: int) -> None:
        """Move down this many rows (negative: up)."""
        self.place.move(by)
        self.repaint()

    def sideways(self, step: int) -> None:
        """Scroll sideways, unless lines are wrapped."""
        if not self.wrapped:
            self._left = max(0, self._left + step * _SIDEWAYS)
            self.relook()

    def relook(self) -> None:
        """Draw everything again, in another look."""
        self._look = None
        self.repaint()

    def reveal(self, number: int) -> None:
        """Bring a line onto the page, and its first match into view."""
        self.here = number
        self.place.bring(number)
        line = self._buffer.line(number)
        matches = self._matches({number: line})
        if not self.wrapped and self.size.width > 0:
            start = cell_len(line.text[: matches[number][0][0]]) if matches.get(number) else 0
            room = max(1, self.size.width - GUTTER - (len(line.stamp) + 1) * self.stamped)
            if not self._left <= start < self._left + room:
                self._left = start // room and max(0, start - room // 3)
        self.relook()

    def _draw(self) -> list[Strip]:
        width, height = self.size
        if width <= 0 or height <= 0:
            return []
        look = self._look = self._look or self._make_look(width)
        place = self.place
        place.height, place.rows = height, lambda line: row_count(line, look)
        page = place.turn()
        if not page:
            rows = [note(self.words, look)]
        else:
            matches = self._matches({number: line for number, line, _ in page})
            rows = [
                row(line, part, look, matches.get(number, []), number == self.here)
                for number, line, part in page
            ]
        return rows + [Strip.blank(width, look.styles["plain"])] * (height - len(rows))

    def _matches(self, lines: dict[int, LogLine]) -> dict[int, list[tuple[int, int]]]:
        """Where the search matches; a pattern that takes too long becomes plain text."""
        search = self._buffer.searched
        if search is None:
            return {}
        try:
            with at_most(_MATCH_CPU_S):
                return {number: search.pattern.spans(line.text) for number, line in lines.items()}
        except TooSlow:
            search.give_up()
            return {number: search.pattern.spans(line.text) for number, line in lines.items()}

    def _make_look(self, width: int) -> Look:
        left = 0 if self.wrapped else self._left
        styles = {
            part.removeprefix("log--"): self.get_component_rich_style(
                part, partial=part in _LAID_OVER
            )
            for part in _PARTS
        }
        styles["plain"] = self.rich_style
        return Look(width, self.wrapped, self.stamped, left, styles)
