"""The disk a download fills, and the floor its free space must not fall under."""

from __future__ import annotations

from pathlib import Path

from console.common.text import clean
from console.common.units import both_units
from console.host.disk import Space
from console.models.hub.errors import DiskShort

SHARE = 0.05
LEAST = 20 * 10**9


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
