"""Ids of lessons, from the names of their files alone: what refers to one is checked without
reading any.

F: a failure, S: what worked, P: a pivot, A: an audit, D: a plan or evaluation. A letter behind the
number (F-006B) is where the log has given a number twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from console.common import paths

SHIPPED = Path(__file__).with_name("registry")
ENDING = ".yaml"
YAML = (".yaml", ".yml")
KINDS = {"F": "failure", "S": "success", "P": "pivot", "A": "audit", "D": "plan or evaluation"}
ID = r"[FSPAD]-\d{3}[A-Z]?"
_TYPED = re.compile(r"([FSPADfspad])-?0*(\d{1,3})([A-Za-z]?)")


def files() -> dict[str, Path]:
    """Id → file. One of the operator's own stands in the place of a shipped one."""
    return _in(SHIPPED) | _in(paths.lessons_dir())


def known() -> frozenset[str]:
    """Every id of the registry, the operator's own ones included."""
    return frozenset(files())


def misnamed() -> list[Path]:
    """YAML files of the operator's own that no lesson is read from, by their names."""
    own = paths.lessons_dir()
    shown = (one for one in _names(own) if one.endswith(YAML) and not one.startswith("."))
    return sorted(own / one for one in shown if not _is_named(one))


def is_own(path: Path) -> bool:
    """Whether the operator wrote it."""
    return path.parent != SHIPPED


def typed(text: str) -> str:
    """What somebody typed as an id, in its one form (f22 → F-022); "" where it is none."""
    match = _TYPED.fullmatch(text.strip())
    if match is None:
        return ""
    letter, number, again = match.groups()
    return f"{letter.upper()}-{int(number):03d}{again.upper()}"


def near(text: str, ids: Iterable[str]) -> str:
    """A known id that may have been meant (F22, F-220 for F-022), or ""."""
    found = sorted(ids)
    if typed(text) in found:
        return typed(text)
    letters = sorted(text.upper())
    return next((one for one in found if sorted(one) == letters), "")


def meant(text: str) -> str:
    """A hint where a text is the id of no lesson."""
    one = near(text, known())
    return f"did you mean {one}?" if one else "omni-console lessons lists them"


def next_free(letter: str, ids: Iterable[str]) -> str:
    """The id after the highest one of its kind. Raises ValueError after 999."""
    numbers = [int(one[2:5]) for one in ids if one.startswith(f"{letter}-")]
    number = max(numbers, default=0) + 1
    if number > 999:
        raise ValueError(f"no number is free for {letter}")
    return f"{letter}-{number:03d}"


def order(lesson_id: str) -> tuple[int, str]:
    """By kind, then by number."""
    return "FSPAD".find(lesson_id[:1]), lesson_id


def _in(directory: Path) -> dict[str, Path]:
    found = (directory / name for name in _names(directory) if _is_named(name))
    return {one.stem: one for one in found}


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _is_named(name: str) -> bool:
    return re.fullmatch(f"{ID}{re.escape(ENDING)}", name) is not None
