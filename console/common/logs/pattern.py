"""What an operator searches or filters for, and a guard against patterns that never end."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MATCHED = 2000
"""Characters of a line that a pattern sees."""
_ESCAPED = re.compile(r"\\.")


class TooSlow(Exception):
    """A pattern took longer than it was given."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `words` as they were typed. `plain`: taken as text, not as a regex."""

    words: str
    regex: re.Pattern[str]
    inverse: bool = False
    plain: bool = False

    def accepts(self, text: str) -> bool:
        """Whether a line is to be shown, or is a match."""
        return (self.regex.search(text, 0, MATCHED) is None) is self.inverse

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it matches; nothing for an inverse pattern or an empty match."""
        if self.inverse:
            return []
        found = [match.span() for match in self.regex.finditer(text, 0, MATCHED)]
        return [(start, end) for start, end in found if end > start]

    def as_plain(self) -> Pattern:
        """The same words as plain text, which is never slow."""
        return _compile(self.words, inverse=self.inverse, plain=True)


def pattern(words: str, *, may_invert: bool = False) -> Pattern | None:
    """A regex, or plain text where it is no valid one; None for no words.

    Case counts where there is a capital letter. With `may_invert`, a leading `!` turns it round.
    """
    inverse = may_invert and words.startswith("!")
    wanted = words[1:] if inverse else words
    if not wanted:
        return None
    try:
        return _compile(words, inverse=inverse, plain=False)
    except (re.error, OverflowError, RecursionError, Warning, TooSlow):
        return _compile(words, inverse=inverse, plain=True)


def _compile(words: str, *, inverse: bool, plain: bool) -> Pattern:
    wanted = words[1:] if inverse else words
    letters = wanted if plain else _ESCAPED.sub("", wanted)
    flags = re.NOFLAG if letters != letters.lower() else re.IGNORECASE
    with warnings.catch_warnings(), at_most(0.2):
        warnings.simplefilter("error")
        regex = re.compile(re.escape(wanted) if plain else wanted, flags)
    return Pattern(words, regex, inverse, plain)


_armed = False
_installed = False


def _ring(_number: int, _frame: Any) -> None:
    if _armed:
        raise TooSlow


@contextmanager
def at_most(cpu_s: float) -> Iterator[None]:
    """Raise TooSlow in the body after so many seconds of this process's CPU time.

    `re` looks for signals while it matches, and nothing else can end a match that would take
    years. It works in the main thread, where the screen is drawn; elsewhere it does nothing.
    """
    global _armed, _installed
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _installed:
        signal.signal(signal.SIGVTALRM, _ring)
        _installed = True
    try:
        _armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
        yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
