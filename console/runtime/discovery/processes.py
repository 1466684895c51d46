"""What /proc says of a model server's process: how it was started, and by whom it is kept up."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from console.common import files
from console.common.argv import started
from console.common.errors import ServiceError
from console.common.options.engines import OTHER, engine_of, value_of
from console.common.text import one_line
from console.host import process, units
from console.host.memory import container_of
from console.host.process import COOKIE
from console.host.units import UnitSpec

PROC = Path("/proc")
DELETED = " (deleted)"
_UNIT = re.compile(r"/([^/]+)\.service(?=/|$)")
_MANAGER = re.compile(r"user@\d+|init|systemd-.*")


@dataclass(frozen=True, slots=True)
class Running:
    """A process at one moment; its texts are foreign and not clean.

    `program` is the absolute path that starts it again, "" if there is none. `environ` is None
    where this user may not read it.
    """

    pid: int
    start: int
    uid: int
    argv: tuple[str, ...]
    program: str
    cwd: str
    environ: Mapping[str, str] | None = field(default=None, hash=False, repr=False)
    unit: UnitSpec | None = None
    container: str = ""
    terminal: bool = False
    """It ends when the terminal closes from which it was started."""

    @property
    def run(self) -> str:
        """The run of this console that started it, `baseline` for a rollback; "" for nobody."""
        return (self.environ or {}).get(COOKIE, "")


def read(pid: int, proc: Path = PROC) -> Running | None:
    """One process; None if it is gone."""
    stat, uid = process.stat(pid), process.user_of(pid)
    argv = argv_of(pid, proc)
    if stat is None or uid is None or not argv or stat.state in "ZX":
        return None
    environ = process.environ(pid, proc)
    unit = unit_of(files.read_text(proc / str(pid) / "cgroup"))
    if unit is not None and not _is_started_by(unit, pid):
        unit = None
    cwd, exe = _link(pid, "cwd", proc), _link(pid, "exe", proc)
    return Running(
        pid, stat.start, uid, argv, _program(argv[0], exe, cwd, environ or {}), cwd, environ,
        unit, container_of(pid),
        _hangs_on_a_terminal(pid, proc),
    )  # fmt: skip


def argv_of(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The words of a process' command line; bytes that are not UTF-8 are kept as surrogates."""
    data = files.read_bytes(proc / str(pid) / "cmdline").removesuffix(b"\0")
    return tuple(os.fsdecode(word) for word in data.split(b"\0")) if data else ()


def unit_of(groups: str) -> UnitSpec | None:
    """The service that a process belongs to, by the text of its /proc/PID/cgroup. A login's scope
    is no service, and neither are the managers themselves."""
    for row in groups.splitlines():
        _, kind, path = [*row.split(":", 2), "", ""][:3]
        if kind not in ("", "name=systemd"):
            continue
        names = [name for name in _UNIT.findall(path) if not _MANAGER.fullmatch(name)]
        if names:
            return UnitSpec(f"{names[-1]}.service", "/user@" in path)
    return None


def _is_started_by(unit: UnitSpec, pid: int) -> bool:
    """Whether a unit's first process is this one, or leads its session. What somebody starts in the
    terminal of a service (an editor, a notebook) is in its group, too, and so is a cron job."""
    if unit.user and process.user_of(pid) != os.getuid():
        return True  # only that user's systemd could tell
    try:
        main = units.look(unit).main
    except ServiceError:
        return True  # it is in the unit's group, and nothing says otherwise
    stat = process.stat(pid)
    return main == pid or (main > 0 and stat is not None and stat.session == main)


def not_again(running: Running) -> str:
    """Why the command line of a process could not start it again; "" if it could."""
    first = one_line(" ".join(started(running.argv)[:1]), 60)
    if not running.cwd or running.cwd.endswith(DELETED):
        return "its working directory is gone, or hidden from this user"
    if not running.program:
        return (
            f"no program is found by the first word of its command line ({first}): the process has "
            "overwritten it, or the program was moved"
        )
    engine = engine_of(running.argv) or OTHER
    if value_of(engine, running.argv, "--port", running.environ) == "0":
        return "it asks for any free port, so it would answer at another one (--port 0)"
    try:
        for word in (*running.argv, running.cwd):
            word.encode()
    except UnicodeEncodeError:
        return "its command line or directory is not UTF-8 text"
    return ""


def outside(running: Running) -> list[int]:
    """Descendants of a process that a signal to its group would not reach."""
    stats = process.all_stats()
    inside = {member.pid for member in process.members(running.pid, running.start, stats)}
    below, outside_pids = {running.pid}, list[int]()
    for stat in sorted(stats, key=lambda stat: stat.start):
        if stat.parent in below and stat.state not in "ZX":
            below.add(stat.pid)
            if stat.pid not in inside:
                outside_pids.append(stat.pid)
    return outside_pids


def _program(first: str, exe: str, cwd: str, environ: Mapping[str, str]) -> str:
    """The path that starts the program of a process again: the one that its first word names, if
    that is what runs. A virtual environment's python is a link, so the word comes first."""
    gone = exe.removesuffix(DELETED)
    if "/" in first:
        named = os.path.join(cwd, first)
    else:
        named = shutil.which(first, path=environ.get("PATH", os.defpath)) or ""
    if named and os.access(named, os.X_OK) and os.path.realpath(named) == gone:
        return os.path.normpath(named)
    python = os.path.basename(gone).startswith(("python", "pypy"))
    return gone if exe and not python and os.access(gone, os.X_OK) else ""


def _link(pid: int, name: str, proc: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(proc / str(pid) / name)
    return ""


def _hangs_on_a_terminal(pid: int, proc: Path) -> bool:
    """Whether it has a terminal, and neither ignores nor handles the signal of its end."""
    fields = files.read_bytes(proc / str(pid) / "stat").rpartition(b") ")[2].split()
    if len(fields) < 5 or fields[4] == b"0":
        return False
    bit = 1 << (signal.SIGHUP - 1)
    for row in files.read_text(proc / str(pid) / "status").splitlines():
        name, _, value = row.partition(":")
        if name in ("SigIgn", "SigCgt") and int(value, 16) & bit:
            return False
    return True
