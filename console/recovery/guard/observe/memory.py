"""RAM, swap and memory pressure, read four to fifty times a second on descriptors that stay open.

One reading is a pread of meminfo and one of pressure/memory, about 10 µs, of which the kernel takes
8. Text that has not changed is not parsed again. Where a control group limits this process and what
it watches, each limiting level adds two more reads.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from console.common.text import one_line
from console.host.memory import Bound
from console.recovery.guard.observe.snapshot import Memory

_CHUNK = 8192
_MEMINFO = 1024
"""Bytes to read; the needed rows are in the first 600."""
_UNIT = b" kB\n"
_TAKEN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
STILL_S = 10.0
PROBE = 2 << 20
"""Bytes to allocate for a test if meminfo has not changed for STILL_S. On a machine that is only
idle the allocation changes meminfo; if it does not, the values are stale."""
MEMINFO, PRESSURE = "proc/meminfo", "proc/pressure/memory"


class Row:
    """One value of a table whose rows keep their places, in KiB. The last place is tried first and
    is trusted only if the name and the unit are found there."""

    __slots__ = ("_at", "_end", "_from", "_name")

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._at = self._from = self._end = 0

    def read(self, text: bytes) -> int | None:
        """Return the value; None if the table has no such row."""
        if text.startswith(self._name, self._at) and text.startswith(_UNIT, self._end):
            try:
                return int(text[self._from : self._end])
            except ValueError:
                pass
        self._at = max(0, text.find(self._name))
        self._from = self._at + len(self._name)
        self._end = max(0, text.find(_UNIT, self._from))
        return field(text, self._name)


class MemoryCollector:
    """Reads the kernel's files under `root`. Call `close()` when done, and use it from one thread.

    `why` says in words what the last reading failed on ("" if it succeeded).
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._meminfo = self._pressure = -1
        self._total, self._available = Row(b"MemTotal:"), Row(b"\nMemAvailable:")
        self._swap, self._swap_free = Row(b"\nSwapTotal:"), Row(b"\nSwapFree:")
        self._psi: bytes | None = None
        self._text = b""
        self._moved_at, self._still = 0.0, False
        self._totals: tuple[int, int | None] = (0, None)
        self.why = ""
        self._open()
        first = self._machine(0.0)
        self._text = b""
        self.bound = Bound(root, first.total if first else 0)

    def read(self, at: float) -> Memory | None:
        """Read memory. Returns None and sets `why` if it cannot be read; never zero.

        The values are those of the machine. While something of the run shares a control group with
        this process, `bound` is what is left to that group: limit − usage + inactive_file, as
        `docker stats` counts.
        """
        machine = self._machine(at)
        if machine is None or not self.bound.levels or not self.bound.inside:
            return machine
        return machine._replace(bound=self.bound.look())

    def close(self) -> None:
        for descriptor in (self._meminfo, self._pressure):
            if descriptor >= 0:
                os.close(descriptor)
        self._meminfo = self._pressure = -1
        self.bound.close()

    def _open(self) -> None:
        if self._meminfo < 0:
            self._meminfo = opened(self._root / MEMINFO)
        if self._pressure < 0:
            self._pressure = opened(self._root / PRESSURE)

    def _machine(self, at: float) -> Memory | None:
        try:
            text = os.pread(self._meminfo, _MEMINFO, 0)
        except OSError as error:
            self.why = one_line(f"meminfo cannot be read: {error.strerror}")
            self._open()
            return None
        total, available = self._total.read(text), self._available.read(text)
        if total is None or available is None:
            self.why = "meminfo has no MemTotal or no MemAvailable"
            return None
        swap, free = self._swap.read(text), self._swap_free.read(text)
        before = self._psi
        some, full = self._psi_totals()
        if text != self._text or self._psi != before:
            self._text, self._moved_at, self._still = text, at, False
        elif not self._still and at - self._moved_at >= STILL_S:
            self._still = not self._meminfo_changes()
            self._moved_at = self._moved_at if self._still else at
        if self._still:
            self.why = f"meminfo has not changed for {at - self._moved_at:.0f} s"
            return None
        self.why = ""
        return Memory(
            at, total * 1024, min(available, total) * 1024, (swap or 0) * 1024,
            max(0, (swap or 0) - (free or 0)) * 1024, some, full,
        )  # fmt: skip

    def _meminfo_changes(self) -> bool:
        """Return whether meminfo changes when memory is allocated; True if no memory can be."""
        try:
            with mmap.mmap(-1, PROBE, flags=_TAKEN):
                return os.pread(self._meminfo, _MEMINFO, 0) != self._text
        except OSError:
            return True

    def _psi_totals(self) -> tuple[int | None, int | None]:
        """Return PSI's totals. `avg10` is not used, because it lags by two seconds."""
        if self._pressure < 0:
            return None, None
        try:
            text = os.pread(self._pressure, 512, 0)
            if text != self._psi:
                _, some, *full = text.split(b"total=")
                self._totals = int(some.partition(b"\n")[0]), int(full[0]) if full else None
                self._psi = text
            return self._totals
        except (OSError, ValueError):
            return None, None


def field(text: bytes, name: bytes) -> int | None:
    """Return the number after a name in a table of the kernel; None if there is no such line."""
    at = text.find(name)
    if at < 0:
        return None
    at += len(name)
    end = text.find(b"\n", at)
    try:
        return int(text[at : end if end >= 0 else len(text)].removesuffix(b" kB"))
    except ValueError:
        return None


def opened(path: Path) -> int:
    """Open a file for reading and return its descriptor; -1 if that fails, because a file that is
    missing may appear later."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return -1


def pread(descriptor: int, most: int = _CHUNK) -> bytes:
    """Return the current content of a kernel file; empty if the file is gone or was never there."""
    if descriptor < 0:
        return b""
    try:
        return os.pread(descriptor, most, 0)
    except OSError:
        return b""
