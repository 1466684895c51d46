"""The lines a log pane keeps: bounded, numbered for good, filtered and searched in slices."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count, islice
from sys import getsizeof

from console.common.logs.line import LogLine
from console.common.logs.pattern import Pattern
from console.common.logs.sieve import Numbers, Sieve

MOST_LINES = 10_000
MOST_BYTES = 8 * 1024 * 1024


class LogBuffer:
    """The newest lines. A line keeps its number while older ones are dropped.

    What is *visible* are the lines that the filter accepts; without a filter, all. `index` counts
    visible lines from the oldest kept; a `number` names a line for as long as it is kept.
    """

    def __init__(self, most_lines: int = MOST_LINES, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` bounds the memory that the text of the lines takes."""
        self.most_lines = most_lines
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self.first = 0
        self._lines: deque[LogLine] = deque()
        self._errors = Numbers()
        self._filter: Sieve | None = None
        self._search: Sieve | None = None

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def end(self) -> int:
        """The number that the next line will get."""
        return self.first + len(self._lines)

    @property
    def dropped(self) -> int:
        """How many lines were dropped to keep the bounds."""
        return self.first

    def append(self, lines: Iterable[LogLine]) -> None:
        """Add lines; one that follows an open line takes its place and its number."""
        kept = self._lines
        for line in lines:
            if kept and kept[-1].open and line.kind != "marker":
                self._take_back()
            kept.append(line)
            self.held_bytes += getsizeof(line.text)
            if line.kind == "error":
                self._errors.add(self.first + len(kept) - 1)
            if len(kept) > self.most_lines or self.held_bytes > self.most_bytes:
                self._drop()
        for numbers in (self._errors, self._filter, self._search):
            if numbers is not None:
                numbers.prune(self.first)

    def clear(self) -> None:
        """Forget every line and begin anew; filter and search stay."""
        self._lines.clear()
        self._errors = Numbers()
        self.first = self.held_bytes = 0
        if self._filter is not None:
            self.show(self._filter.pattern)
        if self._search is not None:
            self.search(self._search.pattern)

    def _drop(self) -> None:
        while len(self._lines) > self.most_lines or (
            self.held_bytes > self.most_bytes and len(self._lines) > 1
        ):
            self.held_bytes -= getsizeof(self._lines.popleft().text)
            self.first += 1

    def _take_back(self) -> None:
        self.held_bytes -= getsizeof(self._lines.pop().text)
        for numbers in (self._errors, self._filter, self._search):
            if numbers is not None:
                numbers.take_back(self.end)

    # visible lines

    @property
    def visible(self) -> int:
        """How many lines are visible."""
        return len(self._lines) if self._filter is None else len(self._filter.all)

    def number(self, index: int) -> int:
        """The number of a visible line."""
        return self.first + index if self._filter is None else self._filter.all[index]

    def index(self, number: int) -> int:
        """Index of the first visible line with this number or a higher one, else `visible`."""
        if self._filter is None:
            return min(max(0, number - self.first), len(self._lines))
        return self._filter.at(number)

    def line(self, number: int) -> LogLine:
        """A kept line; IndexError where it is none."""
        if number < self.first:
            raise IndexError(number)
        return self._lines[number - self.first]

    # filter and search

    @property
    def filter(self) -> Sieve | None:
        """What chooses the visible lines."""
        return self._filter

    @property
    def searched(self) -> Sieve | None:
        """The search and its matches among the visible lines."""
        return self._search

    @property
    def settled(self) -> bool:
        """Whether the filter has seen every line."""
        return self._filter is None or self._filter.done >= self.end

    def show(self, wanted: Pattern | None) -> None:
        """Set or end the filter; `work` finds its lines."""
        self._filter = Sieve(wanted) if wanted is not None else None
        if self._search is not None:
            self.search(self._search.pattern)

    def search(self, wanted: Pattern | None) -> None:
        """Set or end the search; `work` finds its matches."""
        self._search = Sieve(wanted) if wanted is not None else None

    def work(self, slice_s: float) -> bool:
        """Filter and search for about so many seconds; True while there is more to do."""
        until = time.perf_counter() + slice_s
        if (chosen := self._filter) is not None and chosen.done < self.end:
            slow = chosen.too_slow
            chosen.sift(self._from(max(chosen.done, self.first)), until)
            if chosen.too_slow is not slow and self._search is not None:
                self.search(self._search.pattern)
            if chosen.done < self.end:
                return True
        if (sought := self._search) is not None and sought.done < self.end:
            sought.sift(self._visible_from(max(sought.done, self.first)), until)
            if sought.done < self._last_visible():
                return True
        return False

    def _last_visible(self) -> int:
        """One past the number of the last visible line."""
        if self._filter is None:
            return self.end
        return self._filter.all[-1] + 1 if self._filter.all else 0

    def _from(self, number: int) -> Iterator[tuple[int, LogLine]]:
        return zip(count(number), islice(self._lines, number - self.first, None), strict=False)

    def _visible_from(self, number: int) -> Iterator[tuple[int, LogLine]]:
        if self._filter is None:
            return self._from(number)
        numbers = islice(self._filter.all, self._filter.at(number), None)
        return ((number, self._lines[number - self.first]) for number in numbers)

    def match(self, number: int, step: int) -> int | None:
        """The next match below (`step` 1) or above (-1) a line, going round; None without any."""
        return self._next(self._search, number, step) if self._search is not None else None

    def error(self, number: int, step: int) -> int | None:
        """The next visible error below or above a line, going round; None if there is none."""
        return self._next(self._errors, number, step)

    def _next(self, numbers: Numbers, number: int, step: int) -> int | None:
        total = len(numbers.all)
        at = numbers.at(number + 1) if step > 0 else numbers.at(number) - 1
        for _ in range(total):
            found = numbers.all[at % total]
            if self._is_visible(found):
                return found
            at += step
        return None

    def _is_visible(self, number: int) -> bool:
        at = self.index(number)
        return at < self.visible and self.number(at) == number
