"""What this machine has left, what tests may take of it, and a swap file for a while."""

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.testbed import debian
from tests.testbed.cache import Unavailable, command, fingerprint, folder, locked

SOURCES = Path(__file__).resolve().parents[2] / "benchmarks"
MIB, GIB = 1 << 20, 1 << 30
RESERVE = 5 * GIB
"""Bytes that must be left on the machine beside the largest hog."""
QUICK = 1.5 * GIB
"""If memory is touched at this many bytes a second, the hypervisor has handed it out already."""


def available() -> int:
    return int(psutil.virtual_memory().available)


def require(size: int) -> None:
    """Check that so much may be taken. Raises Unavailable."""
    if (left := available()) < size + RESERVE:
        raise Unavailable(f"{left / GIB:.1f} GiB available: too little for a hog of {size / GIB:g}")


def settled(limit_s: float = 60.0, within: int = 32 * MIB) -> int:
    """Return MemAvailable once it is stable: others may run a hog as well."""
    deadline = time.monotonic() + limit_s
    seen = [available()]
    while time.monotonic() < deadline:
        time.sleep(0.1)
        seen = [*seen[-3:], available()]
        if len(seen) == 4 and max(seen) - min(seen) < within:
            return seen[-1]
    raise Unavailable("what is available on this machine does not stand still")


def warm(size: int, tries: int = 4) -> None:
    """Touch memory until that is fast.

    A virtual machine gets its memory at the first touch and gives free memory back after two
    seconds: a hog on memory that was not touched before would measure the hypervisor.
    """
    for _ in range(tries):
        require(size)
        begun = time.monotonic()
        subprocess.run([hog(), "touch", str(size)], check=True, timeout=60)
        if size / (time.monotonic() - begun) >= QUICK:
            break


@contextmanager
def swap_file(place: Path, size: int = 2 * GIB) -> Iterator[Path]:
    """Swap on a file below `place`, which is switched off again whatever happens."""
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


def hog() -> Path:
    """Return a load that has to be stopped; see benchmarks/hog.c."""
    return program("hog")


def program(name: str) -> Path:
    """Return a C program of these tests, kept in the testbed's cache; any image runs it."""
    source = SOURCES / f"{name}.c"
    program = folder(f"yard/{fingerprint(source.read_text())}") / name
    with locked("yard"):
        if not program.exists():
            gcc = debian.require_program("gcc", ["gcc", "libc6-dev"])
            fresh = program.with_suffix(".new")
            argv = [gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
            command([*argv, "-o", str(fresh), str(source)])
            fresh.replace(program)
    return program
