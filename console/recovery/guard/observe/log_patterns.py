"""Fatal lines in the logs of services, counted from the moment each service was armed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from console.common.logs.buffer import TooSlow, at_most
from console.common.logs.level import Level, is_low, names_level, read, why_hint
from console.common.text import LINE_LIMIT, clean, decode, one_line
from console.common.units import format_bytes, plural

AT_ONCE, BEHIND = 8 << 20, 64 << 20
"""AT_ONCE is how many bytes one call reads. BEHIND is how many bytes the reader may lag behind the
end of the file; what lies further back is skipped, and that is reported."""
LONGEST = 1 << 20
"""How many bytes of a line are searched; the rest is skipped, and that is reported."""
MAX_PLACES = 16
"""How many matches within a line are judged."""
BEFORE = 100
"""How many characters of a line are shown before the match."""
SHOWN = 120
"""How many characters of a fatal line are named in a breach."""
OVERLAP = 512
"""A long line is searched in pieces that overlap by this many bytes."""
BLOCK = 1 << 18
SEARCH_S = 0.2
"""How many seconds of processor time a pattern may take on one line: a machine that stalls makes no
pattern slow. A pattern that took longer three times is not used any more."""
MAX_TIMEOUTS = 3
LOST_S = 3.0
"""A log may be missing for this long, because it may appear a moment after its service."""
TOO_LONG = "the pattern takes too long: it is not searched for any more"
_NEEDLE = 4096
_CAPPED = re.compile(rb"--- [^\n]{1,80} of older log dropped[^\n]{0,40} ---\n")


class Tail:
    """Follows a log file that grows, is truncated or is replaced. Lines from before the first
    opening are not read, unless the file appears later."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.why = ""
        self._lost_at = 0.0
        self._file = -1
        self._identity = (0, 0)
        self._at = 0
        self._rest = b""
        self._last = b""
        self.returned = b""
        """The unfinished line that was already returned."""
        self.skipped = 0
        """Bytes that were skipped since the service was armed."""
        self._open(end=True)

    def lines(self) -> Iterator[bytes]:
        """Yield the complete lines since the last call; if nothing came, the unfinished line."""
        size = self._size()
        if size is None:
            return
        if size == self._at and self._rest and self._rest is not self.returned:
            self.returned = self._rest
            yield self._rest
        if size - self._at > BEHIND:
            self.skipped += size - BEHIND - self._at
            self._at, self._rest = size - BEHIND, b""
        until = min(size, self._at + AT_ONCE)
        while self._at < until:
            try:
                data = os.pread(self._file, min(BLOCK, until - self._at), self._at)
            except OSError as error:
                return self._report_unreadable(error.strerror)
            self.why = ""
            if not data:
                return
            self._at += len(data)
            self._last = (self._last + data)[-_NEEDLE:]
            # progress bars overwrite their line: a carriage return ends a line, too
            *whole, self._rest = (self._rest + data.replace(b"\r", b"\n")).split(b"\n")
            yield from (line for line in whole if line)
            self.skipped += max(0, len(self._rest) - LONGEST)
            self._rest = self._rest[:LONGEST]

    def forget(self) -> None:
        """Drop the unfinished line, which was counted already, so that it is not returned again
        when it is complete."""
        self._rest = b""

    @property
    def trouble(self) -> str:
        """Why a line may have been missed, in words. `why` counts once it has lasted LOST_S."""
        if self.skipped:
            return f"{format_bytes(self.skipped)} of its log were not read: too much at once"
        return self.why if time.monotonic() - self._lost_at >= LOST_S else ""

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _report_unreadable(self, why: str | None) -> None:
        if not self.why:
            self._lost_at = time.monotonic()
        self.why = one_line(f"the log cannot be read: {why}")

    def _size(self) -> int | None:
        """Return the size of the open file. A file that took its name is opened once the old one
        has been read to its end."""
        try:
            if self._file >= 0:
                size = os.fstat(self._file).st_size
                if size > self._at:
                    return size
            else:
                size = self._at
            file_stat = os.stat(self.path)
            if self._file < 0 or (file_stat.st_dev, file_stat.st_ino) != self._identity:
                return self._size() if self._open(end=False) else None
        except OSError as error:
            self._report_unreadable(error.strerror)
            return None
        if size < self._at:
            self._find_place()
        return size

    def _open(self, end: bool) -> bool:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = os.open(self.path, flags)
        except OSError as error:
            self._report_unreadable(error.strerror)
            return False
        file_stat = os.fstat(descriptor)
        if not stat.S_ISREG(file_stat.st_mode):
            os.close(descriptor)
            self._report_unreadable("it is not a file")
            return False
        self.close()
        self._file, self.why = descriptor, ""
        self._identity = (file_stat.st_dev, file_stat.st_ino)
        if end:
            self._at = file_stat.st_size
        else:
            self._find_place()
        return True

    def _find_place(self) -> None:
        """Find the place to continue in a truncated or new file: after what was read already, if
        the size limit of our own logs has kept that part; else the start."""
        needle, self._last, self._rest, self._at = self._last, b"", b"", 0
        with contextlib.suppress(OSError):
            kept = os.pread(self._file, AT_ONCE, 0)
            if needle and _CAPPED.match(kept) and (at := kept.rfind(needle)) >= 0:
                self._at, self._last = at + len(needle), needle


