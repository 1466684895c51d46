"""Control groups: a container's by its id, and one of its own for a host process.

A container's: version 2, version 1 and both, any driver, rootless too. The usual places cost a few
stats. Only a container that is in none of them (`cgroup-parent`, an engine in a group of its own)
is searched in /proc/*/cgroup. Standard library only.

A host process's: every descendant stays in it, whatever parent, session or environment it takes,
because the process enters it before its first instruction. Best effort: version 2, and only if this
user may make a group below this process's own (root, or a user's unit). Without one a process is
identified by its group, session, parents and cookie, and one that sheds all four is not found.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from console.common.files import read_bytes, read_text, write_at_once
from console.host import children

FULL_ID = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(rb"[0-9a-f]{64}")
DEPTH = 5
"""How deep below a container's group processes are searched: it may have groups of its own."""
_MAX_GROUPS = 512
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One directory of one hierarchy; `inode` never names another group as long as this one lives.

    `kind` is "" for version 2, else version 1's controllers as the kernel names them.
    """

    path: str
    inode: int
    kind: str = ""

    @property
    def stands(self) -> bool:
        """Whether it is still that same group."""
        return inode_of(self.path) == self.inode


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted tree of control groups."""

    mount: str
    kind: str = ""


def inode_of(path: str) -> int:
    """The inode of a directory, 0 if there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def hierarchies(mounts: str = "/proc/self/mounts") -> tuple[Hierarchy, ...]:
    """What is mounted, version 2 first."""
    trees: dict[Hierarchy, None] = {}
    for row in read_text(mounts).splitlines():
        words = row.split(" ")
        if len(words) < 4 or words[2] not in ("cgroup", "cgroup2"):
            continue
        mount = _OCTAL.sub(lambda code: chr(int(code[1], 8)), words[1])
        kind = "" if words[2] == "cgroup2" else _controllers(words[3])
        trees[Hierarchy(mount, kind)] = None
    return tuple(sorted(trees, key=lambda tree: tree.kind != ""))


def _controllers(options: str) -> str:
    """The controllers among version 1's mount options, as in /proc/PID/cgroup."""
    known = {
        "rw", "ro", "nosuid", "nodev", "noexec", "relatime", "noatime", "xattr", "clone_children",
    }  # fmt: skip
    return ",".join(o for o in options.split(",") if o not in known and "release_agent" not in o)


def find(
    container: str,
    trees: Iterable[Hierarchy] | None = None,
    *,
    scan: bool = True,
    inside: Mapping[str, int] | None = None,
) -> tuple[Cgroup, ...]:
    """The groups of a container in every hierarchy, version 2 first; empty while it has none.

    `container` is its full id: 64 hexadecimal digits, anything else has no group. `scan`: search
    /proc too if the usual places are empty, or `inside`, the result of one such search for many.
    """
    if not FULL_ID.fullmatch(container):
        return ()
    trees = tuple(hierarchies() if trees is None else trees)
    usual = [made for tree in trees for made in _usual(tree, container)]
    # One process of it knows its groups in every hierarchy, wherever they are.
    pid = next((pid for group in usual for pid in pids(group.path)), 0)
    if not pid and not usual and scan:
        pid = (processes() if inside is None else inside).get(container, 0)
    exact = list(_groups_of(pid, container, trees)) if pid else []
    unique = {group.path: group for group in (*usual, *exact)}
    return tuple(sorted(unique.values(), key=lambda group: group.kind != ""))


def _usual(tree: Hierarchy, container: str) -> Iterator[Cgroup]:
    for place in _places(container):
        path = f"{tree.mount}/{place}"
        inode = inode_of(path)
        if inode:
            yield Cgroup(path, inode, tree.kind)


def _places(container: str) -> tuple[str, ...]:
    """cgroupfs driver, systemd driver, both of a rootless engine; and podman's."""
    user = f"user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service"
    return (
        f"docker/{container}",
        f"system.slice/docker-{container}.scope",
        f"{user}/user.slice/docker-{container}.scope",
        f"{user}/app.slice/docker.service/docker/{container}",
        f"{user}/docker.service/docker/{container}",
        f"{user}/user.slice/libpod-{container}.scope",
        f"machine.slice/libpod-{container}.scope",
        f"libpod_parent/libpod-{container}",
    )


