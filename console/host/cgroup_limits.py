"""What the cgroups above a process leave it: version 2, version 1, and both at once.

A group's usage counts the page cache, which the kernel gives back; so what is left is the limit
less what is neither inactive nor active file memory. Every group up to the root has its say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60
"""Version 1 writes a number of this size where there is no limit, bytes."""


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