@dataclass(slots=True)
class LogLimit:
    """One log limit. `limit` is its index in the guard config. A line that states a level below
    error, or is a hint, counts only where the pattern itself names a level."""

    limit: int
    service: str
    pattern: re.Pattern[str]
    armed: int = -1
    count: int = 0
    line: str = ""
    level: Level = Level.UNSAID
    """What the last of these lines states of itself."""
    timeouts: int = 0
    passed_over: int = 0
    """Lines that matched but state a level below error, and were not counted."""
    passed_level: Level = Level.UNSAID
    """What the last of these states."""

    @property
    def any_level(self) -> bool:
        return names_level(self.pattern.pattern)

    @property
    def words(self) -> str:
        """The last line, and the level that it states."""
        stated = "stated as an error" if self.level is Level.ERROR else "it states no level"
        return f"{one_line(self.line, SHOWN)} ({stated})" if self.line else ""


@dataclass(slots=True)
class Logs:
    """All followed files and all patterns. Use it from the main thread only, because a signal ends
    a slow pattern."""

    tails: dict[str, Tail] = field(default_factory=dict)
    limits: list[LogLimit] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    """Limits that are not checked, and why."""
    _armed: frozenset[str] = frozenset()
    _invalid: list[tuple[int, str]] = field(default_factory=list)

    def set(self, files: dict[str, str], patterns: list[tuple[int, str, str]]) -> None:
        """Follow each file (service → path) that has a pattern (limit, service, regex)."""
        files = {name: files[name] for _, name, _ in patterns if name in files}
        for service in [name for name in self.tails if files.get(name) != self.tails[name].path]:
            self.tails.pop(service).close()
        for service, path in files.items():
            if service not in self.tails:
                self.tails[service] = Tail(path)
        before = {
            (old_limit.limit, old_limit.service, old_limit.pattern.pattern): old_limit
            for old_limit in self.limits
        }
        self.limits, self.bad = [], {}
        self._invalid = [(limit, service) for limit, service, _ in patterns]
        for limit, service, text in patterns:
            try:
                made = LogLimit(limit, service, re.compile(text))
            except (re.error, RecursionError, OverflowError) as error:
                self.bad[limit] = one_line(f"not a valid pattern: {error}")
                continue
            log_limit = before.get((limit, service, text), made)
            self.limits.append(log_limit)
            self._invalid.remove((limit, service))
            if log_limit.timeouts >= MAX_TIMEOUTS:
                self.bad[limit] = TOO_LONG

    def arm(self, armed: dict[str, int]) -> None:
        """Set the number of each service's arming. A new number starts the count at zero, and
        nothing is counted without one."""
        self._armed = frozenset(armed)
        for log_limit in self.limits:
            number = armed.get(log_limit.service, -1)
            if number != log_limit.armed:
                log_limit.armed, log_limit.count, log_limit.line, log_limit.passed_over = (
                    number,
                    0,
                    "",
                    0,
                )
                if log_limit.service in self.tails:
                    self.tails[log_limit.service].skipped = 0

    def read(self) -> bool:
        """Read new lines. Returns whether a count rose."""
        rose = False
        for service, tail in self.tails.items():
            mine = [w for w in self.limits if w.service == service and w.armed >= 0]
            for line in tail.lines():
                texts = [clean(decode(piece)) for piece in pieces(line)]
                for log_limit in mine:
                    if (
                        log_limit.timeouts < MAX_TIMEOUTS
                        and (hit := self._hit(log_limit, texts)) is not None
                    ):
                        log_limit.count, log_limit.line, rose = log_limit.count + 1, hit[:200], True
                        if line is tail.returned:
                            tail.forget()
        return rose

    def hits(self) -> list[dict[str, Any]]:
        """Return the count of each limit whose service is alive, and in `why` the reason if no more
        can be counted."""
        counts = [
            {
                "limit": log_limit.limit, "count": log_limit.count, "line": log_limit.words,
                "why": self.bad.get(log_limit.limit) or self._why_not_counted(log_limit.service),
            }
            for log_limit in self.limits if log_limit.armed >= 0
        ]  # fmt: skip
        counts += [
            {"limit": limit, "count": 0, "line": "", "why": self.bad[limit]}
            for limit, service in self._invalid if service in self._armed
        ]  # fmt: skip
        return counts

    def troubles(self) -> dict[str, str]:
        """Return for each service whose log could not be read, or not in full, the reason."""
        reasons = {name: tail.why or tail.trouble for name, tail in self.tails.items()}
        return {name: why for name, why in reasons.items() if why}

    def uncounted(self) -> dict[str, str]:
        """Return for each service how many matching lines were not counted for their level."""
        words_by_service = {}
        for log_limit in self.limits:
            if log_limit.armed >= 0 and log_limit.passed_over:
                lines = plural(log_limit.passed_over, "matching line")
                were = "was" if log_limit.passed_over == 1 else "were"
                level = "a warning" if log_limit.passed_level is Level.WARNING else "information"
                words_by_service[log_limit.service] = (
                    f"{lines} {were} not counted: stated as {level}"
                )
        return words_by_service

    def _why_not_counted(self, service: str) -> str:
        tail = self.tails.get(service)
        return tail.trouble if tail is not None else "no log of this service is known"

    def close(self) -> None:
        for tail in self.tails.values():
            tail.close()

    def _hit(self, log_limit: LogLimit, texts: list[str]) -> str | None:
        """Return the first text that the pattern matches, from shortly before the match on; None if
        there is none, or if the line is none to act on."""
        for text in texts:
            if (match := self._search(log_limit, text)) is not None:
                level = read(texts[0]).level
                if not log_limit.any_level and is_low(texts[0]):
                    log_limit.passed_over, log_limit.passed_level = log_limit.passed_over + 1, level
                    return None
                log_limit.level = level
                return text[max(0, match.start() - BEFORE) :]
        return None

    def _search(self, log_limit: LogLimit, text: str) -> re.Match[str] | None:
        try:
            with at_most(SEARCH_S):
                places = list(islice(log_limit.pattern.finditer(text), MAX_PLACES))
        except TooSlow:
            log_limit.timeouts += 1
            if log_limit.timeouts >= MAX_TIMEOUTS:
                self.bad[log_limit.limit] = TOO_LONG
            return None
        # our own patterns take no time to speak of, and the first call compiles them
        judged = (log_limit.any_level or not why_hint(text, match.span()) for match in places)
        return next((match for match, counts in zip(places, judged, strict=True) if counts), None)


def pieces(line: bytes) -> Iterator[bytes]:
    """Yield a line in pieces of at most LINE_LIMIT bytes that overlap by OVERLAP bytes."""
    yield line[:LINE_LIMIT]
    for at in range(LINE_LIMIT - OVERLAP, len(line) - OVERLAP, LINE_LIMIT - OVERLAP):
        yield line[at : at + LINE_LIMIT]
