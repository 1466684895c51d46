"""Reads the end of a log file, clean, or follows the file in a thread of its own.

Standard library only, because the emergency side uses it too.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from console.common.logs.buffer import MAX_LINES
from console.common.logs.line import LogLine, Splitter, marker
from console.common.secrets import lines
from console.common.text import clean, decode

END_LIMIT = 8 * 1024 * 1024
"""Most bytes at the end of a file that are read for its last lines."""
BLOCK = 256 * 1024
BEFORE = 8
"""Lines in front of the first one shown that are read, too: it may be the value of their name."""


def size_of(path: Path) -> int:
    """The size of a log file in bytes; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_last(path: Path, count: int, begin: int = 0) -> list[str]:
    """The last `count` lines of a log file, clean; only the end of the file is read, and nothing
    before the byte `begin`, unless the file has been cut off since.

    A missing or unreadable file gives no lines.
    """
    try:
        with path.open("rb") as file:
            begin = begin if begin <= os.fstat(file.fileno()).st_size else 0
            file.seek(max(begin, end_start(file.fileno(), count + BEFORE)))
            data = file.read(END_LIMIT)
    except OSError:
        return []
    rows = data.removesuffix(b"\n").split(b"\n")[-count - BEFORE :] if data and count > 0 else []
    return [*lines.shown(clean(decode(row)) for row in rows)][-count:]


def end_start(descriptor: int, lines: int) -> int:
    """The offset of the last `lines` lines of a file, at most END_LIMIT before its end."""
    size = at = os.fstat(descriptor).st_size
    floor = max(0, size - END_LIMIT)
    wanted = lines + 1  # the newline in front of the first of them
    last = os.pread(descriptor, 1, size - 1) if size else b""
    if last and last != b"\n":
        wanted -= 1
    while at > floor:
        step = min(BLOCK, at - floor)
        at -= step
        block = os.pread(descriptor, step, at)
        newline_count = block.count(b"\n")
        if newline_count >= wanted:
            place = len(block)
            for _ in range(wanted):
                place = block.rfind(b"\n", 0, place)
            return at + place + 1
        wanted -= newline_count
    if floor == 0:
        return 0
    # Too long for that many lines: from the first that is whole, if there is one.
    whole = floor + os.pread(descriptor, END_LIMIT, floor).find(b"\n") + 1
    return whole if whole < size else floor


