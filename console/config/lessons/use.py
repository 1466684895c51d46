"""Which lessons apply: those a search finds, and those that bear on a step by its effects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from console.config.lessons.registry import Lesson, LessonId, LessonModel, titles
from console.config.playbook.kinds import ACTING
from console.config.validation import Strict, Text, load

_FOLD = str.maketrans("", "", "_-., ")

TITLE = "the table of what lessons bear on cannot be used"

TABLE = Path(__file__).with_name("bearing.yaml")


def search(lessons: Iterable[Lesson], query: str) -> list[Lesson]:
    """Lessons with every word of the query in them, the earlier the more telling the place it was
    found in; all of them for an empty one."""
    words = query.casefold().split()
    scored = [(_score(one.model, words), at, one) for at, one in enumerate(lessons)]
    return [one for score, _, one in sorted(scored, key=lambda row: (-row[0], row[1])) if score]


def _score(model: LessonModel, words: list[str]) -> int:
    """The sum over the words of the best place each was found in; 0 where one is missing."""
    places = [(weight, text.casefold()) for weight, text in _places(model)]
    best = [max((w for w, text in places if _has(text, word)), default=0) for word in words]
    if 0 in best:
        return 0
    return sum(best) or 1


def _has(text: str, word: str) -> bool:
    """`sm120` finds sm_120, and the other way round."""
    folded = word.translate(_FOLD)
    return word in text or (len(folded) > 2 and folded in text.translate(_FOLD))


def _places(model: LessonModel) -> Iterator[tuple[int, str]]:
    yield 100, model.id
    yield 20, model.title
    yield 10, " ".join((model.status, model.component, *model.rules, *model.sources))
    yield 8, " ".join(f"{one.avoid} {one.why} {one.instead}" for one in model.quick)
    yield 8, " ".join(f"{one.question} {one.answer}" for one in model.asked)
    yield 5, " ".join((model.symptom, model.cause, model.resolution, model.lesson))
    yield 3, " ".join((*model.evidence, *(f"{one.what} {one.result}" for one in model.tried)))
    yield 3, " ".join((model.wrong, model.right, *model.notes, *model.runs, model.version))
    yield 1, " ".join((*(one.words for one in model.history), model.severity or ""))
    yield 1, " ".join(one.words for one in model.links)
    yield 1, " ".join(one.words for one in model.contradictions)


class Row(Strict):
    """A lesson bears on steps of these kinds (none: of those that act) with one of these words in
    them (none: whatever they do) and one of those `beside` it (none: alone), and says why."""

    lesson: LessonId
    kinds: list[Text] = []
    words: list[Text] = []
    beside: list[Text] = []
    because: Text

    @model_validator(mode="after")
    def _some(self) -> Row:
        if not self.kinds and not self.words:
            raise ValueError("!a row needs kinds or words: it would bear on everything")
        return self


class Table(Strict):
    schema_: Literal["omni.bearing/v1"] = Field(alias="schema")
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Bearing:
    """A lesson by its id and title, and why it bears."""

    lesson: str
    title: str
    because: str

    @property
    def words(self) -> str:
        return f"{self.title} – {self.because}"


def bearing(kind: str, effects: Iterable[str]) -> list[Bearing]:
    """The lessons that bear on a step, in the table's order; each once."""
    text = re.sub(r"\s*\n\s*\|?\s*", " ", "\n".join(effects))
    found: dict[str, Row] = {}
    for row, patterns in _rows():
        if kind in (row.kinds or ACTING) and all(one.search(text) for one in patterns):
            found.setdefault(row.lesson, row)
    names = titles(list(found))
    return [Bearing(i, t, r.because) for (i, r), t in zip(found.items(), names, strict=True)]


@cache
def _rows() -> list[tuple[Row, list[re.Pattern[str]]]]:
    """The table with its words as patterns that all have to be found. Raises InvalidFile."""
    model = load(Table, TABLE, TITLE, "reinstall omni-console")
    return [(row, [_pattern(w) for w in (row.words, row.beside) if w]) for row in model.rows]


def _pattern(words: list[str]) -> re.Pattern[str]:
    """Whole words, however many blanks are between their parts; a directory on the way to
    something else is none."""
    parts = [r"\s+".join(map(re.escape, word.split())) for word in words]
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(parts)})(?![A-Za-z0-9/])", re.IGNORECASE)
