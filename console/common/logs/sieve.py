"""The numbers of the lines that a pattern accepts, found a slice of time at a time."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from console.common.logs.line import LogLine
from console.common.logs.pattern import Pattern, TooSlow, at_most

SLOW_CPU_S = 0.15
"""CPU seconds beyond its slice after which a pattern is given up."""
SLOW_LINE_S = 0.0005
"""Seconds a line on average, over SLOW_OVER_S of matching, that make a pattern too slow."""
SLOW_OVER_S = 0.5
_LOOK_AT_CLOCK = 32


class Numbers:
    """Line numbers in rising order: added at the end, pruned at the front."""

    def __init__(self) -> None:
        self.all: deque[int] = deque()

    def add(self, number: int) -> None:
        self.all.append(number)

    def prune(self, first: int) -> None:
        """Drop what is below `first`."""
        while self.all and self.all[0] < first:
            self.all.popleft()

    def take_back(self, end: int) -> None:
        """Drop `end` and what is above."""
        while self.all and self.all[-1] >= end:
            self.all.pop()

    def at(self, number: int) -> int:
        """Index of the first that is `number` or above."""
        return bisect_left(self.all, number)


class Sieve(Numbers):
    """The lines that a pattern accepts. `done`: the number of the first line not yet looked at."""

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

    def sift(self, lines: Iterable[tuple[int, LogLine]], until: float) -> None:
        """Look at lines until `time.perf_counter()` passes `until`.

        A pattern that is too slow for a log starts anew as plain text.
        """
        begun = time.thread_time()  # a stall of the machine is not the pattern's
        try:
            with at_most(max(0.0, until - time.perf_counter()) + SLOW_CPU_S):
                self._sift(lines, until)
        except TooSlow:
            self.give_up()
            return
        self._spent += time.thread_time() - begun
        if self._spent > SLOW_OVER_S and self._spent > self._looked * SLOW_LINE_S:
            self.give_up()

    def _sift(self, lines: Iterable[tuple[int, LogLine]], until: float) -> None:
        accepts, add = self.pattern.accepts, self.all.append
        for number, line in lines:
            if accepts(line.text):
                add(number)
            self.done = number + 1
            self._looked += 1
            if self._looked % _LOOK_AT_CLOCK == 0 and time.perf_counter() > until:
                break

    def give_up(self) -> None:
        """Begin anew with the words as plain text."""
        if self.pattern.plain:  # a busy machine, not the pattern
            self.take_back(self.done)
            return
        self.pattern = self.pattern.as_plain()
        self.too_slow = True
        self.done = 0
        self.all.clear()
        self._spent = 0.0
        self._looked = 0
