"""Writes the flight recorder, an mmap in /dev/shm, so that no sample waits for a disk.

A child process (`observe.slow_io_child`) copies it to RUN/guard/recorder.ring and fsyncs it.
Readers (`read`) take whichever is newer. If /dev/shm cannot be used, the file is in RUN/guard.
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
"""The file's name in RUN/guard, if there is no /dev/shm."""
PREFIX = "omni-console."
"""The beginning of the file's name in /dev/shm; the user's number and the run follow."""
KEPT_S = 3600.0
EVENT_MOST = 480
_NAN = math.nan


class Recorder:
    """Writes one ring buffer. `path` is where the file is; `close()` leaves it there. If an earlier
    sentinel of this run left a file there in this boot, it is continued: `before` is that
    sentinel's pid, or 0, and `last` is its last status page."""

    def __init__(self, path: Path, run_id: str, clock: Clock) -> None:
        """Raises OSError if the file cannot be made, or there is no room for it."""
        self.path = path
        self._clock = clock
        self.before, self.last, earlier = _earlier_recording(path, run_id)
        self._map = _create(path)
        self._status = 0
        self._put(ring_buffer.FAST_AT, earlier)
        self._fast, self._slow, self._event = ring_buffer.newest(earlier) if earlier else (0, 0, 0)
        pid = os.getpid()
        header = ring_buffer.HEADER.pack(
            ring_buffer.MAGIC, ring_buffer.VERSION, ring_buffer.SIZE, run_id.encode()[:96], pid,
            process.start_time(pid) or 0, process.boot_id().encode()[:40],
            clock.now(), clock.monotonic(),
        )  # fmt: skip
        self._put(0, ring_buffer.sealed(header))

    def tick(self, memory: Memory, some: float | None, full: float | None, level: str) -> None:
        """Write one fast sample; pressure is in per cent, None if not known."""
        self._fast += 1
        record = ring_buffer.FAST.pack(
            self._fast, self._clock.now(), memory.at, memory.total, memory.available,
            memory.swap_used, _NAN if some is None else some, _NAN if full is None else full,
            ring_buffer.LEVELS.index(level) if level in ring_buffer.LEVELS else 0,
        )  # fmt: skip
        slot = self._fast % ring_buffer.FAST_SLOTS
        self._put(ring_buffer.FAST_AT + slot * ring_buffer.FAST_SLOT, ring_buffer.sealed(record))

    def second(self, values: dict[str, Any]) -> None:
        """Write one slow record as JSON, shortened to its slot. The times are added here."""
        self._slow += 1
        text = shortened({**self._times(), **values}, ring_buffer.SLOW_SLOT - ring_buffer.TEXT.size)
        slot = self._slow % ring_buffer.SLOW_SLOTS
        self._put(
            ring_buffer.SLOW_AT + slot * ring_buffer.SLOW_SLOT, ring_buffer.packed(self._slow, text)
        )

    def event(self, what: str, text: str) -> None:
        """Write one event. `text` is clean already."""
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
        """Write the status page that viewers show, shortened to 8 KiB."""
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
    """Return where the ring buffer of a guard config may be, best place first: an absolute path or
    a name in /dev/shm, then RUN/guard."""
    wanted = Path(ring_name) if ring_name.startswith("/") else SHM / Path(ring_name or "-").name
    return [wanted, directory / LIVE] if ring_name else [directory / LIVE]


def create(ring_name: str, directory: Path, run_id: str, clock: Clock) -> Recorder:
    """Make the recorder of a guard config in the first place that works. Raises OSError."""
    *better, last = place(ring_name, directory)
    for path in better:
        with contextlib.suppress(OSError):
            return Recorder(path, run_id, clock)
    return Recorder(last, run_id, clock)


def sweep(now: float, gone: str = "") -> None:
    """Remove ring buffers that dead sentinels of this user left in /dev/shm more than KEPT_S ago.
    Until then they are kept, because a resumed run continues its ring buffer. That of the run
    `gone` is removed at once.

    The copies on disk have their content except for the last second. Never raises.
    """
    for path in SHM.glob(f"{PREFIX}{os.getuid()}.*.ring"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            run = path.name.removeprefix(f"{PREFIX}{os.getuid()}.").removesuffix(".ring")
            wanted = run != gone and now - found.st_mtime < KEPT_S
            if found.st_uid == os.getuid() and not wanted and not _is_written(path):
                path.unlink()


def _is_written(path: Path) -> bool:
    """Return whether the sentinel of a file lives; without a header it does not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        head = file.read(ring_buffer.HEADER.size)
    if len(head) < ring_buffer.HEADER.size:
        return False
    header = ring_buffer.HEADER.unpack(head)
    boot = header[6].rstrip(b"\0").decode("ascii", "replace")
    return boot == process.boot_id() and process.alive(header[4], header[5])


def _earlier_recording(path: Path, run_id: str) -> tuple[int, dict[str, Any], bytes]:
    """Return pid, last status page and records of an earlier sentinel of the run, or empty ones."""
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
    # The directory is writable for everybody: never follow a link, and never open somebody else's
    # file.
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        # Allocate the space now: a write into a full tmpfs would raise SIGBUS.
        os.posix_fallocate(descriptor, 0, ring_buffer.SIZE)
        return mmap.mmap(descriptor, ring_buffer.SIZE)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


def shortened(page: dict[str, Any], most: int) -> bytes:
    """Return JSON of at most `most` bytes: the longest lists lose their ends, and `cut` says so."""
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
