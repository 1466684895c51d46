"""A lesson as text, at any width, with nothing in it that acts."""

from __future__ import annotations

from datetime import date

import pytest

from console.lessons.load import load_registry
from console.lessons.text import due_words, entry, row
from tests.lessons.conftest import Put

TODAY = date(2026, 11, 22)


@pytest.mark.parametrize("width", [30, 49, 60, 80, 110])
def test_every_lesson_keeps_to_the_width(width: int) -> None:
    registry = load_registry()
    for lesson in registry.lessons:
        code = {
            f"    {one}"
            for one in (*lesson.model.wrong.split("\n"), *lesson.model.right.split("\n"))
        }
        lines = [line for line, _ in entry(registry, lesson, width, TODAY)]
        long = [one for one in lines if len(one) > width and one not in code]
        assert [one for one in long if one != str(lesson.path)] == [], lesson.id


def test_whole_entry() -> None:
    registry = load_registry()
    lesson = registry.get("F-006")
    assert lesson is not None
    text = " ".join(" ".join(line for line, _ in entry(registry, lesson, 80, TODAY)).split())
    for part in (
        "failure, blocked, 2026-01-24, updated 2026-01-27", "tried", "S-013",
        "2026-01-27 resurrected", "with itself:", "due since 2026-04-27 (209 days)",
        "$ docker manifest inspect", "F-006B ByteRover", "linked from",
    ):  # fmt: skip
        assert part in text, part


def test_what_others_contradict_is_told_here_too() -> None:
    registry = load_registry()
    lesson = registry.get("S-003")
    assert lesson is not None
    text = " ".join(line.strip() for line, _ in entry(registry, lesson, 80, TODAY))
    assert "D-002:" in text
    lesson = registry.get("F-013")
    assert lesson is not None
    assert "told in F-011:" in " ".join(x.strip() for x, _ in entry(registry, lesson, 80, TODAY))


def test_days(put: Put) -> None:
    put("F-028", "due: 2026-11-21\nreview: look\n")
    put("F-029", "due: 2026-11-22\nreview: look\n")
    put("F-030", "due: 2026-11-23\nreview: look\n")
    put("F-031")
    registry = load_registry()
    words = [due_words(one, TODAY) for one in registry.lessons if one.own]
    assert words == [
        "due since 2026-11-21 (1 day)", "due today, 2026-11-22", "due on 2026-11-23", "no date",
    ]  # fmt: skip


def test_foreign_text_is_harmless(put: Put) -> None:
    put("F-028", 'notes: ["a\\e[2Jb\\u202e"]\nwrong: "x\\e]52;c;QQ\\ay"\n', title='"\\e[31mred"')
    registry = load_registry()
    lesson = registry.get("F-028")
    assert lesson is not None
    lines = [*(line for line, _ in entry(registry, lesson, 60, TODAY)), row(lesson)]
    assert all(line.isprintable() for line in lines)
