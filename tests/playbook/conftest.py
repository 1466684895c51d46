from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbook.book import Book


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)
