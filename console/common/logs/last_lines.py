"""The end of a log file, clean. Standard library only; the emergency side reads these too."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from console.common import redact
from console.common.text import clean, decode

END_LIMIT = 8 * 1024 * 1024
"""Bytes at the end of a file that are read for its last lines, at most."""
BLOCK = 256 * 1024


def read_last(path: Path, count: int) -> list[str]:
    """The last `count` lines of a log file, clean; only the end of the file is read.

    A missing or unreadable file gives no lines.
    """
    try:
        with path.open("rb") as file:
            file.seek(end_start(file.fileno(), count))
            data = file.read(END_LIMIT)
    except OSError:
        return []
    lines = data.removesuffix(b"\n").split(b"\n")[-count:] if data and count > 0 else []
    return [redact.text(clean(decode(line))) for line in lines]


def end_start(descriptor: int, lines: int) -> int:
    """Where the last `lines` lines of a file begin, at most END_LIMIT before its end."""
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
        found = block.count(b"\n")
        if found >= wanted:
            place = len(block)
            for _ in range(wanted):
                place = block.rfind(b"\n", 0, place)
            return at + place + 1
        wanted -= found
    if floor == 0:
        return 0
    # Too long for that many lines: from the first that is whole, if there is one.
    whole = floor + os.pread(descriptor, END_LIMIT, floor).find(b"\n") + 1
    return whole if whole < size else floor


def keep_end(path: Path, cap_bytes: int) -> bool:
    """Cut a log that another process appends to back to its newest half; True when it was cut.

    The writer holds the file open for appending, so it is emptied in place; what was written
    between the look and the cut is lost, and the marker line says that something was.
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
