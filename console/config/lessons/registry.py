"""Lessons and their registry, read strictly from files: each problem is reported with its line.

A lesson is what was seen, why, what was done, and the evidence. A bad file loses only its lesson.
Ids are known from file names alone, so a reference is checked without reading any file.

F: a failure, S: what worked, P: a pivot, A: an audit, D: a plan or evaluation. A letter after the
number (F-006B) means that the log used the number twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from console.common import paths
from console.common.errors import InvalidFile, Problem
from console.common.text import clean
from console.config.validation import Arg, Duration, OneOf, Pattern, Strict, Text, validated
from console.config.yaml import parse, read_text

SHIPPED = Path(__file__).with_name("registry")
ENDING = ".yaml"
YAML = (".yaml", ".yml")
KINDS = {"F": "failure", "S": "success", "P": "pivot", "A": "audit", "D": "plan or evaluation"}
ID = r"[FSPAD]-\d{3}[A-Z]?"
_TYPED = re.compile(r"([FSPADfspad])-?0*(\d{1,3})([A-Za-z]?)")


def files() -> dict[str, Path]:
    """Id → file. An operator's own file replaces a shipped one."""
    return _in(SHIPPED) | _in(paths.lessons_dir())


def known() -> frozenset[str]:
    """Every id of the registry, the operator's own ones included."""
    return frozenset(files())


def misnamed() -> list[Path]:
    """The operator's YAML files that are not read, because their names are no ids."""
    own = paths.lessons_dir()
    shown = (name for name in _names(own) if name.endswith(YAML) and not name.startswith("."))
    return sorted(own / name for name in shown if not _is_named(name))


def is_own(path: Path) -> bool:
    """Whether the operator wrote it."""
    return path.parent != SHIPPED


def typed(text: str) -> str:
    """A typed id in its canonical form (f22 → F-022); "" if it is none."""
    match = _TYPED.fullmatch(text.strip())
    if match is None:
        return ""
    letter, number, again = match.groups()
    return f"{letter.upper()}-{int(number):03d}{again.upper()}"


def near(text: str, ids: Iterable[str]) -> str:
    """A known id that may have been meant (F22, F-220 for F-022), or ""."""
    known_ids = sorted(ids)
    if typed(text) in known_ids:
        return typed(text)
    letters = sorted(text.upper())
    return next((known_id for known_id in known_ids if sorted(known_id) == letters), "")


def meant(text: str) -> str:
    """A hint for a text that is not the id of a lesson."""
    suggestion = near(text, known())
    return f"did you mean {suggestion}?" if suggestion else "omni-console lessons lists them"


def next_free(letter: str, ids: Iterable[str]) -> str:
    """The id after the highest one of its kind. Raises ValueError after 999."""
    numbers = [int(lesson_id[2:5]) for lesson_id in ids if lesson_id.startswith(f"{letter}-")]
    number = max(numbers, default=0) + 1
    if number > 999:
        raise ValueError(f"no number is free for {letter}")
    return f"{letter}-{number:03d}"


def order(lesson_id: str) -> tuple[int, str]:
    """By kind, then by number."""
    return "FSPAD".find(lesson_id[:1]), lesson_id


def _in(directory: Path) -> dict[str, Path]:
    lesson_paths = (directory / name for name in _names(directory) if _is_named(name))
    return {lesson_path.stem: lesson_path for lesson_path in lesson_paths}


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _is_named(name: str) -> bool:
    return re.fullmatch(f"{ID}{re.escape(ENDING)}", name) is not None


Status = Literal[
    "open", "blocked", "deferred", "rejected", "resurrected", "stands", "resolved", "worked",
    "decided", "superseded", "draft",
]  # fmt: skip
Severity = Literal[
    "critical", "blocking", "major", "minor", "operational", "informational", "high", "medium",
    "low",
]  # fmt: skip

TITLE = "the lesson cannot be used"
HINT = "docs/reference/lessons.md describes the format"


