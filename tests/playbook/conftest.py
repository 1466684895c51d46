"""A playbook file of the test's own; nobody's runs, lessons and site but the test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbook.book import Book


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("OMNI_SITE", raising=False)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)
