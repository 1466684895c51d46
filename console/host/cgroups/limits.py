"""Memory limits of the cgroups that a process is in: version 2, version 1, and both at once.

Every group up to the root has its say. A group's usage counts the page cache, which the kernel
gives back. `limits` takes what is neither inactive nor active file memory as used; `Bound`, whose
files stay open for one look after the other, only what is not inactive file memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60
"""Version 1 writes a number of this size where there is no limit, bytes."""

_STAT = 16384
_NAMES = {
    2: ("memory.max", "memory.current", b"inactive_file "),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file "),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One group with a limit: `left` of `most` bytes, and of its swap (None: not limited)."""

    group: str
    most: int
    left: int
    swap_left: int | None = None


@dataclass(frozen=True, slots=True)
class _Files:
    """Where a version keeps its figures."""

    most: str
    used: str
    inactive: str
    active: str


_V2 = _Files("memory.max", "memory.current", "inactive_file", "active_file")
_V1 = _Files(
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"
)


def limits(root: Path = Path("/")) -> list[Limit]:
    """Every memory limit on this process, its own group's first; empty where there is none."""
    found = []
    for folder, top, files in _groups(root):
        while True:
            limit = _limit(folder, str(folder.relative_to(top.parent)), files)
            if limit is not None:
                found.append(limit)
            if folder == top:
                break
            folder = folder.parent
    return found


def _groups(root: Path) -> Iterator[tuple[Path, Path, _Files]]:
    """This process's group and the top of its tree, for each version that is mounted."""
    paths = dict(_paths(root))
    for row in _text(root / "proc/self/mountinfo").splitlines():
        fields, _, after = row.partition(" - ")
        words, kind = fields.split(), after.split()
        if len(words) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" and "" in paths:
            path, files = paths[""], _V2
        elif kind[0] == "cgroup" and "memory" in kind[2].split(",") and "memory" in paths:
            path, files = paths["memory"], _V1
        else:
            continue
        top = root / _unescaped(words[4]).lstrip("/")
        # In a container without a namespace of its own the mount shows a part of the tree.
        inner = path.removeprefix(_unescaped(words[3]).rstrip("/")).lstrip("/")
        folder = top / inner
        yield (folder if folder.is_dir() and ".." not in inner else top), top, files


def _paths(root: Path) -> Iterator[tuple[str, str]]:
    """Group by controller; "" is version 2's."""
    for row in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = row.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            yield "", path
        for name in filter(None, names.split(",")):
            yield name, path


def _limit(folder: Path, name: str, files: _Files) -> Limit | None:
    most, used = _number(folder / files.most), _number(folder / files.used)
    if most is None or most >= UNLIMITED or used is None:
        return None
    table = dict(re.findall(r"^(\w+) (\d+)$", _text(folder / "memory.stat"), re.MULTILINE))
    cache = int(table.get(files.inactive, 0)) + int(table.get(files.active, 0))
    left = max(0, most - max(0, used - cache))
    swap, swapped = _number(folder / "memory.swap.max"), _number(folder / "memory.swap.current")
    swap_left = None if swap is None or swapped is None else max(0, swap - swapped)
    return Limit(name, most, left, swap_left)


def _number(path: Path) -> int | None:
    """A figure in bytes; None where there is no file, or no limit (`max`)."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


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
    """The levels that bound this process, found once: limits of its own level and of those above;
    one above the machine's own memory is none."""

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
