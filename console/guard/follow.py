"""Fatal lines in the logs of services, counted since each was armed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from console.text import LINE_LIMIT, clean, decode, one_line

BEHIND = 8 << 20
"""Bytes that are read at one look; a file that grew by more loses what came before."""
BLOCK = 1 << 18
PATIENCE_S = 0.2
"""A pattern may take so long over one line; one that took longer three times is not used again."""
STRIKES = 3
LOST_S = 3.0
"""A log that is not there for longer cannot be watched; it may come a moment after its service."""
TOO_LONG = "the pattern takes too long: it is not looked for any more"
_NEEDLE = 4096
_CAPPED = re.compile(rb"--- [^\n]{1,80} of older log dropped[^\n]{0,40} ---\n")


class Tail:
    """A log file that grows, is cut or is replaced. Lines written before it was met are not read,
    unless the file appears later."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.why = ""
        self._lost_at = 0.0
        self._file = -1
        self._identity = (0, 0)
        self._at = 0
        self._rest = b""
        self._last = b""
        self._open(end=True)

    def lines(self) -> Iterator[bytes]:
        """Whole lines that came since the last call, each of LINE_LIMIT bytes at most."""
        size = self._size()
        if size is None:
            return
        if size - self._at > BEHIND:
            self._at, self._rest = size - BEHIND, b""
        while self._at < size:
            with contextlib.suppress(OSError):
                data = os.pread(self._file, min(BLOCK, size - self._at), self._at)
            if not data:
                return
            self._at += len(data)
            self._last = (self._last + data)[-_NEEDLE:]
            *whole, self._rest = (self._rest + data).split(b"\n")
            yield from (line[:LINE_LIMIT] for line in whole)
            self._rest = self._rest[: 2 * LINE_LIMIT]

    @property
    def lost(self) -> str:
        """`why`, once it has lasted."""
        return self.why if time.monotonic() - self._lost_at >= LOST_S else ""

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lose(self, why: str | None) -> None:
        if not self.why:
            self._lost_at = time.monotonic()
        self.why = one_line(f"the log cannot be read: {why}")

    def _size(self) -> int | None:
        """How long the open file is; another one that took its name comes after its last byte."""
        try:
            if self._file >= 0:
                size = os.fstat(self._file).st_size
                if size > self._at:
                    return size
            else:
                size = self._at
            found = os.stat(self.path)
            if self._file < 0 or (found.st_dev, found.st_ino) != self._identity:
                return self._size() if self._open(end=False) else None
        except OSError as error:
            self._lose(error.strerror)
            return None
        if size < self._at:
            self._go_on()
        return size

    def _open(self, end: bool) -> bool:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = os.open(self.path, flags)
        except OSError as error:
            self._lose(error.strerror)
            return False
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            self._lose("it is not a file")
            return False
        self.close()
        self._file, self.why = descriptor, ""
        self._identity = (found.st_dev, found.st_ino)
        if end:
            self._at = found.st_size
        else:
            self._go_on()
        return True

    def _go_on(self) -> None:
        """In a cut or new file: behind what was read, where the cap of our own logs kept it."""
        needle, self._last, self._rest, self._at = self._last, b"", b"", 0
        with contextlib.suppress(OSError):
            kept = os.pread(self._file, BEHIND, 0)
            if needle and _CAPPED.match(kept) and (at := kept.rfind(needle)) >= 0:
                self._at, self._last = at + len(needle), needle


@dataclass(slots=True)
class Watched:
    """One limit of the sheet that is on a log: `limit` is its index there."""

    limit: int
    service: str
    pattern: re.Pattern[str]
    armed: int = -1
    count: int = 0
    line: str = ""
    strikes: int = 0


@dataclass(slots=True)
class Logs:
    """Every followed file and every pattern. Main thread only: a signal ends a slow pattern."""

    tails: dict[str, Tail] = field(default_factory=dict)
    watched: list[Watched] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    """Limits that are not looked for, and why."""
    _armed: frozenset[str] = frozenset()
    _unfit: list[tuple[int, str]] = field(default_factory=list)

    def set(self, files: dict[str, str], patterns: list[tuple[int, str, str]]) -> None:
        """Follow those of these files (service → path) that one of these (limit, service, regex)
        is about."""
        files = {one: files[one] for _, one, _ in patterns if one in files}
        for service in [one for one in self.tails if files.get(one) != self.tails[one].path]:
            self.tails.pop(service).close()
        for service, path in files.items():
            if service not in self.tails:
                self.tails[service] = Tail(path)
        before = {(one.limit, one.service, one.pattern.pattern): one for one in self.watched}
        self.watched, self.bad = [], {}
        self._unfit = [(limit, service) for limit, service, _ in patterns]
        for limit, service, text in patterns:
            try:
                made = Watched(limit, service, re.compile(text))
            except (re.error, RecursionError, OverflowError) as error:
                self.bad[limit] = one_line(f"no pattern: {error}")
                continue
            one = before.get((limit, service, text), made)
            self.watched.append(one)
            self._unfit.remove((limit, service))
            if one.strikes >= STRIKES:
                self.bad[limit] = TOO_LONG

    def arm(self, armed: dict[str, int]) -> None:
        """Which arming each service is in: a new one counts from zero, without one none counts."""
        self._armed = frozenset(armed)
        for one in self.watched:
            number = armed.get(one.service, -1)
            if number != one.armed:
                one.armed, one.count, one.line = number, 0, ""

    def look(self) -> bool:
        """Read what came; whether a count rose."""
        rose = False
        for service, tail in self.tails.items():
            mine = [w for w in self.watched if w.service == service and w.armed >= 0]
            for line in tail.lines():
                text = clean(decode(line))
                for one in mine:
                    if one.strikes < STRIKES and self._matches(one, text):
                        one.count, one.line, rose = one.count + 1, text[:200], True
        return rose

    def hits(self) -> list[dict[str, Any]]:
        """What was counted of each limit whose service is alive, and `why` no more can be."""
        found = [
            {
                "limit": one.limit, "count": one.count, "line": one.line,
                "why": self.bad.get(one.limit) or self._lost(one.service),
            }
            for one in self.watched if one.armed >= 0
        ]  # fmt: skip
        found += [
            {"limit": limit, "count": 0, "line": "", "why": self.bad[limit]}
            for limit, service in self._unfit if service in self._armed
        ]  # fmt: skip
        return found

    def _lost(self, service: str) -> str:
        tail = self.tails.get(service)
        return tail.lost if tail is not None else "no log of it is known"

    def close(self) -> None:
        for tail in self.tails.values():
            tail.close()

    def _matches(self, one: Watched, text: str) -> bool:
        # `re` looks for signals while it works: the alarm's handler raises out of it.
        try:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
            return one.pattern.search(text) is not None
        except TooSlow:
            one.strikes += 1
            if one.strikes >= STRIKES:
                self.bad[one.limit] = TOO_LONG
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class TooSlow(Exception):
    """A pattern did not end in time."""


def on_alarm(number: int, frame: FrameType | None) -> None:
    raise TooSlow
