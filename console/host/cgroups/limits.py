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

from console.common.files import read_text

UNLIMITED = 1 << 60
"""Version 1 writes a number of this size where there is no limit, bytes."""
_STAT = 16384


@dataclass(frozen=True, slots=True)
class Limit:
    """One group with a limit: `left` of `most` bytes, and of its swap (None: not limited)."""

    group: str
    most: int
    left: int
    swap_left: int | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """Where a version keeps its figures; `controller` as /proc/PID/cgroup names its groups."""

    controller: str
    most: str
    used: str
    inactive: str
    active: str
    events: str


V2 = Files("", "memory.max", "memory.current", "inactive_file", "active_file", "memory.events")
V1 = Files(
    "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
    "total_inactive_file", "total_active_file", "memory.oom_control",
)  # fmt: skip


def limits(root: Path) -> list[Limit]:
    """Every memory limit on this process, its own group's first; empty where there is none."""
    found = (_limit(folder, name, files) for folder, name, files in _groups(root))
    return [one for one in found if one is not None]


def _groups(root: Path) -> Iterator[tuple[Path, str, Files]]:
    """Each group that this process is in and that may account memory, its own first and version 2
    before version 1: its directory, its name, its files."""
    rows = [row.split(":", 2) for row in read_text(root / "proc/self/cgroup").splitlines()]
    inside = {
        name: path
        for number, names, path in (row for row in rows if len(row) == 3)
        if names or number == "0"
        for name in names.split(",")
    }
    for top, shown, files in sorted(_mounts(root), key=lambda one: one[2].controller):
        if files.controller not in inside:
            continue
        # Without a control group namespace the mount shows only a part of the tree.
        path = inside[files.controller]
        inner = path.removeprefix(shown).strip("/") if path.startswith(shown) else ""
        folder = top if ".." in inner.split("/") else top / inner
        for one in (folder, *folder.parents):
            if one.is_relative_to(top):
                yield one, str(one.relative_to(top.parent)), files


def _mounts(root: Path) -> Iterator[tuple[Path, str, Files]]:
    """What may account memory: where it is mounted, which part of the tree, its files."""
    for row in read_text(root / "proc/self/mountinfo").splitlines():
        left, _, right = row.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        shown, point = (_unescaped(field) for field in fields[3:5])
        if kind[0] == "cgroup2":
            yield root / point.lstrip("/"), shown, V2
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            yield root / point.lstrip("/"), shown, V1


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _limit(folder: Path, name: str, files: Files) -> Limit | None:
    most, used = number_in(folder / files.most), number_in(folder / files.used)
    if most is None or not 0 <= most < UNLIMITED or used is None:
        return None
    table = dict(re.findall(r"^(\w+) (\d+)$", read_text(folder / "memory.stat"), re.MULTILINE))
    cache = int(table.get(files.inactive, 0)) + int(table.get(files.active, 0))
    left = max(0, most - max(0, used - cache))
    swap, swapped = number_in(folder / "memory.swap.max"), number_in(folder / "memory.swap.current")
    swap_left = None if swap is None or swapped is None else max(0, swap - swapped)
    return Limit(name, most, left, swap_left)


def number_in(path: Path) -> int | None:
    """The number a file of the kernel holds; None for "max", no number, and no file."""
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Level:
    """One group with a limit in bytes: its open files, and the row of its page cache."""

    limit: int
    usage: int
    stat: int
    key: bytes


class Bound:
    """The levels that bound this process, found once: limits of its own level and of those above;
    one above the machine's own memory is none."""

    def __init__(self, root: Path, total: int) -> None:
        self.inside = False
        """Whether something of the run is bounded with this process: of others nothing is told."""
        found = (_level(folder, files, total) for folder, _, files in _groups(root))
        self.levels = [one for one in found if one is not None]

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


def _level(folder: Path, files: Files, total: int) -> Level | None:
    limit = number_in(folder / files.most)
    if limit is None or not 0 < limit < total:
        return None
    opened: list[int] = []
    try:
        for name in (files.used, "memory.stat"):
            opened.append(os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        return None
    usage, stat = opened
    return Level(limit, usage, stat, f"\n{files.inactive} ".encode())


def _left(level: Level) -> int | None:
    try:
        used = int(os.pread(level.usage, 64, 0))
        text = os.pread(level.stat, _STAT, 0)
    except (OSError, ValueError):
        return None
    at = text.find(level.key)
    cache = 0
    if at >= 0:
        at += len(level.key)
        cache = int(text[at : text.find(b"\n", at)])
    return max(0, level.limit - used + min(cache, used))
