"""Uses of lessons: which apply, by a search or by a step's effects; rechecking whether one still
holds; drafting one from a finished run. A recheck never changes a lesson; only a person does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from console.common import paths
from console.common.files import open_untrusted
from console.common.text import clean, clean_lines, decode, one_line
from console.config.lessons import registry
from console.config.lessons.registry import Lesson, LessonId, LessonModel, Recheck, titles
from console.config.validation import Strict, Text, load
from console.host.matching import TooSlow, find
from console.host.process import environment

_FOLD = str.maketrans("", "", "_-., ")

TITLE = "the table of what lessons apply to cannot be used"

TABLE = Path(__file__).with_name("bearing.yaml")
MAX_BYTES = 1024 * 1024
"""Most bytes of output; a command that prints more is ended without an answer."""
SHOWN = 5
TO_BE_FOUND = "To be found."


def search(lessons: Iterable[Lesson], query: str) -> list[Lesson]:
    """Lessons that have every word of the query, best place of a match first; all of them for an
    empty query."""
    words = query.casefold().split()
    scored = [(_score(lesson.model, words), at, lesson) for at, lesson in enumerate(lessons)]
    return [
        lesson for score, _, lesson in sorted(scored, key=lambda row: (-row[0], row[1])) if score
    ]


def _score(model: LessonModel, words: list[str]) -> int:
    """The sum over the words of the best place each was found in; 0 if one is missing."""
    places = [(weight, text.casefold()) for weight, text in _places(model)]
    best = [max((w for w, text in places if _has(text, word)), default=0) for word in words]
    if 0 in best:
        return 0
    return sum(best) or 1


def _has(text: str, word: str) -> bool:
    """Whether the text has the word, ignoring separators: `sm120` finds sm_120 and vice versa."""
    folded = word.translate(_FOLD)
    return word in text or (len(folded) > 2 and folded in text.translate(_FOLD))


def _places(model: LessonModel) -> Iterator[tuple[int, str]]:
    yield 100, model.id
    yield 20, model.title
    yield 10, " ".join((model.status, model.component, *model.rules, *model.sources))
    yield 8, " ".join(f"{advice.avoid} {advice.why} {advice.instead}" for advice in model.quick)
    yield 8, " ".join(f"{exchange.question} {exchange.answer}" for exchange in model.questions)
    yield 5, " ".join((model.symptom, model.cause, model.resolution, model.lesson))
    yield (
        3,
        " ".join(
            (*model.evidence, *(f"{attempt.what} {attempt.result}" for attempt in model.tried))
        ),
    )
    yield 3, " ".join((model.wrong, model.right, *model.notes, *model.runs, model.version))
    yield 1, " ".join((*(change.words for change in model.history), model.severity or ""))
    yield 1, " ".join(link.words for link in model.links)
    yield 1, " ".join(contradiction.words for contradiction in model.contradictions)


class Row(Strict):
    """A lesson applies to steps of these kinds (none: those that act) with one of these words
    (none: any) and one of those `beside` it (none: alone); it says why."""

    lesson: LessonId
    kinds: list[Text] = []
    words: list[Text] = []
    beside: list[Text] = []
    because: Text

    @model_validator(mode="after")
    def _some(self) -> Row:
        if not self.kinds and not self.words:
            raise ValueError("!a row needs kinds or words: it would apply to everything")
        return self


class Table(Strict):
    schema_: Literal["omni.bearing/v1"] = Field(alias="schema")
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Bearing:
    """A lesson that applies, by id and title, and why it does."""

    lesson: str
    title: str
    because: str

    @property
    def words(self) -> str:
        return f"{self.title} – {self.because}"


def bearing(kind: str, effects: Iterable[str], *, acts: bool) -> list[Bearing]:
    """The lessons that apply to a step, in the table's order; each once. `acts`: whether its kind
    changes something, as most lessons are about."""
    text = re.sub(r"\s*\n\s*\|?\s*", " ", "\n".join(effects))
    rows_by_lesson: dict[str, Row] = {}
    for row, patterns in _rows():
        applies = kind in row.kinds if row.kinds else acts
        if applies and all(pattern.search(text) for pattern in patterns):
            rows_by_lesson.setdefault(row.lesson, row)
    names = titles(list(rows_by_lesson))
    return [
        Bearing(i, t, r.because) for (i, r), t in zip(rows_by_lesson.items(), names, strict=True)
    ]


@cache
def _rows() -> list[tuple[Row, list[re.Pattern[str]]]]:
    """The table with its words as patterns, all of which must match. Raises InvalidFile."""
    model = load(Table, TABLE, TITLE, "reinstall omni-console")
    return [(row, [_pattern(w) for w in (row.words, row.beside) if w]) for row in model.rows]


def _pattern(words: list[str]) -> re.Pattern[str]:
    """Match whole words with any blanks between them, but not a directory inside a path."""
    parts = [r"\s+".join(map(re.escape, word.split())) for word in words]
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(parts)})(?![A-Za-z0-9/])", re.IGNORECASE)


class Answer(StrEnum):
    """passed: the lesson still holds. changed: it no longer does. failed: nothing was learnt."""

    PASSED = "passed"
    CHANGED = "changed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Rechecked:
    """The result of a recheck; `lines` is the end of its output, clean."""

    lesson: str
    answer: Answer
    words: str
    lines: tuple[str, ...] = ()
    took_s: float = 0.0


Runner = Callable[[Recheck], tuple[int, str]]
"""Argv and deadline → exit code and output. Raises OSError, TimeoutError or ValueError (too much
output)."""


def recheck(lesson: Lesson, check: Recheck, run: Runner | None = None) -> Rechecked:
    """Run the command once, without a shell, and judge what it printed."""
    began = time.monotonic()
    try:
        code, output = (run or ask)(check)
    except TimeoutError:
        return _failed(lesson, f"no answer within {check.timeout:g} s", began)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _failed(lesson, f"{check.output[0]}: {words}", began)
    lines = tuple(line for line in clean_lines(output.strip(), 200)[-SHOWN:] if line)
    took_s = time.monotonic() - began
    if code:
        return Rechecked(
            lesson.id, Answer.FAILED, f"nothing learnt: it ended with {code}", lines, took_s
        )
    pattern = check.matches or check.not_matches or ""
    try:
        has_match = find(pattern, [output], lines=True) != [None]
    except TooSlow as error:
        return _failed(lesson, str(error), began)
    holds = has_match if check.matches is not None else not has_match
    has = "matches" if has_match else "does not match"
    words = f"the output {has} {one_line(pattern, 80)}"
    return Rechecked(lesson.id, Answer.PASSED if holds else Answer.CHANGED, words, lines, took_s)


def ask(check: Recheck) -> tuple[int, str]:
    """Run the command in a session of its own, stdin closed; return exit code and output."""
    child = subprocess.Popen(
        check.output, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, env=environment((), "recheck"),
    )  # fmt: skip
    deadline = time.monotonic() + check.timeout
    try:
        data = _read(child, deadline)
        return child.wait(max(0.1, deadline - time.monotonic())), decode(data)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # what it started and left behind
        if child.stdout is not None:
            child.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)


def _read(child: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Read all output until it ends. Raises TimeoutError and ValueError."""
    assert child.stdout is not None
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(child.stdout.fileno(), 65536)
            if not part:
                return bytes(data)
            data += part
            if len(data) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes of output")
    raise TimeoutError


