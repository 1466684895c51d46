"""The lessons a playbook names are in the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.common import paths
from console.common.errors import InvalidFile
from console.config.playbook.load import load_playbook

BOOK = """\
schema: omni.playbook/v1
name: x
title: x
lessons: {lessons}
phases: [{{title: t, steps: [{{id: n, note: hi}}]}}]
"""


def book(place: Path, lessons: str) -> Path:
    path = place / "x.yaml"
    path.write_text(BOOK.format(lessons=lessons))
    return path


def test_ids_of_the_registry_load(tmp_path: Path) -> None:
    loaded = load_playbook(book(tmp_path, "[F-002, S-013, P-001, D-004]"))
    assert loaded.model.lessons == ["F-002", "S-013", "P-001", "D-004"]


def test_ones_own_counts_and_a_runs_copy_outlives_it(tmp_path: Path) -> None:
    paths.lessons_dir().mkdir(parents=True)
    mine = paths.lessons_dir() / "F-028.yaml"
    mine.touch()
    path = book(tmp_path, "[F-028]")
    assert load_playbook(path).model.lessons == ["F-028"]
    mine.unlink()
    with pytest.raises(InvalidFile):
        load_playbook(path)
    assert load_playbook(path, pinned=True).model.lessons == ["F-028"]
