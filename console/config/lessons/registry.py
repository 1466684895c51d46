"""A lesson as its file has it: what was seen, why, what was done, on what evidence."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from console.config.lessons.ids import ID, is_own
from console.config.validation import Arg, Duration, Pattern, Strict, Text

Status = Literal[
    "open", "blocked", "deferred", "rejected", "resurrected", "stands", "resolved", "worked",
    "decided", "superseded", "draft",
]  # fmt: skip
STATUSES: tuple[str, ...] = get_args(Status)
Severity = Literal[
    "critical", "blocking", "major", "minor", "operational", "informational", "high", "medium",
    "low",
]  # fmt: skip


def _day(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        raise ValueError("a day, like 2026-01-27") from error


Day = Annotated[str, BeforeValidator(_day), WithJsonSchema({"type": "string"})]
LessonId = Annotated[str, StringConstraints(pattern=f"^{ID}$")]
RuleId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{2,60}$")]


class Change(Strict):
    """A status it had, since when, and why."""

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
    """What does not go with other entries, or with itself: told, not smoothed."""

    with_: list[LessonId] = Field(alias="with", min_length=1)
    words: Text


class Quick(Strict):
    """A row of the quick reference: what not to do."""

    avoid: Text
    why: Text
    instead: Text


class Asked(Strict):
    question: Text
    answer: Text


class Recheck(Strict):
    """A command that says whether the lesson still holds: an argv, never a shell line.

    It holds while the output matches (or, with `not_matches`, does not); an end other than 0 says
    nothing.
    """

    output: list[Arg] = Field(min_length=1)
    matches: Pattern | None = None
    not_matches: Pattern | None = None
    timeout: Annotated[Duration, Field(gt=0, le=900)] = 30.0
    words: Text

    @model_validator(mode="after")
    def _one(self) -> Recheck:
        if (self.matches is None) == (self.not_matches is None):
            raise ValueError("!a recheck has exactly one of matches or not_matches")
        return self


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
    asked: list[Asked] = []
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
        if [one.date for one in self.history] != sorted(one.date for one in self.history):
            raise ValueError("!the history goes from the oldest to the newest")
        if self.due and not (self.review or self.recheck):
            raise ValueError("!what is due needs review (what a person looks at) or recheck")
        return self


class Lesson(NamedTuple):
    """An entry of the registry and the file it is from."""

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
    """Whether its day of review is today or over."""
    return lesson.model.due is not None and date.fromisoformat(lesson.model.due) <= today
