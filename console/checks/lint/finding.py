"""What lint says: a rule, how grave, where, and what to do; one clean line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from console.common import redact
from console.common.text import one_line

WORDS_LIMIT = 400
BLOCKER = "known-blocker"
"""No rule of a text: what a run is asked about lessons that its playbook names."""


class Severity(StrEnum):
    """`error` stops a run, `warning` is told before it, `info` is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file; both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule found: `what` about this very place; None leaves severity and fix to the rule."""

    place: Place
    what: str
    severity: Severity | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit of a rule in a file. `suppressed` is the reason a comment gives, "" where none does."""

    file: str
    line: int
    column: int
    rule: str
    severity: Severity
    what: str
    fix: str = ""
    lessons: tuple[str, ...] = field(default=())
    suppressed: str = ""

    def __post_init__(self) -> None:
        for name in ("file", "what", "fix", "suppressed"):
            object.__setattr__(self, name, redact.text(one_line(getattr(self, name), WORDS_LIMIT)))

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        return self.file, self.line, self.column, self.rule, self.what

    @property
    def text(self) -> str:
        """`file:line:column: severity: what [rule F-003]`."""
        cited = " ".join((self.rule, *self.lessons))
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.what} [{cited}]"