def keep_end(path: Path, cap_bytes: int) -> bool:
    """Cut a log that another process appends to, keeping its newest half; True if it was cut.

    The writer holds the file open for appending, so it is emptied in place. What is written between
    reading and cutting is lost; the marker line says so.
    """
    with contextlib.suppress(OSError), path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= cap_bytes:
            return False
        kept = os.pread(file.fileno(), cap_bytes // 2, size - cap_bytes // 2)
        kept = kept[kept.find(b"\n") + 1 :]
        file.truncate(0)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(
                descriptor, f"--- {size - len(kept)} bytes of older log dropped ---\n".encode()
            )
            os.write(descriptor, kept)
        finally:
            os.close(descriptor)
        return True
    return False


BEHIND_LIMIT = 8 * 1024 * 1024
"""Bytes that a reader may be behind the end before the rest is skipped."""
SKIP_TO = 1024 * 1024
"""Bytes before the end where reading continues after a skip."""
_NEEDLE = 4096
_OVERLAP = 64
_CAPPED = re.compile(rb"--- [^\n]{1,80} of older log dropped[^\n]{0,40} ---\n")

BATCH = 2000
"""Most lines handed over at once."""
_PATIENCE_S = 0.02
QUIET = 20
"""Looks without new data after which a log is polled a quarter as often."""
_AFTER_FAILURE_S = 1.0
Deliver = Callable[[list[LogLine]], bool]


class Source:
    """An open log file and the position in it. Whether it grows, is cut or is replaced, it reads as
    one stream of bytes. Missing or unreadable files are waited for."""

    def __init__(self, path: Path, lines: int) -> None:
        """`lines`: how many last lines to read of a file that cannot be continued."""
        self.path = path
        self.lines = lines
        self.words = ""
        """Messages on the file since the last `look`: a gap, a cut, an error."""
        self.broken = False
        """Whether the next bytes do not continue the last ones."""
        self._descriptor = -1
        self._identity = (0, 0)
        self._at = 0
        self._size = 0
        self._known = 0
        self._last = b""
        self._cut = False
        self._complaint = ""

    @property
    def opened(self) -> bool:
        return self._descriptor >= 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def open_end(self) -> None:
        """Open the file at its last lines; does nothing if it is missing."""
        if self._open():
            self._at = end_start(self._descriptor, self.lines)
            if self._at:
                self.words = f"{self._at:,} bytes of older log are in the file, not shown here"

    def _open(self) -> bool:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            return False
        except OSError as error:
            return self._complain(f"the log cannot be read: {error.strerror}")
        file_stat = os.fstat(descriptor)
        if not stat.S_ISREG(file_stat.st_mode):
            os.close(descriptor)
            return self._complain("the log cannot be read: it is not a file")
        self.close()
        self._descriptor = descriptor
        self._identity = (file_stat.st_dev, file_stat.st_ino)
        self._at = 0
        self._known = file_stat.st_size
        self._cut = False
        return True

    def _complain(self, words: str) -> bool:
        """Report it once, however often it is tried."""
        if words != self._complaint:
            self._complaint = self.words = words
        return False

    def measure(self) -> int:
        """Measure the file; return the number of bytes added and not yet read.

        What was in the file when it was opened does not count: it has a limit of its own.
        """
        self._size = os.fstat(self._descriptor).st_size
        return max(0, self._size - max(self._at, self._known))

    def read(self) -> bytes:
        """The next measured bytes; empty at the end, and if the file was cut."""
        if self._size == self._at:
            return b""
        if self._size < self._at and not self._cut:
            self._cut = True  # who cut it may be writing back what is kept: one poll later
            return b""
        before = len(self._last[-_OVERLAP:])
        data = os.pread(self._descriptor, BLOCK, self._at - before)
        if self._cut or data[:before] != self._last[-_OVERLAP:]:
            self._cut = False
            self._go_on("the log file was cut")
            return b""
        data = data[before:]
        self._at += len(data)
        self._last = data[-_NEEDLE:] if len(data) >= _NEEDLE else (self._last + data)[-_NEEDLE:]
        return data

    def skip(self) -> int:
        """Continue near the end, at the start of a line; return the number of bytes left out."""
        at = max(self._at, self._size - SKIP_TO)
        at += os.pread(self._descriptor, BLOCK, at).find(b"\n") + 1
        skipped, self._at, self._last = at - self._at, at, b""
        return skipped

    def look(self) -> bool:
        """At the end of the open file, check whether another file has its name; if so, open it."""
        try:
            file_stat = os.stat(self.path)
        except OSError:
            return False
        if (file_stat.st_dev, file_stat.st_ino) == self._identity:
            return False
        # What was written between the last read and the replacement comes first.
        self.measure()
        if self._size > self._at:
            return False
        if not self._open():
            return False
        self._go_on("the log file was replaced by a new one")
        return True

    def _go_on(self, words: str) -> None:
        """Continue in a new or cut file after what was read already, if that can be found there.

        The console's own cap leaves a marker line before what it kept. Any other file is read from
        its start, since a coincidental match must not hide lines.
        """
        needle, self._last, self._at = self._last, b"", 0
        if needle and _CAPPED.match(os.pread(self._descriptor, 256, 0)):
            after = _find(self._descriptor, needle)
            if after >= 0:
                self._at, self._last, self._known = after, needle, 0
                return
            words += "; lines may be missing here, or come twice"
        self._at = end_start(self._descriptor, self.lines)
        self._known = os.fstat(self._descriptor).st_size
        self.broken, self.words = True, words


def _find(descriptor: int, needle: bytes) -> int:
    """Where `needle` ends in a file; -1 if it is not there."""
    at, carried = 0, b""
    while block := os.pread(descriptor, END_LIMIT // 8, at):
        index = (carried + block).find(needle)
        if index >= 0:
            return at - len(carried) + index + len(needle)
        at += len(block)
        carried = (carried + block)[-len(needle) + 1 :] if len(needle) > 1 else b""
    return -1


class Tail:
    """Reads the end of a file, then what is added to it, until it is closed.

    `deliver` gets batches of at most BATCH lines, in the tail's thread; it returns False when the
    reader is behind, and gets the same batch again. If the file grows faster than it is read, the
    rest is skipped and a marker line says so. A missing file is waited for.
    """

    def __init__(
        self, path: Path, deliver: Deliver, *, lines: int = MAX_LINES, poll_s: float = 0.25
    ) -> None:
        """Start with at most `lines` last lines; `poll_s`: seconds between looks at the file."""
        self.path = path
        self._deliver = deliver
        self._lines = lines
        self._failed = ""
        self._poll_s = poll_s
        self._source = Source(path, lines)
        self._splitter = Splitter()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tail of {path.name}", daemon=True)

    def start(self) -> Tail:
        self._thread.start()
        return self

    def close(self, join_s: float = 1.0) -> bool:
        """End it; False if the thread is still in a read or in `deliver` after `join_s`."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(join_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        quiet = 0
        try:
            while not self._closing.is_set():
                try:
                    more = self._round()
                except OSError as error:  # a disk or a share that went away
                    more = False
                    self._fail(error)
                quiet = 0 if more else quiet + 1
                if not more:
                    self._closing.wait(self._poll_s * (1 if quiet < QUIET else 4))
        finally:
            self._source.close()

    def _fail(self, error: OSError) -> None:
        """Report an error once, and reopen the file at the next look."""
        self._source.close()
        self._source = Source(self.path, self._lines)
        if self._failed != str(error):
            self._failed = str(error)
            words = f"the log cannot be read: {error.strerror}"
            self._hand_over([*self._splitter.cut(), marker(words)])
        self._closing.wait(_AFTER_FAILURE_S)

    def _round(self) -> bool:
        """One look at the file; True when there may be more at once."""
        source = self._source
        if not source.opened:
            source.open_end()
            self._insert_messages()
            if not source.opened:
                return False
        if source.measure() > BEHIND_LIMIT:
            self._skip()
        data = source.read()
        if data:
            self._failed = ""
            self._hand_over(self._splitter.feed(data, time.monotonic()))
            return True
        changed = self._insert_messages() or source.look()
        self._insert_messages()
        if not changed:
            self._hand_over(self._splitter.overdue(time.monotonic()))
        return changed

    def _insert_messages(self) -> bool:
        """Insert the source's messages between the lines."""
        words, broken = self._source.words, self._source.broken
        self._source.words, self._source.broken = "", False
        if broken:
            self._hand_over(self._splitter.cut())
        if words:
            self._hand_over([marker(words)])
        return bool(words)

    def _skip(self) -> None:
        ended = self._splitter.cut()
        skipped = self._source.skip()
        words = f"{skipped:,} bytes skipped: they came faster than they could be shown"
        self._hand_over([*ended, marker(words)])

    def _hand_over(self, lines: list[LogLine]) -> None:
        """Deliver in batches, waiting for a reader that is behind."""
        for start in range(0, len(lines), BATCH):
            batch = lines[start : start + BATCH]
            while not self._closing.is_set() and not self._deliver(batch):
                self._closing.wait(_PATIENCE_S)
