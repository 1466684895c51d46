"""Errors the operator reads, and the exit codes.

ConsoleError
├── UsageError           bad command line
├── InvalidFile          playbook, site or input file with a list of problems
├── EngineError          the container engine
│   └── EngineTimeout    it did not answer within its deadline
├── ServiceError         a service did not start, stop or get ready
├── HostBusy             another run holds the host
├── BaselineNotReady     no run starts without a baseline that has just served
├── ControlError         a verb was refused or the runner did not answer
└── RollbackFailed       the baseline is not serving
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from console.common.text import clean


class Exit(IntEnum):
    """Exit codes, the same for the same outcome in every command; their meaning in words is
    `EXIT_MEANING` in `console.common.output`."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    NO_GO = 3
    HOLD = 4
    FAILED = 5
    ROLLED_BACK = 6
    ROLLBACK_FAILED = 7
    BUSY = 8
    LINT = 9
    INTERRUPTED = 130


class ConsoleError(Exception):
    """What went wrong, the detail, and what to do next; never markup, never a traceback."""

    exit_code: Exit = Exit.INTERNAL

    def __init__(self, title: str, detail: str = "", hint: str = "") -> None:
        super().__init__(title)
        self.title = title
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        # one line: what several lines say to a person is in `lines`
        detail = "; ".join(filter(None, map(str.strip, self.detail.splitlines())))
        return f"{self.title}: {detail}" if detail else self.title

    def lines(self) -> list[str]:
        """The error as an operator reads it, clean: title, detail, hint."""
        out = [self.title]
        if self.detail:
            out += [f"  {line}" for line in self.detail.splitlines()]
        if self.hint:
            out.append(f"  hint: {self.hint}")
        return [clean(line) for line in out]


class UsageError(ConsoleError):
    exit_code = Exit.USAGE


class Problem(NamedTuple):
    """One finding in a file; line and column count from 1, 0 means "the file as a whole"."""

    file: str
    line: int
    column: int
    what: str
    expected: str = ""
    hint: str = ""

    def map_words(self, shown: Callable[[str], str]) -> Problem:
        """The same with every word passed through `shown`."""
        words = (shown(self.what), shown(self.expected), shown(self.hint))
        return Problem(self.file, self.line, self.column, *words)

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.what}"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.hint:
            text += f" (hint: {self.hint})"
        return text


class InvalidFile(ConsoleError):
    """A file the operator wrote cannot be used; carries every problem found in it."""

    exit_code = Exit.USAGE

    def __init__(self, title: str, problems: list[Problem], hint: str = "") -> None:
        super().__init__(title, "\n".join(str(p) for p in problems), hint)
        self.problems = problems


class EngineError(ConsoleError):
    exit_code = Exit.FAILED


class EngineTimeout(EngineError):
    pass


class ServiceError(ConsoleError):
    exit_code = Exit.FAILED


class HostBusy(ConsoleError):
    exit_code = Exit.BUSY


class BaselineNotReady(ConsoleError):
    exit_code = Exit.FAILED


class ControlError(ConsoleError):
    exit_code = Exit.FAILED


class RollbackFailed(ConsoleError):
    exit_code = Exit.ROLLBACK_FAILED
