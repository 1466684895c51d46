"""The disk a download fills, and the floor its free space must not fall under."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from console.common.text import clean
from console.common.units import both_units
from console.models.hub.errors import DiskShort

SHARE = 0.05
LEAST = 20 * 10**9


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of a file system: free for this user, and in all."""

    free: int
    total: int


def space(path: Path) -> Space:
    """The file system that `path` is on, or would be made on. Raises OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    info = os.statvfs(path)
    return Space(info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize)


def floor(total: int) -> int:
    """The larger of 5 % and 20 GB: logs, a journal and page-out need room beside a model."""
    return max(int(total * SHARE), LEAST)


def require(path: Path, found: Space, need: int, least: int) -> None:
    """Raises DiskShort where `need` more bytes would bring the free space under `least`."""
    short = need + least - found.free
    if short > 0:
        raise DiskShort(
            f"{clean(str(path))}: {both_units(short)} too little room",
            f"{both_units(need)} to write and {both_units(least)} to keep free, "
            f"{both_units(found.free)} free",
            f"du -xsh {clean(str(path.parent))}/* shows what is large; a smaller quantization "
            "needs less",
        )
