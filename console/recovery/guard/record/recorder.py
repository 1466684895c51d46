"""The flight recorder, written: an mmap in /dev/shm that no sample has to wait for.

A child (`observe.slow_io_child`) copies it to RUN/guard/recorder.ring and fsyncs; readers (`read`)
take whichever is newer. Where /dev/shm cannot be had it lies in RUN/guard.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.host import process
from console.recovery.guard.observe.snapshot import Memory
from console.recovery.guard.record import ring_buffer

SHM = Path("/dev/shm")
LIVE = "recorder.live"
"""The ring's name in RUN/guard, where there is no /dev/shm."""
PREFIX = "omni-console."
"""A ring's name in /dev/shm goes on with the user's number and the run."""
KEPT_S = 3600.0
EVENT_MOST = 480
_NAN = math.nan


class Recorder:
    """Writes one ring. `path` is where it lies; `close()` leaves the file. One that an earlier
    sentinel of this run left there in this boot is gone on with: `before` is its pid, or 0, and
    `last` its last page."""

    def __init__(self, path: Path, run_id: str, clock: Clock) -> None:
        """Raises OSError when the file cannot be made, or has no room."""
        self.path = path
        self._clock = clock
        self.before, self.last, left = _left(path, run_id)
        self._map = _create(path)
        self._status = 0
        self._put(ring_buffer.FAST_AT, left)
        self._fast, self._slow, self._event = ring_buffer.newest(left) if left else (0, 0, 0)
        pid = os.getpid()
        header = ring_buffer.HEADER.pack(
            ring_buffer.MAGIC, ring_buffer.VERSION, ring_buffer.SIZE, run_id.encode()[:96], pid,
            process.start_time(pid) or 0, process.boot_id().encode()[:40],
            clock.now(), clock.monotonic(),
        )  # fmt: skip
        self._put(0, ring_buffer.sealed(header))

    def tick(self, memory: Memory, some: float | None, full: float | None, level: str) -> None:
        """One fast sample; pressure in per cent, None where it is not known."""
        self._fast += 1
        record = ring_buffer.FAST.pack(
            self._fast, self._clock.now(), memory.at, memory.total, memory.available,
            memory.swap_used, _NAN if some is None else some, _NAN if full is None else full,
            ring_buffer.LEVELS.index(level) if level in ring_buffer.LEVELS else 0,
        )  # fmt: skip
        slot = self._fast % ring_buffer.FAST_SLOTS
        self._put(ring_buffer.FAST_AT + slot * ring_buffer.FAST_SLOT, ring_buffer.sealed(record))

    def second(self, figures: dict[str, Any]) -> None:
        """One slow sample: JSON, shortened to its slot. Times are added."""
        self._slow += 1
        text = shortened(
            {**self._times(), **figures}, ring_buffer.SLOW_SLOT - ring_buffer.TEXT.size
        )
        slot = self._slow % ring_buffer.SLOW_SLOTS
        self._put(
            ring_buffer.SLOW_AT + slot * ring_buffer.SLOW_SLOT, ring_buffer.packed(self._slow, text)
        )

    def event(self, what: str, text: str) -> None:
        """One line of what happened. `text` is clean already."""
        self._event += 1
        line = {**self._times(), "what": what, "text": text}
        while len(data := _json(line)) > EVENT_MOST:
            cut = max(1, (len(data) - EVENT_MOST) // 6)
            line["text"] = line["text"][: -cut - 1] + "…"
        slot = self._event % ring_buffer.EVENT_SLOTS
        self._put(
            ring_buffer.EVENT_AT + slot * ring_buffer.EVENT_SLOT,
            ring_buffer.packed(self._event, data),
        )

    def status(self, page: dict[str, Any]) -> None:
        """The page viewers show; shortened to 8 KiB."""
        self._status += 1
        text = shortened({**self._times(), **page}, ring_buffer.STATUS_SLOT - ring_buffer.TEXT.size)
        slot = self._status % 2
        self._put(
            ring_buffer.STATUS_AT + slot * ring_buffer.STATUS_SLOT,
            ring_buffer.packed(self._status, text),
        )

    def close(self) -> None:
        self._map.close()

    def _times(self) -> dict[str, Any]:
        return {"wall": round(self._clock.now(), 3), "mono": round(self._clock.monotonic(), 3)}

    def _put(self, at: int, data: bytes) -> None:
        self._map[at : at + len(data)] = data


def place(ring_name: str, directory: Path) -> list[Path]:
    """Where a sheet's ring may lie, best first: an absolute path, a name in /dev/shm, RUN/guard."""
    wanted = Path(ring_name) if ring_name.startswith("/") else SHM / Path(ring_name or "-").name
    return [wanted, directory / LIVE] if ring_name else [directory / LIVE]


def create(ring_name: str, directory: Path, run_id: str, clock: Clock) -> Recorder:
    """The recorder of a sheet, in the first place that takes it. Raises OSError."""
    *better, last = place(ring_name, directory)
    for path in better:
        with contextlib.suppress(OSError):
            return Recorder(path, run_id, clock)
    return Recorder(last, run_id, clock)


def sweep(now: float, gone: str = "") -> None:
    """Remove rings in /dev/shm that this user's dead sentinels left there more than KEPT_S ago:
    whoever goes on with a run goes on with its ring. That of the run `gone` at once.

    What they held is in the copies on disk, but for the last second. Never raises.
    """
    for path in SHM.glob(f"{PREFIX}{os.getuid()}.*.ring"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            run = path.name.removeprefix(f"{PREFIX}{os.getuid()}.").removesuffix(".ring")
            wanted = run != gone and now - found.st_mtime < KEPT_S
            if found.st_uid == os.getuid() and not wanted and not _is_written(path):
                path.unlink()


def _is_written(path: Path) -> bool:
    """Whether its sentinel lives; one that was killed before it wrote a header does not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        head = file.read(ring_buffer.HEADER.size)
    if len(head) < ring_buffer.HEADER.size:
        return False
    header = ring_buffer.HEADER.unpack(head)
    boot = header[6].rstrip(b"\0").decode("ascii", "replace")
    return boot == process.boot_id() and process.alive(header[4], header[5])


def _left(path: Path, run_id: str) -> tuple[int, dict[str, Any], bytes]:
    """Pid, last page and records of an earlier sentinel of the run; (0, none, none) without."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0, {}, b""
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or found.st_size != ring_buffer.SIZE:
            return 0, {}, b""
        data = os.pread(descriptor, ring_buffer.SIZE, 0)
    except OSError:
        return 0, {}, b""
    finally:
        os.close(descriptor)
    header = ring_buffer.unsealed(data, ring_buffer.HEADER.size)
    if header is None:
        return 0, {}, b""
    magic, version, size, run, pid, _, boot, _, _ = ring_buffer.HEADER.unpack(header)
    ours = (
        ring_buffer.MAGIC,
        ring_buffer.VERSION,
        ring_buffer.SIZE,
        run_id.encode()[:96],
        process.boot_id().encode(),
    )
    if (magic, version, size, run.rstrip(b"\0"), boot.rstrip(b"\0")) != ours:
        return 0, {}, b""
    return pid, ring_buffer.page(data) or {}, data[ring_buffer.FAST_AT :]


def _create(path: Path) -> mmap.mmap:
    # A name in a directory everybody writes to: never followed, never somebody else's.
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        # Room is taken now: a write into a full tmpfs would be a SIGBUS.
        os.posix_fallocate(descriptor, 0, ring_buffer.SIZE)
        return mmap.mmap(descriptor, ring_buffer.SIZE)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


def shortened(page: dict[str, Any], most: int) -> bytes:
    """As JSON of at most `most` bytes: the longest lists lose their ends, and `cut` says so."""
    data = _json(page)
    if len(data) <= most:
        return data
    page = {**page, "cut": True}
    while len(data := _json(page)) > most:
        key = max(
            (one for one in page if one != "cut"), key=lambda one: len(_json([one, page[one]]))
        )
        value = page[key]
        if isinstance(value, dict | list | tuple | str) and len(value) > 1:
            half = len(value) // 2
            page[key] = (
                dict(list(value.items())[:half]) if isinstance(value, dict) else value[:half]
            )
        else:
            del page[key]
    return data


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
