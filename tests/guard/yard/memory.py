"""What this machine has left, what tests may take of it, and a swap file for a while."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.guard.yard import programs
from tests.testbed.cache import Unavailable

MIB, GIB = 1 << 20, 1 << 30
RESERVE = 5 * GIB
"""Bytes that must be left on the machine beside the largest hog."""
QUICK = 1.5 * GIB
"""If memory is touched at this many bytes a second, the hypervisor has handed it out already."""


def available() -> int:
    """Return MemAvailable in bytes."""
    return int(psutil.virtual_memory().available)


def require(size: int) -> int:
    """Return MemAvailable, after a check that `size` may be taken. Raises Unavailable."""
    left = available()
    if left < size + RESERVE:
        raise Unavailable(f"{left / GIB:.1f} GiB available: too little for a hog of {size / GIB:g}")
    return left


def settled(limit_s: float = 60.0, within: int = 32 * MIB) -> int:
    """Return MemAvailable once it is stable: somebody else on this machine may run a hog as
    well."""
    deadline = time.monotonic() + limit_s
    seen = [available()]
    while time.monotonic() < deadline:
        time.sleep(0.1)
        seen = [*seen[-3:], available()]
        if len(seen) == 4 and max(seen) - min(seen) < within:
            return seen[-1]
    raise Unavailable("what is available on this machine does not stand still")


def warm(size: int, tries: int = 4) -> float:
    """Touch memory until that is fast; returns the last rate in bytes a second.

    A virtual machine gets its memory at the first touch and gives free memory back after two
    seconds: a hog on memory that was not touched before would measure the hypervisor.
    """
    rate = 0.0
    for _ in range(tries):
        require(size)
        begun = time.monotonic()
        subprocess.run([programs.hog(), "touch", str(size)], check=True, timeout=60)
        rate = size / (time.monotonic() - begun)
        if rate >= QUICK:
            break
    return rate


@contextmanager
def swap_file(place: Path, size: int = 2 * GIB) -> Iterator[Path]:
    """Swap on a file of the disk that `place` is on, which is switched off again whatever
    happens."""
    path = place / "swap"
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        os.posix_fallocate(file.fileno(), 0, size)
    try:
        subprocess.run(["/sbin/mkswap", str(path)], check=True, capture_output=True, timeout=60)
        if libc.swapon(os.fsencode(path), 0) != 0:
            raise Unavailable(f"swapon: {os.strerror(ctypes.get_errno())}")
        try:
            yield path
        finally:
            if libc.swapoff(os.fsencode(path)) != 0:
                raise OSError(ctypes.get_errno(), "swapoff", str(path))
    finally:
        path.unlink(missing_ok=True)
