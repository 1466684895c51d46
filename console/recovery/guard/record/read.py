"""Reads the flight recorder, for viewers once a second and for people after a crash.

Nothing in the file is trusted: torn, truncated or invalid parts are left out.

`crash_words` says in one line how the recording of an interrupted run ends.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common import record
from console.common.files import open_untrusted
from console.common.units import format_bytes, number
from console.host import process
from console.recovery.guard.config import CONFIG_FILE, DIRECTORY, RING
from console.recovery.guard.record import recorder
from console.recovery.guard.record.recorder import LIVE, place


@dataclass(frozen=True, slots=True)
class FastSample:
    """The sample of one tick. Sizes are in bytes; `some` and `full` are in per cent, None if PSI
    gave no value."""

    wall: float
    mono: float
    total: int
    available: int
    swap_used: int
    some: float | None
    full: float | None
    level: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorder file. `pid`, `start` and `boot` are the sentinel's. No file is kept open."""

    path: Path
    run_id: str
    pid: int
    start: int
    boot: str
    made: float

    @property
    def alive(self) -> bool:
        """Whether the sentinel that writes it still runs, in this boot."""
        return self.boot == process.boot_id() and process.alive(self.pid, self.start)

    def status(self) -> dict[str, Any] | None:
        """Return the newest whole status page; this reads 17 KiB."""
        return recorder.page(_read(self.path, 0, recorder.FAST_AT))

    def fast(self, last_s: float = math.inf) -> list[FastSample]:
        """Return the samples of the last seconds before the newest one, oldest first."""
        data = _read(self.path, recorder.FAST_AT, recorder.FAST_SLOT * recorder.FAST_SLOTS)
        rows = []
        for slot in recorder.slots(data, recorder.FAST_SLOT):
            record = recorder.unsealed(slot, recorder.FAST.size)
            if record is not None and (fields := recorder.FAST.unpack(record))[0]:
                rows.append(fields)
        rows.sort()
        # Wall clocks jump, so the monotonic time gives the order.
        since = rows[-1][2] - last_s if rows else 0.0
        return [_sample(fields) for fields in rows if fields[2] >= since]

    def slow(self, last_s: float = math.inf) -> list[dict[str, Any]]:
        """Return the records of the last seconds before the newest one, oldest first."""
        records = self._texts(recorder.SLOW_AT, recorder.SLOW_SLOT, recorder.SLOW_SLOTS)
        since = _mono(records[-1]) - last_s if records else 0.0
        return [record for record in records if _mono(record) >= since]

    def events(self) -> list[dict[str, Any]]:
        """Return the events, oldest first: `wall`, `mono`, `what`, `text`."""
        return self._texts(recorder.EVENT_AT, recorder.EVENT_SLOT, recorder.EVENT_SLOTS)

    def newest(self) -> float:
        """Return the Unix time of the last write."""
        status = self.status()
        if status is not None:
            return number(status.get("wall")) or 0.0
        samples = self.fast(0.0)
        return samples[-1].wall if samples else self.made

    def _texts(self, at: int, size: int, count: int) -> list[dict[str, Any]]:
        numbered_records = []
        for slot in recorder.slots(_read(self.path, at, size * count), size):
            if (pair := recorder.unpacked(slot)) and (value := record.table(pair[1])) is not None:
                numbered_records.append((pair[0], value))
        return [value for _, value in sorted(numbered_records, key=lambda numbered: numbered[0])]


def open_newest(run_dir: Path) -> Recording | None:
    """Return the newest recording of a run, in shared memory or on disk; None if there is none."""
    recordings = [
        recording for path in _places(run_dir) if (recording := open_ring(path)) is not None
    ]
    return max(recordings, key=Recording.newest, default=None)


def open_ring(path: Path) -> Recording | None:
    """Return the recording in one file; None if it has no valid header."""
    header = recorder.header_of(_read(path, 0, recorder.HEADER.size + 4))
    return Recording(path, *header) if header is not None else None


def _places(run_dir: Path) -> list[Path]:
    directory = run_dir / DIRECTORY
    places = [directory / RING, directory / LIVE]
    config = record.table(_read(directory / CONFIG_FILE, 0, 1 << 20)) or {}
    name = config.get("ring")
    if isinstance(name, str) and name:
        shared = place(name, directory)[0]
        if _same_owner(shared, run_dir):
            places.insert(0, shared)
    return places


def _same_owner(path: Path, run_dir: Path) -> bool:
    """Return whether the owner of the run's directory owns the file; no other is trusted."""
    try:
        return os.lstat(path).st_uid == os.stat(run_dir).st_uid
    except OSError:
        return False


def _read(path: Path, at: int, size: int) -> bytes:
    try:
        descriptor = open_untrusted(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, size, at)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _sample(fields: recorder.Fast) -> FastSample:
    _, wall, mono, total, available, swap, some, full, level = fields
    name = recorder.LEVELS[level] if level < len(recorder.LEVELS) else ""
    known = [None if math.isnan(pressure) else pressure for pressure in (some, full)]
    return FastSample(wall, mono, total, available, swap, known[0], known[1], name)


def _mono(record: dict[str, Any]) -> float:
    return number(record.get("mono")) or 0.0


TROUBLE = ("warn", "act")


def crash_words(run_dir: Path) -> str:
    """Say where the recording of a run without a runner ends, if it ends at level warn or act or in
    another boot; else "". Reads files."""
    recording = open_newest(run_dir)
    if recording is None or recording.alive or _ended(recording):
        return ""
    samples = recording.fast(0.0)
    level = samples[-1].level if samples else ""
    gone = restarted(recording)
    if level not in TROUBLE and not gone:
        return ""
    ends = samples[-1].wall if samples else recording.newest()
    level_words = f" at level {level}" if level in TROUBLE else ""
    left = f", {format_bytes(samples[-1].available)} of RAM available" if samples else ""
    since = "; this machine has been restarted since" if gone else ""
    return f"the recording ends at {utc(ends)}{level_words}{left}{since}"


def _ended(recording: Recording) -> bool:
    """Return whether the sentinel recorded its own end, because nothing was left to watch."""
    events = recording.events()
    return bool(events) and events[-1].get("what") == "end"


def restarted(recording: Recording) -> bool:
    """Return whether the recording was written in another boot of this machine."""
    return recording.boot != process.boot_id()


def utc(at: float, form: str = "%H:%M:%S") -> str:
    try:
        return time.strftime(f"{form} UTC", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return "an invalid time"
