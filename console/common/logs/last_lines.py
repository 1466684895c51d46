"""The end of a log file, clean. Standard library only; the emergency side reads these too."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from console.common import redact
from console.common.text import clean, decode

READ_LIMIT = 8 * 1024 * 1024
"""Bytes at the end of a file that `read_last` looks at, at most."""
COPY = 1024 * 1024


def read_last(path: Path, count: int) -> list[str]:
    """The last `count` lines of a log file, clean; only the end of the file is read.

    A missing or unreadable file gives no lines.
    """
    try:
        with path.open("rb") as file:
            data = _end_of(file.fileno(), count)
    except OSError:
        return []
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    return [redact.text(clean(decode(line))) for line in lines[-count:]] if count > 0 else []


def _end_of(descriptor: int, count: int) -> bytes:
    """At least `count` lines from the end where there are as many within READ_LIMIT bytes."""
    at = size = os.fstat(descriptor).st_size
    step, data = 64 * 1024, b""
    while at > 0 and data.count(b"\n") <= count and size - at < READ_LIMIT:
        take = min(step, at)
        at -= take
        data = os.pread(descriptor, take, at) + data
        step = min(step * 2, COPY)
    return data


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
