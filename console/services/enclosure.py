"""A control group of its own for a host process: whoever it starts stays in it, whatever parent,
session or environment they take.

Best effort: version 2, and only where this user may make a group below the one this process is in
(root, or a user's unit). Without one a process is known by its group, session, parents and cookie,
and one that sheds all four is not found.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from console.services import cgroup, process
from console.services.cgroup import Cgroup, Hierarchy

PREFIX = "omni."


def enclose(pid: int, start: int) -> str:
    """Put a child of this process, only just started, into a group of its own; its path, or ""."""
    home, found = _home(), process.stat(pid)
    if not home or found is None or (found.start, found.parent) != (start, os.getpid()):
        return ""
    path = f"{home}/{_name(pid, start)}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        _write(f"{path}/cgroup.procs", str(pid))
    except OSError:
        _remove(path)
        return ""
    return path


def of(path: str, pid: int, start: int) -> Cgroup | None:
    """The group that a record names, if it can be that process's and stands."""
    trees = [tree for tree in cgroup.hierarchies() if not tree.kind]
    inside = any(path.startswith(f"{tree.mount}/") for tree in trees)
    if not inside or ".." in path or os.path.basename(path) != _name(pid, start):
        return None
    inode = cgroup.inode_of(path)
    return Cgroup(path, inode) if inode else None


def end(path: str, pid: int, start: int, spared: Collection[int] = ()) -> int:
    """Kill whoever is left in the group of a process that was ended, and remove it; how many were
    left. A group with somebody spared in it is left alone."""
    group = of(path, pid, start) if path else None
    if group is None:
        return 0
    left = cgroup.pids(group.path)
    if set(left) & set(spared):
        return 0
    if left:
        with contextlib.suppress(OSError):
            _write(f"{path}/cgroup.kill", "1")
    _remove(path)
    return len(left)


def of_process(pid: int, start: int) -> str:
    """Where `enclose` of this very process puts another one; "" where it has put it nowhere."""
    home = _home()
    path = f"{home}/{_name(pid, start)}"
    return path if home and os.path.isdir(path) else ""


def sweep() -> None:
    """Remove groups that nobody is left in; the kernel refuses all others. Never raises."""
    home = _home()
    with contextlib.suppress(OSError):
        for found in Path(home).glob(f"{PREFIX}*.*") if home else ():
            _remove(str(found))


def _name(pid: int, start: int) -> str:
    return f"{PREFIX}{pid}.{start}"


def _home(tree: Hierarchy | None = None) -> str:
    """The group of this process in version 2's hierarchy; "" without one."""
    tree = tree or next((one for one in cgroup.hierarchies() if not one.kind), None)
    if tree is None:
        return ""
    mine = next((path for kind, path in cgroup.paths_of("self") if not kind), "")
    above = mine.split(f"/{PREFIX}", 1)[0].rstrip("/")  # this process may be in such a group itself
    return f"{tree.mount}{above}" if mine and ".." not in mine else ""


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)