def _day(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        raise ValueError("a day, like 2026-01-27") from error


Day = Annotated[str, BeforeValidator(_day), WithJsonSchema({"type": "string"})]
LessonId = Annotated[str, StringConstraints(pattern=f"^{ID}$")]
RuleId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{2,60}$")]


class Change(Strict):
    """An earlier status, since when, and why."""

    date: Day
    status: Status
    words: Text


class Try(Strict):
    what: Text
    result: Text


class Link(Strict):
    to: LessonId
    words: Text


class Contradiction(Strict):
    """A conflict with other entries, or with itself, which is shown and not resolved."""

    with_: list[LessonId] = Field(alias="with", min_length=1)
    words: Text


class Quick(Strict):
    """A row of the quick reference: what not to do."""

    avoid: Text
    why: Text
    instead: Text


class AnsweredQuestion(Strict):
    question: Text
    answer: Text


class Recheck(OneOf):
    """A command that shows whether the lesson still holds: an argv, never a shell line.

    It holds while the output matches (or, with `not_matches`, does not); a non-zero exit tells
    nothing.
    """

    ONE_OF = ("matches", "not_matches")
    REFUSED = "a recheck has exactly one of matches or not_matches"

    output: list[Arg] = Field(min_length=1)
    matches: Pattern | None = None
    not_matches: Pattern | None = None
    timeout: Annotated[Duration, Field(gt=0, le=900)] = 30.0
    words: Text


class LessonModel(Strict):
    schema_: Literal["omni.lesson/v1"] = Field(alias="schema")
    id: LessonId
    title: Annotated[Text, Field(min_length=1, max_length=100)]
    date: Day
    updated: Day | None = None
    version: Text = ""
    severity: Severity | None = None
    status: Status
    component: Text = ""
    symptom: Text
    cause: Text
    tried: list[Try] = []
    resolution: Text = ""
    lesson: Text = ""
    evidence: list[Text] = []
    wrong: Text = ""
    right: Text = ""
    history: list[Change] = []
    links: list[Link] = []
    contradictions: list[Contradiction] = []
    notes: list[Text] = []
    quick: list[Quick] = []
    questions: list[AnsweredQuestion] = Field([], alias="asked")
    sources: list[Text] = []
    runs: list[Text] = []
    rules: list[RuleId] = []
    due: Day | None = None
    review: Text = ""
    recheck: Recheck | None = None

    @model_validator(mode="after")
    def _whole(self) -> LessonModel:
        if self.history and self.history[-1].status != self.status:
            raise ValueError(
                f"!status is {self.status}, the history ends {self.history[-1].status}"
            )
        if [change.date for change in self.history] != sorted(
            change.date for change in self.history
        ):
            raise ValueError("!the history goes from the oldest to the newest")
        if self.due and not (self.review or self.recheck):
            raise ValueError("!due needs review (what a person checks) or recheck")
        return self


class Lesson(NamedTuple):
    """An entry of the registry, and its file."""

    model: LessonModel
    path: Path

    @property
    def id(self) -> str:
        return self.model.id

    @property
    def own(self) -> bool:
        return is_own(self.path)

    @property
    def shown(self) -> str:
        """`F-022 Loading Meituan's INT8 weights took the machine down`."""
        return f"{self.model.id} {self.model.title}"


def due_by(lesson: Lesson, today: date) -> bool:
    """Whether its day of review is today or past."""
    return lesson.model.due is not None and date.fromisoformat(lesson.model.due) <= today


@dataclass(frozen=True)
class Registry:
    """Lessons by kind and number; `problems` are those of unusable files."""

    lessons: tuple[Lesson, ...]
    problems: tuple[Problem, ...] = ()

    def get(self, lesson_id: str) -> Lesson | None:
        return next((lesson for lesson in self.lessons if lesson.id == lesson_id), None)

    def linking_to(self, lesson_id: str) -> list[str]:
        """Ids of the lessons that link to this one."""
        return [
            lesson.id
            for lesson in self.lessons
            if any(link.to == lesson_id for link in lesson.model.links)
        ]

    def contradicting(self, lesson_id: str) -> list[tuple[Lesson, Contradiction]]:
        """Contradictions with this lesson that other lessons state."""
        return [
            (other, contradiction)
            for other in self.lessons
            for contradiction in other.model.contradictions
            if lesson_id in contradiction.with_ and other.id != lesson_id
        ]


def load_lesson(path: Path) -> Lesson:
    """Load one file as a lesson. Raises InvalidFile with every problem in it."""
    try:
        stat = path.stat()
    except OSError:
        return _load(path, (), known())
    return _load(path, (stat.st_ino, stat.st_mtime_ns, stat.st_size), known())


@lru_cache(maxsize=256)
def _load(path: Path, stamp: tuple[int, ...], ids: frozenset[str]) -> Lesson:
    """The lesson of a file with this `stamp`, which may point at `ids`. It is kept: a plan needs
    the same lessons for many steps, and reading one takes some 10 ms."""
    document = parse(read_text(path, TITLE), str(path), TITLE)
    model = validated(LessonModel, document, document.data)
    if model is not None:
        if model.id != path.stem:
            document.refuse(("id",), f"id {model.id}", f"{path.stem}, as the file is named")
        for place, to in _pointers(model):
            if to != model.id and to not in ids:
                document.refuse(place, f"unknown lesson '{to}'", hint=meant(to))
    if model is None or document.problems:
        raise InvalidFile(TITLE, sorted(document.problems), HINT)
    return Lesson(model, path)


def load_registry() -> Registry:
    """Every lesson, shipped ones and the operator's own."""
    lessons, problems = [], [_misnamed(path) for path in misnamed()]
    for lesson_id, path in sorted(files().items(), key=lambda item: order(item[0])):
        try:
            lessons.append(load_lesson(path))
        except InvalidFile as error:
            problems += error.problems
            shipped = SHIPPED / f"{lesson_id}{ENDING}"
            if shipped != path and shipped.exists():
                lessons.append(load_lesson(shipped))  # the one it was to stand in for
    return Registry(tuple(lessons), tuple(problems))


def _misnamed(path: Path) -> Problem:
    meant = typed(path.stem) or "a letter of FSPAD and three digits, like F-028"
    return Problem(str(path), 0, 0, "its name is not that of a lesson, so it is not read",
                   f"{meant}{ENDING}")  # fmt: skip


def titles(wanted: tuple[str, ...] | list[str]) -> list[str]:
    """`F-002 its title` for each id, clean; the id alone if the lesson is unreadable."""
    places, lines = files(), []
    for lesson_id in wanted:
        try:
            lines.append(clean(load_lesson(places[lesson_id]).shown))
        except (InvalidFile, KeyError):
            lines.append(lesson_id)
    return lines


def _pointers(model: LessonModel) -> list[tuple[tuple[str | int, ...], str]]:
    links = [(("links", n, "to"), link.to) for n, link in enumerate(model.links)]
    return links + [
        (("contradictions", n, "with", m), to)
        for n, contradiction in enumerate(model.contradictions)
        for m, to in enumerate(contradiction.with_)
    ]
