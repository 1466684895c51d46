"""A registry of the operator's own in a directory of the test; what ships is read once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from console.common import paths
from console.config.lessons import registry as registry_file
from console.config.lessons.registry import Lesson, Registry, load_registry

LESSON = """\
schema: omni.lesson/v1
id: {id}
title: {title}
date: 2026-11-01
status: {status}
symptom: it fell over
cause: gravity
"""
Put = Callable[..., Path]
COUNT = len(list(registry_file.SHIPPED.glob("*.yaml")))
"""How many lessons ship."""
_load = registry_file.load_lesson
_shipped = cache(_load)


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's own lessons but the test's, and those that ship parsed once for all tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def once(path: Path) -> Lesson:
        return _shipped(path) if path.parent == registry_file.SHIPPED else _load(path)

    monkeypatch.setattr(registry_file, "load_lesson", once)


@pytest.fixture
def registry(own_directory: None) -> Registry:
    """What ships."""
    return load_registry()


@pytest.fixture
def put(own_directory: None) -> Put:
    """Writes a lesson of one's own: an id, more lines, and what else differs."""
    paths.lessons_dir().mkdir(parents=True)

    def write(
        lesson_id: str, more: str = "", *, title: str = "Mine", status: str = "stands"
    ) -> Path:
        path = paths.lessons_dir() / f"{lesson_id}.yaml"
        path.write_text(LESSON.format(id=lesson_id, title=title, status=status) + more)
        return path

    return write
