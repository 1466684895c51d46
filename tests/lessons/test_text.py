"""A lesson as text, at any width, with nothing in it that acts."""

from __future__ import annotations

from datetime import date

from console.config.lessons.registry import Registry, load_registry
from console.render.lessons import entry, row
from tests.lessons.conftest import Put

TODAY = date(2026, 11, 22)


def test_every_lesson_keeps_to_the_width(registry: Registry) -> None:
    for width in (30, 49, 60, 80, 110):
        for lesson in registry.lessons:
            model = lesson.model
            free = {f"    {one}" for one in (*model.wrong.split("\n"), *model.right.split("\n"))}
            free.add(str(lesson.path))
            lines = [line for line, _ in entry(registry, lesson, width, TODAY)]
            long = [one for one in lines if len(one) > width and one not in free]
            assert long == [], (lesson.id, width)


def test_foreign_text_is_harmless(put: Put) -> None:
    put("F-028", 'notes: ["a\\e[2Jb\\u202e"]\nwrong: "x\\e]52;c;QQ\\ay"\n', title='"\\e[31mred"')
    registry = load_registry()
    lesson = registry.get("F-028")
    assert lesson is not None
    lines = [*(line for line, _ in entry(registry, lesson, 60, TODAY)), row(lesson)]
    assert all(line.isprintable() for line in lines)