def _failed(lesson: Lesson, words: str, began: float) -> Rechecked:
    words = one_line(f"nothing learnt: {words}")
    return Rechecked(lesson.id, Answer.FAILED, words, (), time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """What a run's records give: `day` as 2026-11-22; `lessons` are the ids it named; `worked`: the
    draft is a lesson of success."""

    run: str
    day: str
    title: str
    playbook: str
    outcome: str
    symptom: str
    worked: bool = False
    candidates: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()


def drafted(lesson_id: str, facts: DraftFacts) -> str:
    """The draft's text. Every value is a JSON string, which is also valid YAML."""
    known = registry.known()
    quarter_later = (date.fromisoformat(facts.day) + timedelta(days=91)).isoformat()
    evidence = [f"run {facts.run}: {facts.outcome}", *facts.candidates, *facts.figures]
    evidence += [f"log: {line}" for line in facts.lines]
    links = [
        f"  - {{to: {linked_id}, words: read before the run}}"
        for linked_id in facts.lessons
        if linked_id in known
    ]
    return "\n".join([
        "# Drafted from a run. Write the cause, what was done and the lesson; then set the status:",
        "# blocked, deferred, rejected, resolved, stands, worked. "
        "docs/reference/lessons.md has the format.",
        "schema: omni.lesson/v1",
        f"id: {lesson_id}",
        f"title: {_text(facts.title, 100)}",
        f"date: {facts.day}",
        "# severity: critical, blocking, major, minor, operational, informational",
        "status: draft",
        f"component: {_text(facts.playbook, 100)}",
        f"symptom: {_text(facts.symptom)}",
        f"cause: {TO_BE_FOUND}",
        "resolution: ''",
        "lesson: ''",
        *_list("evidence", evidence),
        *(["links:", *links] if links else []),
        *_list("runs", [facts.run]),
        f"# due: {quarter_later}   with review: (what a person checks), or a recheck",
        "",
    ])  # fmt: skip


def write(lesson_id: str, text: str, directory: Path | None = None) -> Path:
    """Write the draft to the operator's own registry, never over an existing file.

    Raises FileExistsError and OSError.
    """
    place = directory or paths.lessons_dir()
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{lesson_id}{registry.ENDING}"
    descriptor = open_untrusted(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _list(name: str, texts: Iterable[str]) -> list[str]:
    return [f"{name}:", *(f"  - {_text(text)}" for text in texts)]


def _text(text: str, limit: int = 600) -> str:
    return json.dumps(clean(" ".join(text.split()), limit) or "–", ensure_ascii=False)
