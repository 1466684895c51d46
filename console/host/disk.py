"""Free space of a file system. Asking can hang for good on a dead network mount, so each path is
asked in a daemon thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from console.common.clock import Clock
from console.common.text import one_line
from console.host.sample import DiskSample

SILENT_S = 3.0
"""After so many seconds without an answer a file system is said not to answer."""
EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of a file system: free for this user, and in all."""

    free: int
    total: int


def existing(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    path = Path(os.path.abspath(path))
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


def space(path: Path) -> Space:
    """The file system that a path is on, or would be made on. May block; raises OSError."""
    info = os.statvfs(existing(path))
    return Space(info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize)


def read_disk(path: str) -> DiskSample:
    """Total bytes and those an ordinary user may still write. May block; never raises."""
    shown = one_line(path)
    try:
        found = os.statvfs(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return DiskSample(shown, None, None, one_line(why).lower())
    if not found.f_blocks:
        return DiskSample(shown, None, None, "this file system has no size")
    return DiskSample(shown, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class DiskWatch:
    """One path, asked again and again in a thread that may hang without hurting anyone."""

    def __init__(
        self, path: str, clock: Clock, read: Callable[[str], DiskSample] = read_disk
    ) -> None:
        self.path = path
        self._clock = clock
        self._read = read
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._last = DiskSample(one_line(path), None, None, "asking")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauge-disk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self) -> DiskSample:
        """The last answer, "asking" before there is one, or "no answer for N s"."""
        with self._lock:
            asked_at, last = self._asked_at, self._last
        silent = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        if silent > SILENT_S:
            return DiskSample(one_line(self.path), None, None, f"no answer for {silent:.0f} s")
        return last

    def close(self) -> None:
        """Stop asking; a thread that hangs is left behind. Does not wait for it."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, but no longer than this."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                self._asked_at = self._clock.monotonic()
            found = self._read(self.path)
            with self._lock:
                self._asked_at, self._last = None, found
            self._clock.wait(self._stop, EVERY_S)
