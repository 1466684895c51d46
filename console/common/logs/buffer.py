"""The lines that a log pane keeps: bounded, numbered, filtered and searched in slices of time.

A search or filter is a `Pattern`; one that would never end is given up.
"""

from __future__ import annotations

import gc
import re
import signal
import threading
import time
import warnings
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from sys import getsizeof
from typing import Any

from console.common.logs.line import LogLine

MATCHED = 2000
"""Characters of a line that a pattern sees."""
_ESCAPED = re.compile(r"\\.")

SLOW_CPU_S = 0.15
"""CPU seconds beyond its slice after which a pattern is given up."""
SLOW_LINE_S = 0.0005
"""Average seconds per line, over SLOW_OVER_S of matching, that make a pattern too slow."""
SLOW_OVER_S = 0.5
_LOOK_AT_CLOCK = 32

MAX_LINES = 10_000
MAX_BYTES = 8 * 1024 * 1024


class TooSlow(Exception):
    """A pattern took longer than allowed."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `words` as they were typed. `plain`: taken as text, not as a regex."""

    words: str
    regex: re.Pattern[str]
    inverse: bool = False
    plain: bool = False

    def accepts(self, text: str) -> bool:
        """Whether the pattern shows this line or finds it."""
        return (self.regex.search(text, 0, MATCHED) is None) is self.inverse

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it matches; nothing for an inverse pattern or an empty match."""
        if self.inverse:
            return []
        match_spans = [match.span() for match in self.regex.finditer(text, 0, MATCHED)]
        return [(start, end) for start, end in match_spans if end > start]

    def as_plain(self) -> Pattern:
        """The same words as plain text, which is never slow."""
        return _compile(self.words, inverse=self.inverse, plain=True)


def pattern(words: str, *, may_invert: bool = False) -> Pattern | None:
    """A regex, or plain text if it is not a valid one; None without words.

    Case matters if the words have a capital letter. With `may_invert`, a leading `!` inverts it.
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
_AGAIN_S = 0.1
"""CPU seconds until the alarm rings again: far longer than disarming takes."""


def _ring(_number: int, _frame: Any) -> None:
    if _armed:
        raise TooSlow


@contextmanager
def at_most(cpu_s: float) -> Iterator[None]:
    """Raise TooSlow in the body after this many seconds of the process's CPU time.

    `re` handles signals while it matches, and nothing else can end a match that would take years.
    Works in the main thread, where the screen is drawn; does nothing elsewhere. An exception raised
    in a destructor is lost, so the alarm rings again; one raised in a callback of the garbage
    collector would be reported, so it is postponed.
    """
    global _armed, _installed
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _installed:
        signal.signal(signal.SIGVTALRM, _ring)
        _installed = True
    collecting = gc.isenabled()
    try:
        gc.disable()
        _armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s, _AGAIN_S)
        yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collecting:
            gc.enable()


class Numbers:
    """Line numbers in rising order: added at the end, pruned at the front."""

    def __init__(self) -> None:
        self.all: deque[int] = deque()

    def add(self, number: int) -> None:
        self.all.append(number)

    def prune(self, first: int) -> None:
        while self.all and self.all[0] < first:
            self.all.popleft()

    def take_back(self, end: int) -> None:
        """Drop `end` and what is above."""
        while self.all and self.all[-1] >= end:
            self.all.pop()

    def at(self, number: int) -> int:
        """Index of the first that is `number` or above."""
        return bisect_left(self.all, number)


