"""Follows a log file in a thread of its own and hands over clean lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from console.common.logs.buffer import MOST_LINES
from console.common.logs.line import LogLine, marker
from console.common.logs.source import BEHIND_LIMIT, Source
from console.common.logs.splitter import Splitter

BATCH = 2000
"""Lines handed over at once, at most."""
_PATIENCE_S = 0.02
QUIET = 20
"""After so many looks that found nothing a log is looked at a quarter as often."""
_AFTER_FAILURE_S = 1.0
Deliver = Callable[[list[LogLine]], bool]


class Tail:
    """Reads the end of a file, then what is added to it, for as long as it is not closed.

    `deliver` gets batches of at most BATCH lines, in the tail's thread; it returns False when the
    reader is behind, and gets the same batch again. A file that runs away from its reader is
    skipped to its end, and a marker line says so. A missing file is waited for.
    """

    def __init__(
        self, path: Path, deliver: Deliver, *, lines: int = MOST_LINES, poll_s: float = 0.25
    ) -> None:
        """At most the last `lines` lines at first; `poll_s`: seconds between looks at the file."""
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
        """Start the thread."""
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
        """Say it once, and open the file anew at the next look."""
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
            self._tell()
            if not source.opened:
                return False
        if source.measure() > BEHIND_LIMIT:
            self._skip()
        data = source.read()
        if data:
            self._failed = ""
            self._hand_over(self._splitter.feed(data, time.monotonic()))
            return True
        changed = self._tell() or source.look()
        self._tell()
        if not changed:
            self._hand_over(self._splitter.overdue(time.monotonic()))
        return changed

    def _tell(self) -> bool:
        """Put what the source has to say between the lines."""
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
