"""Searching the registry: every word has to be found, the more telling the place the earlier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from console.config.lessons.registry import Lesson, LessonModel

_FOLD = str.maketrans("", "", "_-., ")


def search(lessons: Iterable[Lesson], query: str) -> list[Lesson]:
    """Lessons with every word of the query in them, best first; all of them for an empty one."""
    words = query.casefold().split()
    scored = [(_score(one.model, words), at, one) for at, one in enumerate(lessons)]
    return [one for score, _, one in sorted(scored, key=_rank) if score]


def _rank(row: tuple[int, int, Lesson]) -> tuple[int, int]:
    return -row[0], row[1]


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