class Matches(Numbers):
    """The lines that a pattern accepts. `done`: the number of the first line not yet examined."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        self.pattern = pattern
        self.done = 0
        self.too_slow = False
        self._spent = 0.0
        self._looked = 0

    def take_back(self, end: int) -> None:
        super().take_back(end)
        self.done = min(self.done, end)

    def look_at(self, lines: Iterable[tuple[int, LogLine]], until: float) -> None:
        """Examine lines until `time.perf_counter()` passes `until`.

        A pattern that is too slow for a log starts again as plain text.
        """
        begun = time.thread_time()  # a stall of the machine is not the pattern's
        try:
            with at_most(max(0.0, until - time.perf_counter()) + SLOW_CPU_S):
                self._look_at(lines, until)
        except TooSlow:
            self.give_up()
            return
        self._spent += time.thread_time() - begun
        if self._spent > SLOW_OVER_S and self._spent > self._looked * SLOW_LINE_S:
            self.give_up()

    def _look_at(self, lines: Iterable[tuple[int, LogLine]], until: float) -> None:
        accepts, add = self.pattern.accepts, self.all.append
        for number, line in lines:
            if accepts(line.text):
                add(number)
            self.done = number + 1
            self._looked += 1
            if self._looked % _LOOK_AT_CLOCK == 0 and time.perf_counter() > until:
                break

    def give_up(self) -> None:
        """Begin again with the words as plain text."""
        if self.pattern.plain:  # a busy machine, not the pattern
            self.take_back(self.done)
            return
        self.pattern = self.pattern.as_plain()
        self.too_slow = True
        self.done = 0
        self.all.clear()
        self._spent = 0.0
        self._looked = 0


class LogBuffer:
    """The newest lines. A line keeps its number while older ones are dropped.

    *Visible* lines are those that the filter accepts; all without a filter. `index` counts visible
    lines from the oldest kept; a `number` names a line for as long as it is kept.
    """

    def __init__(self, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> None:
        """`max_bytes` bounds the memory that the text of the lines takes."""
        self.max_lines = max_lines
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self.first = 0
        self._lines: deque[LogLine] = deque()
        self._errors = Numbers()
        self.filter: Matches | None = None
        """The filter that selects the visible lines."""
        self.searched: Matches | None = None
        """The search and its matches among the visible lines."""

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def end(self) -> int:
        """The number that the next line will get."""
        return self.first + len(self._lines)

    @property
    def dropped(self) -> int:
        return self.first

    def append(self, lines: Iterable[LogLine]) -> None:
        """Add lines; one that follows an open line replaces it under the same number."""
        kept = self._lines
        for line in lines:
            if kept and kept[-1].open and line.kind != "marker":
                self._take_back()
            kept.append(line)
            self.held_bytes += getsizeof(line.text)
            if line.kind == "error":
                self._errors.add(self.first + len(kept) - 1)
            if len(kept) > self.max_lines or self.held_bytes > self.max_bytes:
                self._drop()
        for numbers in (self._errors, self.filter, self.searched):
            if numbers is not None:
                numbers.prune(self.first)

    def clear(self) -> None:
        """Drop every line and start again; filter and search stay."""
        self._lines.clear()
        self._errors = Numbers()
        self.first = self.held_bytes = 0
        if self.filter is not None:
            self.show(self.filter.pattern)
        if self.searched is not None:
            self.search(self.searched.pattern)

    def _drop(self) -> None:
        while len(self._lines) > self.max_lines or (
            self.held_bytes > self.max_bytes and len(self._lines) > 1
        ):
            self.held_bytes -= getsizeof(self._lines.popleft().text)
            self.first += 1

    def _take_back(self) -> None:
        self.held_bytes -= getsizeof(self._lines.pop().text)
        for numbers in (self._errors, self.filter, self.searched):
            if numbers is not None:
                numbers.take_back(self.end)

    # visible lines

    @property
    def visible(self) -> int:
        return len(self._lines) if self.filter is None else len(self.filter.all)

    def number(self, index: int) -> int:
        return self.first + index if self.filter is None else self.filter.all[index]

    def index(self, number: int) -> int:
        """Index of the first visible line with this number or a higher one, else `visible`."""
        if self.filter is None:
            return min(max(0, number - self.first), len(self._lines))
        return self.filter.at(number)

    def line(self, number: int) -> LogLine:
        """A kept line; raises IndexError if it is not kept."""
        if number < self.first:
            raise IndexError(number)
        return self._lines[number - self.first]

    # filter and search

    @property
    def settled(self) -> bool:
        """Whether the filter has seen every line."""
        return self.filter is None or self.filter.done >= self.end

    def show(self, wanted: Pattern | None) -> None:
        """Set or end the filter; `work` finds its lines."""
        self.filter = Matches(wanted) if wanted is not None else None
        if self.searched is not None:
            self.search(self.searched.pattern)

    def search(self, wanted: Pattern | None) -> None:
        """Set or end the search; `work` finds its matches."""
        self.searched = Matches(wanted) if wanted is not None else None

    def work(self, slice_s: float) -> bool:
        """Filter and search for about this many seconds; True if there is more to do."""
        until = time.perf_counter() + slice_s
        if (chosen := self.filter) is not None and chosen.done < self.end:
            slow = chosen.too_slow
            chosen.look_at(self._from(max(chosen.done, self.first)), until)
            if chosen.too_slow is not slow and self.searched is not None:
                self.search(self.searched.pattern)
            if chosen.done < self.end:
                return True
        if (sought := self.searched) is not None and sought.done < self.end:
            sought.look_at(self._visible_from(max(sought.done, self.first)), until)
            if sought.done < self._last_visible():
                return True
        return False

    def _last_visible(self) -> int:
        """One past the number of the last visible line."""
        if self.filter is None:
            return self.end
        return self.filter.all[-1] + 1 if self.filter.all else 0

    def _from(self, number: int) -> Iterator[tuple[int, LogLine]]:
        return zip(count(number), islice(self._lines, number - self.first, None), strict=False)

    def _visible_from(self, number: int) -> Iterator[tuple[int, LogLine]]:
        if self.filter is None:
            return self._from(number)
        numbers = islice(self.filter.all, self.filter.at(number), None)
        return ((number, self._lines[number - self.first]) for number in numbers)

    def match(self, number: int, step: int) -> int | None:
        """The next match below (`step` 1) or above (-1) a line, wrapping around, or None."""
        return self._next(self.searched, number, step) if self.searched is not None else None

    def error(self, number: int, step: int) -> int | None:
        """The next visible error below or above a line, wrapping around; None without any."""
        return self._next(self._errors, number, step)

    @property
    def errors(self) -> int:
        """How many of the lines kept look like an error."""
        return len(self._errors.all)

    def _next(self, numbers: Numbers, number: int, step: int) -> int | None:
        total = len(numbers.all)
        at = numbers.at(number + 1) if step > 0 else numbers.at(number) - 1
        for _ in range(total):
            candidate = numbers.all[at % total]
            if self._is_visible(candidate):
                return candidate
            at += step
        return None

    def _is_visible(self, number: int) -> bool:
        at = self.index(number)
        return at < self.visible and self.number(at) == number
