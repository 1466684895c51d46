"""The flight recorder: the layout of its file, and its writer.

The file is an mmap in /dev/shm, so that no sample waits for a disk. A child process
(`observe.slow_io_child`) copies it to RUN/guard/recorder.ring and fsyncs it. Readers (`read`) take
whichever is newer. If /dev/shm cannot be used, the file is in RUN/guard.

The layout has fixed places, and a checksum for each record, so that a torn one is noticed:

    header   run, pid, start, boot, when it was made
    status   two slots of JSON, written in turn, so that one of them is always whole
    fast     one sample per tick, 122 s of them at the shortest interval
    slow     one JSON record per second: GPUs, loads, rates
    events   the last 64 lines: armed, warned, breach, each stage of a kill

Each record has a number; the newest records have the highest. Little-endian, no padding.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from console.common import record
from console.common.clock import Clock
from console.common.files import open_untrusted
from console.host import process
from console.recovery.guard.observe.snapshot import Memory

MAGIC = b"OMNIRING"
VERSION = 1
HEADER = struct.Struct("<8sII96sIQ40sdd")
STATUS_AT, STATUS_SLOT = 256, 8192
FAST = struct.Struct("<QddQQQffI")
"""number, wall, mono, total, available, swap used, some %, full % (NaN: not known), level."""
FAST_SLOT, FAST_SLOTS = 64, 6112
FAST_AT = STATUS_AT + 2 * STATUS_SLOT
TEXT = struct.Struct("<QHI")
"""number, length, checksum; the JSON follows."""
SLOW_SLOT, SLOW_SLOTS = 2048, 128
SLOW_AT = FAST_AT + FAST_SLOT * FAST_SLOTS
EVENT_SLOT, EVENT_SLOTS = 512, 64
EVENT_AT = SLOW_AT + SLOW_SLOT * SLOW_SLOTS
SIZE = EVENT_AT + EVENT_SLOT * EVENT_SLOTS
LEVELS = ("", "ok", "warn", "act")
_CRC = struct.Struct("<I")
Fast = tuple[int, float, float, int, int, int, float, float, int]


def sealed(record: bytes) -> bytes:
    return record + _CRC.pack(zlib.crc32(record))


def unsealed(data: bytes, size: int) -> bytes | None:
    """Return the record of `size` bytes at the start of `data`; None if it is not whole."""
    record, seal = data[:size], data[size : size + 4]
    whole = len(record) == size and len(seal) == 4 and _CRC.unpack(seal)[0] == zlib.crc32(record)
    return record if whole else None


class Header(NamedTuple):
    """The run, the sentinel that writes, its boot, and the Unix time when the file was made."""

    run_id: str
    pid: int
    start: int
    boot: str
    made: float


def header_of(data: bytes) -> Header | None:
    """Return the header at the beginning of a ring buffer; None if it is torn or of another
    version."""
    record = unsealed(data, HEADER.size)
    if record is None:
        return None
    magic, version, size, run, pid, start, boot, made, _ = HEADER.unpack(record)
    if (magic, version, size) != (MAGIC, VERSION, SIZE):
        return None
    run_id, boot_id = (
        identifier.rstrip(b"\0").decode("utf-8", "replace") for identifier in (run, boot)
    )
    return Header(run_id, pid, start, boot_id, made if math.isfinite(made) else 0.0)


def packed(number: int, text: bytes) -> bytes:
    """Return JSON text as a record."""
    return TEXT.pack(number, len(text), zlib.crc32(text, number & 0xFFFFFFFF)) + text


def unpacked(slot: bytes) -> tuple[int, bytes] | None:
    """Return (number, JSON) of a slot; None if it is empty or torn."""
    if len(slot) < TEXT.size:
        return None
    number, length, seal = TEXT.unpack_from(slot)
    text = slot[TEXT.size : TEXT.size + length]
    if not number or len(text) != length or zlib.crc32(text, number & 0xFFFFFFFF) != seal:
        return None
    return number, text


def page(head: bytes) -> dict[str, Any] | None:
    """Return the newest whole status page at the beginning of a ring buffer, or None."""
    pages = []
    for slot in slots(head[STATUS_AT:FAST_AT], STATUS_SLOT):
        if (pair := unpacked(slot)) and (value := record.table(pair[1])) is not None:
            pages.append((pair[0], value))
    return max(pages, key=lambda candidate: candidate[0])[1] if pages else None


def newest(data: bytes) -> tuple[int, int, int]:
    """Return the highest numbers of fast records, slow records and events in `data`, which begins
    after the status; 0 for none."""
    fast, rest = data[: SLOW_AT - FAST_AT], data[SLOW_AT - FAST_AT :]
    slow, events = rest[: EVENT_AT - SLOW_AT], rest[EVENT_AT - SLOW_AT :]
    whole = (record for slot in slots(fast, FAST_SLOT) if (record := unsealed(slot, FAST.size)))
    texts = [
        max((pair[0] for slot in slots(area, size) if (pair := unpacked(slot))), default=0)
        for area, size in ((slow, SLOW_SLOT), (events, EVENT_SLOT))
    ]
    return max((FAST.unpack(record)[0] for record in whole), default=0), texts[0], texts[1]


def slots(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data) - size + 1, size):
        yield data[at : at + size]


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
    sentinel of this run left a file there in this boot, its records are continued: `before` is
    that sentinel's pid, or 0, and `last` is its last status page."""

    def __init__(self, path: Path, run_id: str, clock: Clock) -> None:
        """Raises OSError if the file cannot be made, or there is no room for it."""
        self.path = path
        self._clock = clock
        self.before, self.last, earlier = _earlier_recording(path, run_id)
        self._map = _create(path)
        self._status = 0
        self._put(FAST_AT, earlier)
        self._fast, self._slow, self._event = newest(earlier) if earlier else (0, 0, 0)
        pid = os.getpid()
        header = HEADER.pack(
            MAGIC, VERSION, SIZE, run_id.encode()[:96], pid,
            process.start_time(pid) or 0, process.boot_id().encode()[:40],
            clock.now(), clock.monotonic(),
        )  # fmt: skip
        self._put(0, sealed(header))

    def tick(self, memory: Memory, some: float | None, full: float | None, level: str) -> None:
        """Write one fast sample; pressure is in per cent, None if not known."""
        self._fast += 1
        record = FAST.pack(
            self._fast, self._clock.now(), memory.at, memory.total, memory.available,
            memory.swap_used, _NAN if some is None else some, _NAN if full is None else full,
            LEVELS.index(level) if level in LEVELS else 0,
        )  # fmt: skip
        slot = self._fast % FAST_SLOTS
        self._put(FAST_AT + slot * FAST_SLOT, sealed(record))

    def second(self, values: dict[str, Any]) -> None:
        """Write one slow record as JSON, shortened to its slot. The times are added here."""
        self._slow += 1
        self._write(SLOW_AT, SLOW_SLOT, SLOW_SLOTS, self._slow, values)

    def event(self, what: str, text: str) -> None:
        """Write one event. `text` has to be clean."""
        self._event += 1
        line = {"what": what, "text": text}
        while len(data := _json({**self._times(), **line})) > EVENT_MOST:
            cut = max(1, (len(data) - EVENT_MOST) // 6)
            line["text"] = line["text"][: -cut - 1] + "…"
        self._write(EVENT_AT, EVENT_SLOT, EVENT_SLOTS, self._event, line)

    def status(self, page: dict[str, Any]) -> None:
        """Write the status page that viewers show, shortened to 8 KiB."""
        self._status += 1
        self._write(STATUS_AT, STATUS_SLOT, 2, self._status, page)

    def _write(self, at: int, size: int, slots: int, number: int, values: dict[str, Any]) -> None:
        text = shortened({**self._times(), **values}, size - TEXT.size)
        self._put(at + number % slots * size, packed(number, text))

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
    Until then they are kept, because a resumed run continues its ring buffer. The ring buffer of
    the run `gone` is removed at once.

    The copies on disk have all but the last second. Never raises.
    """
    for path in SHM.glob(f"{PREFIX}{os.getuid()}.*.ring"):
        with contextlib.suppress(OSError):
            file_stat = path.lstat()
            run = path.name.removeprefix(f"{PREFIX}{os.getuid()}.").removesuffix(".ring")
            wanted = run != gone and now - file_stat.st_mtime < KEPT_S
            if file_stat.st_uid == os.getuid() and not wanted and not _is_written(path):
                path.unlink()


def _is_written(path: Path) -> bool:
    """Return whether the sentinel that writes a file lives; False if the file has no header."""
    descriptor = open_untrusted(path, os.O_RDONLY)
    with open(descriptor, "rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        return False
    header = HEADER.unpack(head)
    boot = header[6].rstrip(b"\0").decode("ascii", "replace")
    return boot == process.boot_id() and process.alive(header[4], header[5])


def _earlier_recording(path: Path, run_id: str) -> tuple[int, dict[str, Any], bytes]:
    """Return pid, last status page and records of an earlier sentinel of the run, or empty ones."""
    try:
        descriptor = open_untrusted(path, os.O_RDONLY)
    except OSError:
        return 0, {}, b""
    try:
        file_stat = os.fstat(descriptor)
        if file_stat.st_uid != os.getuid() or file_stat.st_size != SIZE:
            return 0, {}, b""
        data = os.pread(descriptor, SIZE, 0)
    except OSError:
        return 0, {}, b""
    finally:
        os.close(descriptor)
    header = header_of(data)
    mine = (run_id.encode()[:96].decode("utf-8", "replace"), process.boot_id())
    if header is None or (header.run_id, header.boot) != mine:
        return 0, {}, b""
    return header.pid, page(data) or {}, data[FAST_AT:]


def _create(path: Path) -> mmap.mmap:
    # The directory is writable for everybody: never follow a link, and never open somebody else's
    # file.
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = open_untrusted(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        # Allocate the space now: a write into a full tmpfs would raise SIGBUS.
        os.posix_fallocate(descriptor, 0, SIZE)
        return mmap.mmap(descriptor, SIZE)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


def shortened(page: dict[str, Any], most: int) -> bytes:
    """Return JSON of at most `most` bytes. The longest values are cut, and `cut` then says so."""
    data = _json(page)
    if len(data) <= most:
        return data
    page = {**page, "cut": True}
    while len(data := _json(page)) > most:
        key = max(
            (name for name in page if name != "cut"),
            key=lambda name: len(_json([name, page[name]])),
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
