"""A registry of the operator's own in a directory of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from console import paths

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


@pytest.fixture(autouse=True)
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's own lessons but the test's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


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
