"""The cgroup that bounds this process, if any: limits of its own level and of those above.

Both hierarchies: v2 (memory.max, memory.current, memory.stat inactive_file) and v1
(memory.limit_in_bytes, memory.usage_in_bytes, memory.stat total_inactive_file).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_STAT = 16384
_NAMES = {
    2: ("memory.max", "memory.current", b"inactive_file "),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file "),
}


@dataclass(frozen=True, slots=True)
class Level:
    """One directory with a limit in bytes; its open files."""

    path: Path
    limit: int
    usage: int
    stat: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Mount:
    """A cgroup file system that has the memory controller: which of it is seen, and where."""

    version: int
    root: str
    point: Path


class Bound:
    """The bounding levels, found once; a limit above the machine's own memory is none."""

    def __init__(self, root: Path, total: int) -> None:
        self.levels: list[Level] = []
        self.inside = False
        """Whether something of the run is bounded with this process: of others nothing is told."""
        for mount in mounts(root):
            inside = own_path(root, mount.version)
            if inside is None:
                continue
            for place in _up(mount, inside):
                self._keep(place, mount.version, total)

    @property
    def least(self) -> int:
        """The lowest limit in bytes, 0 without one."""
        return min((level.limit for level in self.levels), default=0)

    def look(self) -> int | None:
        """Bytes left to the level that is nearest its end; None when none answers."""
        known = [left for level in self.levels if (left := _left(level)) is not None]
        return min(known, default=None)

    def close(self) -> None:
        for level in self.levels:
            os.close(level.usage)
            os.close(level.stat)
        self.levels.clear()

    def _keep(self, place: Path, version: int, total: int) -> None:
        limit_name, usage_name, key = _NAMES[version]
        limit = number_in(place / limit_name)
        if limit is None or not 0 < limit < total:
            return
        descriptors: list[int] = []
        try:
            for name in (usage_name, "memory.stat"):
                descriptors.append(os.open(place / name, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        usage, stat = descriptors
        self.levels.append(Level(place, limit, usage, stat, key))


def _left(level: Level) -> int | None:
    try:
        used = int(os.pread(level.usage, 64, 0))
        text = os.pread(level.stat, _STAT, 0)
    except (OSError, ValueError):
        return None
    at = text.find(b"\n" + level.key)
    cache = 0
    if at >= 0:
        at += len(level.key) + 1
        cache = int(text[at : text.find(b"\n", at)])
    return max(0, level.limit - used + min(cache, used))


def number_in(path: Path) -> int | None:
    """The number a file of the kernel holds; None for "max", no number, and no file."""
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return None


def mounts(root: Path) -> list[Mount]:
    """The mounted hierarchies that may account memory, v2 first."""
    try:
        lines = (root / "proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        point = root / fields[4].replace("\\040", " ").lstrip("/")
        if kind[0] == "cgroup2":
            found.append(Mount(2, fields[3], point))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.append(Mount(1, fields[3], point))
    return sorted(found, key=lambda one: -one.version)


def own_path(root: Path, version: int, pid: str = "self") -> str | None:
    """Where a process stands in a hierarchy; None when it is in none."""
    try:
        text = (root / "proc" / pid / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return None
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (version == 2 and not controllers) or (
            version == 1 and "memory" in controllers.split(",")
        ):
            return path
    return None


def directory(mount: Mount, inside: str) -> Path:
    """The directory of a path in a hierarchy: without a cgroup namespace the mount shows only a
    part of it, and a path from outside that part means the mount itself."""
    if mount.root != "/":
        inside = inside[len(mount.root) :] if inside.startswith(mount.root) else ""
    if ".." in inside.split("/"):
        return mount.point
    return mount.point / inside.strip("/")


def _up(mount: Mount, inside: str) -> list[Path]:
    place, found = directory(mount, inside), []
    while True:
        found.append(place)
        if place == mount.point or mount.point not in place.parents:
            return found
        place = place.parent
