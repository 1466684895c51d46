"""The registry from its files, strictly: every problem with its line, one bad file costs itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from console.common.errors import InvalidFile, Problem
from console.config.lessons import ids
from console.config.lessons.registry import Contradiction, Lesson, LessonModel
from console.config.validation import validate
from console.config.yaml import parse, read_text

TITLE = "the lesson cannot be used"
HINT = "docs/lessons.md describes the format"


@dataclass(frozen=True)
class Registry:
    """Lessons by kind and number; `problems` are of files that could not be taken."""

    lessons: tuple[Lesson, ...]
    problems: tuple[Problem, ...] = ()

    def get(self, lesson_id: str) -> Lesson | None:
        return next((one for one in self.lessons if one.id == lesson_id), None)

    def linking_to(self, lesson_id: str) -> list[str]:
        """Ids of the lessons that point at this one."""
        return [
            one.id for one in self.lessons if any(link.to == lesson_id for link in one.model.links)
        ]

    def contradicting(self, lesson_id: str) -> list[tuple[Lesson, Contradiction]]:
        """Contradictions with this one that other lessons tell."""
        return [
            (other, one)
            for other in self.lessons
            for one in other.model.contradictions
            if lesson_id in one.with_ and other.id != lesson_id
        ]


def load_lesson(path: Path) -> Lesson:
    """One file → a lesson. Raises InvalidFile with every problem in it."""
    document = parse(read_text(path, TITLE), str(path), TITLE)
    model, problems = validate(LessonModel, document, document.data)
    problems += document.problems
    if model is not None:
        if model.id != path.stem:
            expected = f"{path.stem}, as the file is named"
            problems.append(document.problem(("id",), f"id {model.id}", expected))
        problems += [
            document.problem(place, f"unknown lesson '{to}'", hint=_meant(to))
            for place, to in _pointers(model)
            if to != model.id and to not in ids.known()
        ]
    if model is None or problems:
        raise InvalidFile(TITLE, problems, HINT)
    return Lesson(model, path)


def load_registry() -> Registry:
    """Every lesson, shipped ones and the operator's own."""
    found, problems = [], [_misnamed(path) for path in ids.misnamed()]
    for lesson_id, path in sorted(ids.files().items(), key=lambda item: ids.order(item[0])):
        try:
            found.append(load_lesson(path))
        except InvalidFile as error:
            problems += error.problems
            shipped = ids.SHIPPED / f"{lesson_id}{ids.ENDING}"
            if shipped != path and shipped.exists():
                found.append(load_lesson(shipped))  # the one it was to stand in for
    return Registry(tuple(found), tuple(problems))


def _misnamed(path: Path) -> Problem:
    meant = ids.typed(path.stem) or "a letter of FSPAD and three digits, like F-028"
    return Problem(str(path), 0, 0, "its name is no lesson's, so it is not read",
                   f"{meant}{ids.ENDING}")  # fmt: skip


def titles(wanted: tuple[str, ...] | list[str]) -> list[str]:
    """`F-002 its title` for each id; the id alone where no lesson can be read."""
    places, found = ids.files(), []
    for one in wanted:
        try:
            found.append(load_lesson(places[one]).shown)
        except (InvalidFile, KeyError):
            found.append(one)
    return found


def _pointers(model: LessonModel) -> list[tuple[tuple[str | int, ...], str]]:
    links = [(("links", n, "to"), one.to) for n, one in enumerate(model.links)]
    return links + [
        (("contradictions", n, "with", m), to)
        for n, one in enumerate(model.contradictions)
        for m, to in enumerate(one.with_)
    ]


def _meant(lesson_id: str) -> str:
    near = ids.near(lesson_id, ids.known())
    return f"did you mean {near}?" if near else "omni-console lessons lists them"