def processes() -> dict[str, int]:
    """One process of each running container, by its id; takes some 20 µs a process."""
    container_pids: dict[str, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            for word in _ID.findall(read_bytes(f"/proc/{name}/cgroup")):
                container_pids.setdefault(word.decode(), int(name))
    return container_pids


def _groups_of(pid: int, container: str, trees: Iterable[Hierarchy]) -> Iterator[Cgroup]:
    mounts = {tree.kind: tree.mount for tree in trees}
    for kind, path in paths_of(pid):
        head, separator, tail = path.partition(container)
        if not separator or kind not in mounts or ".." in path:
            continue
        # The process may sit in a group below the container's own.
        own = head + separator + tail.split("/", 1)[0]
        inode = inode_of(mounts[kind] + own)
        if inode:
            yield Cgroup(mounts[kind] + own, inode, kind)


def paths_of(pid: int | str) -> list[tuple[str, str]]:
    """(kind, path below the mount) of each group a process is in; empty when it is gone."""
    rows = (line.split(":", 2) for line in read_text(f"/proc/{pid}/cgroup").splitlines())
    return [(fields[1], fields[2]) for fields in rows if len(fields) == 3]


def pid_namespace(pid: int | str) -> str:
    """Identifies a container without groups; "" if it cannot be seen."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def pids(path: str, depth: int = DEPTH) -> list[int]:
    """The processes of a group and of those below it; empty when it is gone or empty."""
    members = [int(word) for word in read_bytes(f"{path}/cgroup.procs").split()]
    if depth > 0:
        for below in _below(path):
            members += pids(below, depth - 1)
    return members


def _below(path: str) -> list[str]:
    try:
        # Two links more than it has groups below it: most have none, and need no listing.
        if os.stat(path).st_nlink <= 2:
            return []
        with os.scandir(path) as entries:
            return [e.path for e in entries if e.is_dir(follow_symlinks=False)][:_MAX_GROUPS]
    except OSError:
        return []


def is_empty(group: Cgroup) -> bool:
    """Whether no process is left in that very group or below it; one that is gone is empty."""
    if not group.stands:
        return True
    if group.kind == "":
        data = read_bytes(f"{group.path}/cgroup.events")
        if data:
            return b"populated 0" in data
    return not pids(group.path)


def die_together(container: str) -> bool:
    """Have the kernel end a container as a whole when its memory limit is passed (version 2).

    False if there is no such switch or this user may not set it; then the kernel ends one process,
    and a server may go on without its workers.
    """
    done = False
    for group in find(container, scan=False):
        with contextlib.suppress(OSError):
            write_at_once(f"{group.path}/memory.oom.group", "1")
            done = True
    return done


PREFIX = "omni."
AIRLOCK = ("-I", "-S", "-X", "utf8", str(Path(__file__).with_name("cgroup_exec.py")))


def popen(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` of a command that enters a group of its own before its first instruction,
    or none if this user cannot make one. Returns when it runs; raises what Popen does."""
    env, home = os.environ if env is None else env, _home()
    if not home or not argv or not os.access(home, os.W_OK):
        return subprocess.Popen(list(argv), env=env, **options)
    reading, writing = os.pipe()
    variables = _rows(env)
    enter = (sys.executable, *AIRLOCK, f"{home}/{PREFIX}", str(writing), str(variables))
    try:
        try:
            child = subprocess.Popen(
                [*enter, *argv], pass_fds=(writing, variables), env=_own(env), **options
            )
        finally:
            os.close(writing)
            os.close(variables)
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


def _rows(env: Mapping[str, str]) -> int:
    """An open file in memory with NAME=VALUE rows, each with a NUL behind it."""
    descriptor = os.memfd_create("environment")
    with open(descriptor, "wb", closefd=False) as file:
        for name, value in env.items():
            file.write(os.fsencode(f"{name}={value}") + b"\0")
    return descriptor


def _own(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of this interpreter while it is not yet the command: its own libraries, and
    the command's cookies, by which a stray is found."""
    cookies = {name: value for name, value in env.items() if name.startswith("OMNI_")}
    return {**children.kept(), **cookies}


def of(path: str, pid: int, start: int) -> Cgroup | None:
    """The group that a record names, if it exists and can be that process's."""
    trees = [tree for tree in hierarchies() if not tree.kind]
    inside = any(path.startswith(f"{tree.mount}/") for tree in trees)
    if not inside or ".." in path or os.path.basename(path) != _name(pid, start):
        return None
    inode = inode_of(path)
    return Cgroup(path, inode) if inode else None


def end(path: str, pid: int, start: int, spared: Collection[int] = ()) -> int:
    """Kill whoever is left in the group of an ended process, and remove it; return how many were
    left. A group with a spared process in it is left alone."""
    group = of(path, pid, start) if path else None
    if group is None:
        return 0
    left = pids(group.path)
    if set(left) & set(spared):
        return 0
    if left:
        with contextlib.suppress(OSError):
            write_at_once(f"{path}/cgroup.kill", "1")
    _remove(path)
    return len(left)


def of_process(pid: int, start: int) -> str:
    """The group of a process that `popen` started, from whatever session; "" if it has none. For a
    dead process only a group below this process's own is found."""
    tree, name = _tree(), _name(pid, start)
    above, separator, _ = f"{_inside(pid)}/".partition(f"/{name}/")
    home = f"{tree.mount}{above}" if tree is not None and separator else _home()
    path = f"{home}/{name}"
    return path if home and os.path.isdir(path) else ""


def is_inside(pid: int, leader: int, start: int) -> bool:
    """Whether a process is in the group that `popen` made for this leader, or in one below it."""
    return f"/{_name(leader, start)}/" in f"{_inside(pid)}/"


def sweep() -> None:
    """Remove empty groups; the kernel refuses all others. Never raises."""
    home = _home()
    with contextlib.suppress(OSError):
        for directory in Path(home).glob(f"{PREFIX}*.*") if home else ():
            _remove(str(directory))


def _name(pid: int, start: int) -> str:
    return f"{PREFIX}{pid}.{start}"


def _home() -> str:
    """The group of this process in version 2's hierarchy; "" without one."""
    tree, mine = _tree(), _inside("self")
    above = mine.split(f"/{PREFIX}", 1)[0].rstrip("/")  # this process may be in such a group itself
    return f"{tree.mount}{above}" if tree is not None and mine else ""


def _tree() -> Hierarchy | None:
    return next((hierarchy for hierarchy in hierarchies() if not hierarchy.kind), None)


def _inside(pid: int | str) -> str:
    """The path of a process's group below version 2's mount; "" without one."""
    path = next((path for kind, path in paths_of(pid) if not kind), "")
    return "" if ".." in path else path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)
