"""Scripted VRAM: a file a process, naming bytes per card, that counts while its lock is held.

The lock goes with the process, so memory is given back after SIGKILL as well.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path


class OutOfMemory(Exception):
    """The cards have not that much left; the text is what CUDA says."""


def held(directory: Path) -> dict[str, int]:
    """Bytes in use by UUID: what every live process in `directory` said it holds."""
    used: dict[str, int] = {}
    for path in sorted(directory.glob("*.hold")):
        for uuid, size in _live(path).items():
            used[uuid] = used.get(uuid, 0) + size
    return used


def _live(path: Path) -> dict[str, int]:
    """What a file says while its process lives; empty for one whose process is gone."""
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found = json.loads(file.read() or "{}")
                return {str(uuid): int(size) for uuid, size in found.items()}
    except (OSError, ValueError):
        pass
    return {}


def hold(directory: Path, wanted: Mapping[str, int], total: Mapping[str, int]) -> int:
    """Take bytes of the cards for as long as the returned descriptor is open, or the process lives.

    Raises OutOfMemory where a card has not that much left, OSError as writing does.
    """
    used = held(directory)
    for uuid, size in wanted.items():
        if used.get(uuid, 0) + size > total.get(uuid, size):
            free = total.get(uuid, 0) - used.get(uuid, 0)
            raise OutOfMemory(f"CUDA error: out of memory: {size} B wanted of {uuid}, {free} free")
    path = directory / f"{socket.gethostname()}-{os.getpid()}.hold"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.truncate(descriptor, 0)
    os.write(descriptor, json.dumps(dict(wanted)).encode())
    return descriptor
