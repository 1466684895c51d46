"""One line of a log as rows of the screen: sign, time, text, matches; never wider than asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rich.cells import chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from console.common.logs.line import Kind, LogLine
from console.render.glyph import glyphs

GUTTER = 2
"""Cells for the sign in front of a line."""
_CUT_FROM = 6
"""Characters kept for each cell when a line is cut: marks take none, and there may be a few."""


@dataclass(frozen=True, slots=True)
class Look:
    """How lines are drawn. `left`: cells scrolled to the side, where lines are not wrapped."""

    width: int
    wrap: bool
    stamps: bool
    left: int
    plain: Style
    error: Style
    warning: Style
    marker: Style
    stamp: Style
    match: Style
    current: Style

    @property
    def room(self) -> int:
        """Cells for text; at least one."""
        return max(1, self.width - GUTTER)

    def of(self, kind: Kind) -> Style:
        """The style of a kind of line."""
        return {
            "plain": self.plain,
            "error": self.error,
            "warning": self.warning,
            "marker": self.marker,
        }[kind]


def sign(kind: Kind) -> str:
    """What stands in the gutter, so that no kind is told by colour alone."""
    return {"plain": " ", "error": "!", "warning": glyphs().dot, "marker": glyphs().arrow}[kind]


def row_count(line: LogLine, look: Look) -> int:
    """How many rows a line takes."""
    return len(_pieces(_prefix(line, look) + line.text, look.room)) if look.wrap else 1


def row(line: LogLine, part: int, look: Look, spans: list[tuple[int, int]], here: bool) -> Strip:
    """One row of a line, exactly as wide as the look says.

    `spans`: matches, in characters of the text. `here`: whether it is the match or error last
    gone to.
    """
    prefix = _prefix(line, look)
    text = prefix + line.text
    start, shift = 0, look.left
    if look.wrap:
        pieces, shift = _pieces(text, look.room), 0
        if part >= len(pieces):
            return Strip.blank(look.width, look.plain)
        start = sum(len(piece) for piece in pieces[:part])
        end = start + len(pieces[part])
    elif text.isascii():
        start, shift = look.left, 0
        end = start + look.room
    else:
        end = (look.left + look.room) * _CUT_FROM
    style = look.of(line.kind)
    marks = [(0, len(prefix), look.stamp)] if prefix else []
    shown = look.current if here else look.match
    marks += [(a + len(prefix), b + len(prefix), shown) for a, b in spans]
    body = Strip(_segments(text, start, min(end, len(text)), style, marks))
    more = not look.wrap and (end < len(text) or body.cell_length > shift + look.room)
    if shift or body.cell_length > look.room:
        body = body.crop(shift, shift + look.room)
    if more and look.room > 1:
        body = Strip([*body.crop(0, look.room - 1), Segment(glyphs().more, look.stamp)])
    gutter = Segment(f"{sign(line.kind) if part == 0 else ' '} ", shown if here else style)
    return Strip([gutter, *body]).adjust_cell_length(look.width, look.plain)


def note(words: str, look: Look) -> Strip:
    """A row of the pane's own words."""
    segment = Segment("  " + words, look.stamp)
    return Strip([segment]).adjust_cell_length(look.width, look.plain)


def _prefix(line: LogLine, look: Look) -> str:
    return f"{line.stamp} " if look.stamps and line.stamp else ""


def _segments(
    text: str, start: int, end: int, style: Style, marks: list[tuple[int, int, Style]]
) -> list[Segment]:
    """The characters from `start` to `end`; marks are in order and do not overlap."""
    found = []
    for a, b, marked in marks:
        a, b = max(a, start), min(b, end)
        if b <= a:
            continue
        if a > start:
            found.append(Segment(text[start:a], style))
        found.append(Segment(text[a:b], style + marked))
        start = b
    if end > start:
        found.append(Segment(text[start:end], style))
    return found


@lru_cache(maxsize=1024)
def _pieces(text: str, room: int) -> tuple[str, ...]:
    """A text cut into rows; one empty row for an empty text."""
    if len(text) <= room and text.isascii():
        return (text,)
    if text.isascii():
        return tuple(text[at : at + room] for at in range(0, len(text), room))
    # A room of one cell cannot hold a wide character; it is cropped when it is drawn.
    return tuple(piece for piece in chop_cells(text, max(2, room)) if piece) or ("",)
