"""A text inside a file, and where each of its characters stands there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from console.checks.lint.finding import Place

Segment = tuple[int, int, int]
"""From this offset of the text on, the characters stand at (line, column) and to the right."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """`segments` are in the order of their offsets; the first is at 0. `exact` is False where a
    quoted form hides the places: everything is then said to stand at the beginning."""

    text: str
    segments: Sequence[Segment]
    exact: bool = True

    def at(self, offset: int) -> Place:
        start, line, column = self.segments[bisect_right(self.segments, (offset, 1 << 60, 0)) - 1]
        return Place(line, column + (offset - start if self.exact else 0))

    def part(self, start: int, end: int) -> Snippet:
        """The text from `start` to `end`, as a snippet of its own."""
        first = bisect_right(self.segments, (start, 1 << 60, 0))
        inside = self.segments[first : bisect_left(self.segments, (end, 0, 0))]
        place = self.at(start)
        moved = [(at - start, line, column) for at, line, column in inside]
        return Snippet(self.text[start:end], [(0, place.line, place.column), *moved], self.exact)


def whole(text: str) -> Snippet:
    """A file that is the text itself."""
    segments: list[Segment] = [(0, 1, 1)]
    at, line = text.find("\n"), 1
    while at >= 0:
        line += 1
        segments.append((at + 1, line, 1))
        at = text.find("\n", at + 1)
    return Snippet(text, segments)


def spot(text: str, place: Place) -> Snippet:
    """A text whose own characters cannot be found in the file any more."""
    return Snippet(text, [(0, place.line, place.column)], exact=False)
