"""What a doctor's check says: plain values, clean text, groups in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from console.common.text import clean_lines, one_line

if TYPE_CHECKING:
    from console.checks.doctor.facts import Facts

DETAIL_LIMIT = 600
HINT_LINES = 12

GROUPS = {
    "login": "This login",
    "machine": "Machine",
    "gpu": "GPU",
    "guard": "Sentinel",
    "engine": "Container engine",
    "baseline": "Baseline",
    "console": "Console",
}
"""First part of a check's id → the heading it stands under, in the order of the page."""


class Level(StrEnum):
    """How much a finding matters; only `failed` changes the exit code."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page, clean: what was looked at, what was found, what to do about it.

    `id` is the check's, like `gpu.cards`; a check that finds several things uses it again.
    `hint` may have several lines.
    """

    id: str
    level: Level
    what: str
    detail: str
    hint: str = ""

    def __post_init__(self) -> None:
        # Whatever a check was told by a driver, an engine or a file ends here.
        object.__setattr__(self, "what", one_line(self.what, 60))
        object.__setattr__(self, "detail", one_line(self.detail, DETAIL_LIMIT))
        hint = "\n".join(clean_lines(self.hint, DETAIL_LIMIT, HINT_LINES))
        object.__setattr__(self, "hint", hint)

    @property
    def group(self) -> str:
        """The heading it stands under."""
        return GROUPS[self.id.partition(".")[0]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at. `look(facts, check)` gives its findings, none where there is nothing
    to say; `silent` is the level of "no answer in time"."""

    id: str
    what: str
    look: Callable[[Facts, Check], Iterable[Finding]]
    silent: Level = Level.FAILED

    def ok(self, detail: str) -> Finding:
        return self.found(Level.OK, detail)

    def note(self, detail: str, hint: str = "") -> Finding:
        return self.found(Level.NOTE, detail, hint)

    def warning(self, detail: str, hint: str = "") -> Finding:
        return self.found(Level.WARNING, detail, hint)

    def failed(self, detail: str, hint: str = "") -> Finding:
        return self.found(Level.FAILED, detail, hint)

    def found(self, level: Level, detail: str, hint: str = "") -> Finding:
        return Finding(self.id, level, self.what, detail, hint)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one check came to; `position` is its place on the page, counted from 0."""

    position: int
    check: Check
    findings: tuple[Finding, ...]
