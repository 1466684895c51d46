"""What the lessons say to do and not to do, in a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from console.common.text import UNLIMITED, clean
from console.config.lessons.registry import Lesson
from console.render.cells import cells, fitted

AVOID, WORKS = "What not to do", "What works"
ID_CELLS = 8
GAP = 2
WIDE = 48
"""Cells of the left column where lines may be of any width."""
_WARNS = {"blocked", "rejected", "deferred", "superseded", "open"}


@dataclass(frozen=True, slots=True)
class Advice:
    """A line of a lesson, clean: what not to do (or what it is about), why, and what to do."""

    id: str
    what: str
    why: str
    do: str
    status: str
    avoid: bool


def advices(lessons: Iterable[Lesson]) -> list[Advice]:
    """The lines of the lessons in their order: one a lesson, or one for each row of its quick
    reference."""
    return [advice for lesson in lessons for advice in _of(lesson)]


def _of(lesson: Lesson) -> list[Advice]:
    model = lesson.model
    if model.quick:
        rows = [(quick_row.avoid, quick_row.why, quick_row.instead) for quick_row in model.quick]
    else:
        rows = [(model.title, model.cause, model.lesson or model.resolution or model.cause)]
    avoid = bool(model.quick) or model.id.startswith("F") or model.status in _WARNS
    return [
        Advice(model.id, _line(what), _line(why), _line(do), model.status, avoid)
        for what, why, do in rows
    ]


def _line(text: str) -> str:
    return clean(" ".join(text.split()))


def page(lessons: Iterable[Lesson], width: int) -> list[str]:
    """The page in lines of at most `width` cells."""
    every = advices(lessons)
    groups = [
        [advice for advice in every if advice.avoid],
        [advice for advice in every if not advice.avoid],
    ]
    heads = (f"{AVOID}, and what to do instead", WORKS)
    out: list[str] = []
    for head, group in zip(heads, groups, strict=True):
        if group:
            out += [*([""] if out else []), head, *_rows(group, width)]
    return [_within(line, width) for line in out]


def _rows(group: Sequence[Advice], width: int) -> list[str]:
    """Two columns; a part that is too long for its column ends with a sign."""
    longest = max(cells(advice.what) for advice in group)
    wide = WIDE if width == UNLIMITED else max(12, (width - ID_CELLS - GAP) * 9 // 20)
    left = min(longest, wide)
    return [
        f"{advice.id:<{ID_CELLS}}{_column(advice.what, left, width)}{' ' * GAP}{advice.do}"
        for advice in group
    ]


def _column(text: str, left: int, width: int) -> str:
    return fitted(text, max(left, cells(text)) if width == UNLIMITED else left, "…")


def _within(line: str, width: int) -> str:
    return line.rstrip() if width == UNLIMITED else fitted(line, width, "…").rstrip()
