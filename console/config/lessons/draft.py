"""A lesson drafted from a finished run: what is on record is filled in, the rest is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from console.common import paths
from console.common.text import clean
from console.config.lessons import ids

TO_BE_FOUND = "To be found."


@dataclass(frozen=True, slots=True)
class Found:
    """What a run leaves on record: `day` as 2026-11-22; `lessons` are ids it was meant to heed;
    `worked`: a lesson of success."""

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


def drafted(lesson_id: str, found: Found) -> str:
    """The file's text. Every value is a JSON string, which YAML takes as it is."""
    known = ids.known()
    quarter_later = (date.fromisoformat(found.day) + timedelta(days=91)).isoformat()
    evidence = [f"run {found.run}: {found.outcome}", *found.candidates, *found.figures]
    evidence += [f"log: {line}" for line in found.lines]
    links = [
        f"  - {{to: {one}, words: read before the run}}" for one in found.lessons if one in known
    ]
    return "\n".join([
        "# Drafted from a run. Write the cause, what was done and the lesson; then set the status:",
        "# blocked, deferred, rejected, resolved, stands, worked. docs/lessons.md has the format.",
        "schema: omni.lesson/v1",
        f"id: {lesson_id}",
        f"title: {_text(found.title, 100)}",
        f"date: {found.day}",
        "# severity: critical, blocking, major, minor, operational, informational",
        "status: draft",
        f"component: {_text(found.playbook, 100)}",
        f"symptom: {_text(found.symptom)}",
        f"cause: {TO_BE_FOUND}",
        "resolution: ''",
        "lesson: ''",
        *_list("evidence", evidence),
        *(["links:", *links] if links else []),
        *_list("runs", [found.run]),
        f"# due: {quarter_later}   with review: (what a person looks at), or a recheck",
        "",
    ])  # fmt: skip


def write(lesson_id: str, text: str, directory: Path | None = None) -> Path:
    """The draft in the operator's own registry; a file that is there is never written over.

    Raises FileExistsError and OSError.
    """
    place = directory or paths.lessons_dir()
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{lesson_id}{ids.ENDING}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _list(name: str, texts: Iterable[str]) -> list[str]:
    return [f"{name}:", *(f"  - {_text(one)}" for one in texts)]


def _text(text: str, limit: int = 600) -> str:
    return json.dumps(clean(" ".join(text.split()), limit) or "–", ensure_ascii=False)
