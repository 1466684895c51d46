"""Paths as given → files to look at: a directory gives the files in it that may be of a kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from console.checks.lint import files as source

MOST_FILES = 20_000
_PASSED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache",
     ".pytest_cache", ".ruff_cache", "site-packages"}
)  # fmt: skip


class TooMany(Exception):
    """More files than anybody wants to have looked at."""


def files(given: Path) -> Iterator[tuple[Path, str]]:
    """(file, what is wrong with a directory on the way, else ""); in order, links not followed.

    Raises TooMany.
    """
    failed: list[tuple[Path, str]] = []

    def note(error: OSError) -> None:
        failed.append((Path(error.filename or given), f"cannot be read: {error.strerror}"))

    count = 0
    for folder, folders, names in os.walk(given, onerror=note):
        folders[:] = sorted(one for one in folders if one not in _PASSED)
        for name in sorted(names):
            path = Path(folder, name)
            if not _may_be(path):
                continue
            count += 1
            if count > MOST_FILES:
                raise TooMany(f"more than {MOST_FILES} files")
            yield path, ""
    yield from failed


def _may_be(path: Path) -> bool:
    """By its name only: a file of no known name is not opened."""
    if path.is_symlink():
        return False
    return source.is_yaml(path) or source.kind_by_name(path) is not None
