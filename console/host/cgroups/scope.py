"""A control group of its own for a host process, which whoever it starts stays in.

Whatever parent, session or environment they take: it is in there before its first instruction.

Best effort: version 2, and only where this user may make a group below the one this process is in
(root, or a user's unit). Without one a process is known by its group, session, parents and cookie,
and one that sheds all four is not found.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from console.common.files import write_at_once
from console.host.cgroups import cgroup
from console.host.cgroups.cgroup import Cgroup, Hierarchy

PREFIX = "omni."
AIRLOCK = ("-I", "-S", "-X", "utf8", str(Path(__file__).with_name("exec.py")))


def popen(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` of a command that enters a group of its own before its first instruction;
    where this user can make none, without. Returns when it runs; raises what Popen does."""
    home = _home()
    if not home or not argv or not os.access(home, os.W_OK):
        return subprocess.Popen(list(argv), **options)
    reading, writing = os.pipe()
    enter = (sys.executable, *AIRLOCK, f"{home}/{PREFIX}", str(writing))
    try:
        try:
            child = subprocess.Popen([*enter, *argv], pass_fds=(writing,), **options)
        finally:
            os.close(writing)
        code = os.read(reading, 16)  # nothing: it became the command
    finally:
        os.close(reading)
    if not code:
        return child
    with child:  # waits, and closes its pipe
        pass
    for left in glob(f"{home}/{PREFIX}{child.pid}.*"):
        _remove(left)
    raise OSError(int(code), os.strerror(int(code)), argv[0])


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
            write_at_once(f"{path}/cgroup.kill", "1")
    _remove(path)
    return len(left)


def of_process(pid: int, start: int) -> str:
    """The group of a process that `popen` started, from whatever session; "" where it has none.
    Of one that is gone only a group below this process's own is found."""
    tree, name = _tree(), _name(pid, start)
    above, found, _ = f"{_inside(pid)}/".partition(f"/{name}/")
    home = f"{tree.mount}{above}" if tree is not None and found else _home()
    path = f"{home}/{name}"
    return path if home and os.path.isdir(path) else ""


def is_inside(pid: int, leader: int, start: int) -> bool:
    """Whether a process is in the group that `popen` made for this leader, or in one below it."""
    return f"/{_name(leader, start)}/" in f"{_inside(pid)}/"


def sweep() -> None:
    """Remove groups that nobody is left in; the kernel refuses all others. Never raises."""
    home = _home()
    with contextlib.suppress(OSError):
        for found in Path(home).glob(f"{PREFIX}*.*") if home else ():
            _remove(str(found))


def _name(pid: int, start: int) -> str:
    return f"{PREFIX}{pid}.{start}"


def _home() -> str:
    """The group of this process in version 2's hierarchy; "" without one."""
    tree, mine = _tree(), _inside("self")
    above = mine.split(f"/{PREFIX}", 1)[0].rstrip("/")  # this process may be in such a group itself
    return f"{tree.mount}{above}" if tree is not None and mine else ""


def _tree() -> Hierarchy | None:
    return next((one for one in cgroup.hierarchies() if not one.kind), None)


def _inside(pid: int | str) -> str:
    """The group of a process, from version 2's mount on; "" without one."""
    path = next((path for kind, path in cgroup.paths_of(pid) if not kind), "")
    return "" if ".." in path else path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)
