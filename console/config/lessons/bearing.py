"""Which lessons bear on a step, from what it would do: by the words in its effects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from console.common.errors import InvalidFile
from console.config.lessons.load import titles
from console.config.lessons.registry import LessonId
from console.config.validation import Strict, Text, validate
from console.config.yaml import parse, read_text

TITLE = "the table of what lessons bear on cannot be used"
TABLE = Path(__file__).with_name("bearing.yaml")
ACTING = ("run", "script", "build", "service", "manual", "cutover")
"""Kinds of steps that change something: what a row without kinds bears on. A step that only looks
is what a lesson asks for, not what it warns of."""


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
    document = parse(read_text(TABLE, TITLE), TABLE.name, TITLE)
    model, problems = validate(Table, document, document.data)
    problems += document.problems
    if model is None or problems:
        raise InvalidFile(TITLE, problems, "reinstall omni-console")
    return [(row, [_pattern(w) for w in (row.words, row.beside) if w]) for row in model.rows]


def _pattern(words: list[str]) -> re.Pattern[str]:
    """Whole words, however many blanks are between their parts; a directory on the way to
    something else is none."""
    parts = [r"\s+".join(map(re.escape, word.split())) for word in words]
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(parts)})(?![A-Za-z0-9/])", re.IGNORECASE)
