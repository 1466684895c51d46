"""Host processes: started in their own session, known by pid and start time, stopped as a group.

Standard library only; the emergency side uses these. A pid alone may be reused, so everything here
takes the start time too (field 22 of /proc/PID/stat, clock ticks since boot).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from console.common import files, paths, record
from console.common.clock import Clock, SystemClock
from console.common.errors import ServiceError
from console.common.record import RecordError
from console.common.text import one_line
from console.common.units import format_duration
from console.host import cgroup, memory, privileges
from console.host.activation import PLAIN, Activation
from console.host.children import kept, start_error

COOKIE = "OMNI_RUN"
"""Environment variable of every child of a run, by which strays are found without any record."""
BASELINE_COOKIE = "baseline"
"""Value of it for a baseline process: never a run's, or a fence would take it for a stray."""
STEP_COOKIE = "OMNI_STEP"
"""The same for the children of one step, which end with it; a baseline has its `mark` there."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What a host process is started with; `env` is added to the allow-listed environment, over
    what `within` gives, which a baseline has not."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    within: Activation = PLAIN


@dataclass(frozen=True, slots=True)
class Stat:
    """Fields of /proc/PID/stat; `start` in ticks since boot, state z: zombie with live threads."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start: int


def stat(pid: int, *, sure: bool = False) -> Stat | None:
    """One process as the kernel sees it, or None if there is none. With `sure`, raises OSError if
    the kernel does not say."""
    try:
        data = files.insist(lambda: files.read_kernel(f"/proc/{pid}/stat"))
        # The command may hold spaces and parentheses; the last one closes it.
        fields = data[data.rindex(b")") + 2 :].split()
        numbers = [int(fields[i]) for i in (1, 2, 3, 19)]
        state = fields[0].decode("ascii", "replace")
        return Stat(pid, "z" if state == "Z" and int(fields[17]) > 1 else state, *numbers)
    except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError, IndexError):
        return None
    except OSError:
        if sure:
            raise
        return None


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat in clock ticks since boot; None when there is no such process."""
    return process_stat.start if (process_stat := stat(pid)) else None


def alive(pid: int, start: int) -> bool:
    """Whether that same process still runs; a zombie does not. If the kernel does not say, it
    counts as running, so that nothing is started beside it."""
    try:
        process_stat = stat(pid, sure=True)
    except OSError:
        return os.path.exists(f"/proc/{pid}")
    return (
        process_stat is not None and process_stat.start == start and process_stat.state not in "ZX"
    )


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process: it lives, and does nothing."""
    process_stat = stat(pid)
    return process_stat is not None and process_stat.state in "Tt"


def pids() -> list[int]:
    """The processes of this machine; any of them may be gone already."""
    return [int(name) for name in files.insist(lambda: os.listdir("/proc")) if name.isdigit()]


def all_stats() -> list[Stat]:
    """Every process of this machine at about one moment."""
    return [process_stat for pid in pids() if (process_stat := stat(pid))]


def ancestry(pid: int) -> set[int]:
    """A process and its ancestors up to pid 1."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        pid = process_stat.parent if (process_stat := stat(pid)) else 0
    return seen


def argv(pid: int) -> tuple[str, ...]:
    """The command line of a process, without empty words; () for one that is gone or a kernel's."""
    data = files.read_bytes(f"/proc/{pid}/cmdline")
    return tuple(os.fsdecode(word) for word in data.split(b"\0") if word)


def command_lines(pid: int) -> list[list[str]]:
    """The command lines of a process and of its ancestors below pid 1, with the name of the program
    file of the process itself, as far as this user may read them."""
    lines = [list(argv(ancestor)) for ancestor in ancestry(pid) - {1}]
    with contextlib.suppress(OSError):
        lines.append([os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")])
    return [line for line in lines if line]


def boot_id() -> str:
    """The kernel's id of this boot; empty where it has none."""
    return files.read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()


def environment(
    extra: Iterable[tuple[str, str]], cookie: str, base: Mapping[str, str] | None = None,
    within: Activation = PLAIN,
) -> dict[str, str]:  # fmt: skip
    """The allow-listed environment, what `within` gives, `extra`, the run's cookie; SPT_NOENV keeps
    a server that sets its title (py-setproctitle) from overwriting that. Raises ServiceError."""
    allowed = kept(base if base is not None else os.environ)
    given = within.variables(allowed.get("PATH", os.defpath))
    return {"SPT_NOENV": "1", **allowed, **given, **dict(extra), COOKIE: cookie}


ENVIRONMENT_S = 0.05
"""More than the kernel takes, and little for a process that has ended by then."""
_exits: dict[tuple[int, int], int] = {}
_unwatched: list[subprocess.Popen[bytes]] = []


def exit_code(pid: int, start: int) -> int | None:
    """How a process that this one spawned ended; None while it runs or when it was not ours."""
    return _exits.get((pid, start))


def spawn(
    spec: ProcessSpec, *, log: Path, cookie: str, extra_env: Iterable[tuple[str, str]] = (),
    enclosed: bool = False, base: Mapping[str, str] | None = None, oom_score: int | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Start a process in a new session; return its pid and start time. `enclosed`: in a control
    group that nobody leaves, if possible; `base`: its environment instead of this one's;
    `oom_score`: its oom_score_adj, if allowed.

    stdin is /dev/null, stdout and stderr are appended to `log`, argv goes through byte for byte. A
    thread waits for it: it is never a zombie of a long-lived caller. Raises ServiceError."""
    if not spec.argv:
        raise ServiceError("nothing to start", "an empty argv")
    try:
        out = files.open_log(log)
    except OSError as error:
        detail = f"{one_line(str(log))}: {error.strerror}"
        raise ServiceError("the log cannot be written", detail) from error
    try:
        popen = cgroup.popen if enclosed else subprocess.Popen
        child = popen(
            list(spec.argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            cwd=spec.cwd or None, start_new_session=True,
            env=environment([*spec.env, *extra_env], cookie, base, spec.within),
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise start_error(spec.argv[0], spec.cwd, error) from error
    finally:
        os.close(out)
    # Not reaped yet: even a child that is dead already keeps its number until it is waited for.
    start = start_time(child.pid) or 0
    _await_environment(child.pid)
    if oom_score is not None:
        privileges.set_oom_score(oom_score, child.pid)
    try:
        threading.Thread(target=_reap, args=(child, start), daemon=True).start()
    except RuntimeError:  # no thread left: a zombie at worst
        _unwatched.append(child)
    return child.pid, start


def _await_environment(pid: int) -> None:
    """Wait until the kernel shows the environment of a new program, within ENVIRONMENT_S: Popen
    comes back a moment before, and a process without its mark would look like a stranger's."""
    deadline = time.monotonic() + ENVIRONMENT_S
    while not files.read_bytes(f"/proc/{pid}/environ") and time.monotonic() < deadline:
        time.sleep(0.001)


def _reap(child: subprocess.Popen[bytes], start: int) -> None:
    _exits[child.pid, start] = child.wait()


class Group:
    """The session and group that `pid` (started at `start`) leads, observed over a while.

    Without its leader a group's number may have been reused: every daemon is in a session whose
    leader has ended. Then the group counts if a member has `cookie` (and `step`) in its environment
    or is in the leader's own control group, or was seen with the leader, because the number is not
    reused while its group has members.
    """

    def __init__(
        self, pid: int, start: int, cookie: str = "", step: str = "",
        spared: Callable[[Stat], bool] | None = None,
    ) -> None:  # fmt: skip
        self.pid, self.start = pid, start
        self._spared = spared or (lambda _: False)
        self._carried = (cookie, step)
        self._seen: set[tuple[int, int]] = set()
        self.led = False
        """Set after signalling the leader: then all members count until none is left."""

    def members(self, stats: Iterable[Stat] | None = None) -> list[Stat]:
        """Its processes, without zombies, this process and its ancestors. `stats`: all processes,
        if already read. Empty when the number belongs to somebody else by now."""
        leader = stat(self.pid)
        if leader is not None and leader.start != self.start:
            return []
        spared = ancestry(os.getpid())
        group_members = [
            s
            for s in (all_stats() if stats is None else stats)
            if self.pid in (s.pid, s.session, s.group)
            and s.start >= self.start
            and s.state not in "ZX"
            and s.pid not in spared
            and not self._spared(s)
        ]
        sure = (
            leader is not None
            or self.led
            or any((s.pid, s.start) in self._seen for s in group_members)
        )
        if not sure and not any(self._is_ours(s.pid) for s in group_members):
            return []
        self._seen = {(s.pid, s.start) for s in group_members}
        return group_members

    def _is_ours(self, pid: int) -> bool:
        # the control group first: reading an environment may have to wait for a lock
        return cgroup.is_inside(pid, self.pid, self.start) or carries(pid, *self._carried)


def members(
    pid: int, start: int, stats: Iterable[Stat] | None = None, *, cookie: str = "", step: str = ""
) -> list[Stat]:
    """One look at a `Group`: who runs in the session or group that `pid` leads or has led."""
    return Group(pid, start, cookie, step).members(stats)


def send(pid: int, start: int, number: int) -> bool:
    """Signal that same process; False if it is gone. The program calls this through
    `host.licence` alone. Raises PermissionError, also if the kernel
    does not say whether the number is still its own."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        descriptor = -1
    try:
        # The descriptor pins a process first; then the start time says whether it is the right one.
        try:
            process_stat = stat(pid, sure=True)
        except OSError as error:
            raise PermissionError(errno.EPERM, f"pid {pid} cannot be inspected") from error
        if process_stat is None or process_stat.start != start or process_stat.state in "ZX":
            return False
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True


def stop_group(
    pid: int, start: int, *, grace_s: float, clock: Clock | None = None,
    cookie: str = "", step: str = "", spared: Callable[[Stat], bool] | None = None,
) -> bool:  # fmt: skip
    """SIGTERM to the session and group, SIGKILL after the grace; returns when all are gone. The
    program calls this through `host.licence` alone.

    `cookie` and `step` identify a `Group` whose leader has ended; `spared` are left alone. False
    when nothing was alive. Raises ServiceError when something outlives SIGKILL, or when this user
    may not signal it.
    """
    clock, group = clock or SystemClock(), Group(pid, start, cookie, step, spared)
    if not (alive := group.members()):
        return False
    kill_s = memory.kill_wait_s(memory.resident(member.pid for member in alive))  # while they live
    for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_s)):
        _signal_all(group.members(), number)
        if _wait_gone(group, limit_s, clock, again=number == signal.SIGKILL):
            return True
    left = ", ".join(str(s.pid) for s in group.members())
    raise ServiceError(
        "a process outlived SIGKILL", f"pid {left} after {format_duration(kill_s)}",
        "it waits in the kernel (state D): a driver or a disk holds it",
    )  # fmt: skip


def _signal_all(stats: list[Stat], number: int) -> None:
    denied = 0
    for process_stat in stats:
        try:
            send(process_stat.pid, process_stat.start, number)
        except PermissionError:
            denied += 1
    if denied and denied == len(stats):
        pids = ", ".join(str(s.pid) for s in stats)
        raise ServiceError("not permitted to stop a process", f"pid {pids} belongs to another user")


def _wait_gone(group: Group, limit_s: float, clock: Clock, *, again: bool) -> bool:
    """Wait until nobody of the group is left; `again` kills those that appear meanwhile."""
    deadline, pause = clock.monotonic() + limit_s, 0.005
    while True:
        left = group.members()
        if not left:
            return True
        if again:
            _signal_all(left, signal.SIGKILL)
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(pause)
        pause = min(0.1, pause * 1.5)


def by_cookie(cookie: str, step: str = "") -> list[tuple[int, int]]:
    """(pid, start) of every process whose environment carries the run's cookie (and the step's),
    except those of other users, which only root can read."""
    process_stats = (stat(pid) for pid in pids() if carries(pid, cookie, step))
    return [
        (process_stat.pid, process_stat.start)
        for process_stat in process_stats
        if process_stat is not None and process_stat.state not in "ZX"
    ]


def environ(pid: int, proc: Path = Path("/proc")) -> dict[str, str] | None:
    """The variables with which a process was started; None if this user may not read them."""
    try:
        data = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(word).partition("=") for word in data.split(b"\0") if b"=" in word)
    return {name: value for name, _, value in pairs}


def has_cookie(pid: int) -> bool:
    """Whether the environment of a process carries any cookie: a console has started it, or what
    it descends from. False if this user may not read it."""
    environ = files.read_bytes(f"/proc/{pid}/environ")
    return any(word.startswith(f"{COOKIE}=".encode()) for word in environ.split(b"\0"))


def carries(pid: int, cookie: str, step: str = "") -> bool:
    """Whether a process has this cookie (and the step's) in its environment; False for "", and if
    this user may not read it."""
    wanted = {f"{COOKIE}={cookie}".encode(), *([f"{STEP_COOKIE}={step}".encode()] if step else ())}
    return bool(cookie) and wanted <= set(files.read_bytes(f"/proc/{pid}/environ").split(b"\0"))


def spec_sha(spec: ProcessSpec) -> str:
    """sha256 of argv, environment and directory: equal means "the same thing"."""
    return _sha(json.dumps([spec.argv, spec.env, spec.cwd, *filter(None, [str(spec.within)])]))


def _sha(text: str) -> str:
    import hashlib  # only where it is wanted: it loads the TLS library

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def record_path(records_dir: Path, name: str) -> Path:
    return records_dir / f"{name}.json"


def wall_time(start: int) -> float:
    """When a process with this start time began, in Unix seconds."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + start / os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU time that these processes have taken."""
    ticks = 0
    for pid in pids:
        fields = files.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def bytes_moved(pids: Iterable[int]) -> int:
    """Bytes that they have read and written, by calls and from disks; 0 for those of others."""
    total = 0
    for pid in pids:
        for line in files.read_bytes(f"/proc/{pid}/io").splitlines()[:6]:
            name, _, count = line.partition(b":")
            total += int(count) if name in (b"rchar", b"wchar", b"read_bytes") else 0
    return total


class Owner(NamedTuple):
    """The site file that a record is of, and the address of its baseline; "" where nobody has
    written it down. Two site files may have one name, and with it one directory of records."""

    file: str = ""
    url: str = ""

    def is_other(self, mine: Owner) -> bool:
        """Whether this is another site. One that has only moved its file, or changed its address,
        is the same: the earlier file is gone, or the address is still that."""
        if not (self.file and self.url and mine.file and mine.url):
            return False
        if self.url.rstrip("/") == mine.url.rstrip("/") or not os.path.exists(self.file):
            return False
        return os.path.realpath(self.file) != os.path.realpath(mine.file)


UNKNOWN_OWNER = Owner()


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What is kept of a started process: `sha` is of its spec; `site` and `url` as in Owner. What
    it wrote begins at the byte `log_begin` of its log."""

    pid: int = 0
    start: int = 0
    boot_id: str = ""
    sha: str = ""
    site: str = ""
    url: str = ""
    log_begin: int = 0

    @property
    def is_of_this_boot(self) -> bool:
        """Whether `pid` and `start` name a process that runs, or ran, in this boot."""
        return self.pid > 0 and self.boot_id == boot_id()


def write_record(
    records_dir: Path, name: str, spec: ProcessSpec, pid: int, start: int,
    owner: Owner = UNKNOWN_OWNER, log_begin: int = 0,
) -> None:  # fmt: skip
    """Remember a started process for later runs, atomically. The record of another one that still
    runs, as a copied site file leaves it, is kept aside under its pid, which no other process has
    meanwhile. Raises OSError."""
    path, before = record_path(records_dir, name), _recorded(records_dir, name)
    if (known := read_record(records_dir, name)) and known != (pid, start):
        path.rename(record_path(records_dir, f"{name}.{Path(before.sha).name}.{known[0]}"))
    paths.make(records_dir)
    made = ProcessRecord(pid, start, boot_id(), spec_sha(spec), log_begin=log_begin)
    if owner.file:
        made = replace(made, site=owner.file, url=owner.url)
    files.write_atomically(path, record.text(made), durable=False)


def _recorded(records_dir: Path, name: str) -> ProcessRecord:
    with contextlib.suppress(OSError, RecordError):
        return record.lenient(ProcessRecord, record.load(record_path(records_dir, name)))
    return ProcessRecord()


def log_begin_of(records_dir: Path, name: str, pid: int, start: int) -> int:
    """Where in its log what this process wrote begins, in bytes; 0 where no record says so."""
    recorded = _recorded(records_dir, name)
    return recorded.log_begin if (recorded.pid, recorded.start) == (pid, start) else 0


def owner_of(records_dir: Path, name: str) -> Owner:
    """Whose a record is, as far as it says so."""
    recorded = _recorded(records_dir, name)
    return Owner(recorded.site, recorded.url)


def read_record(
    records_dir: Path, name: str, spec: ProcessSpec | None = None
) -> tuple[int, int] | None:
    """(pid, start) of the recorded process if it still runs in this boot (and is the same spec)."""
    aside = [] if spec is None else sorted(records_dir.glob(f"{name}.{spec_sha(spec)}*.json"))
    for known in (name, *(file.stem for file in aside)):
        recorded = _recorded(records_dir, known)
        same = spec is None or recorded.sha == spec_sha(spec)
        if same and recorded.is_of_this_boot and alive(recorded.pid, recorded.start):
            return recorded.pid, recorded.start
    return None


def sockets_of(pid: int, proc: Path = Path("/proc")) -> set[str]:
    """The inodes of a process' sockets; empty where this user may not look."""
    inodes = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(proc / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(proc / str(pid) / "fd" / descriptor)
                if link.startswith("socket:["):
                    inodes.add(link.removeprefix("socket:[").rstrip("]"))
    return inodes


def mark(records_dir: Path, name: str, spec: ProcessSpec) -> tuple[str, str]:
    """An environment variable that identifies a process without a record."""
    return STEP_COOKIE, _sha(f"{record_path(records_dir, name)}\n{spec_sha(spec)}")


def known(
    records_dir: Path, name: str, spec: ProcessSpec, cookie: str, *, repair: bool = False
) -> tuple[int, int] | None:
    """(pid, start) of a running process: by its record, or by the mark it was spawned with under
    `cookie`. A full disk or a kill at that moment leaves it without a record; `repair` then writes
    one if possible."""
    if recorded := read_record(records_dir, name, spec):
        return recorded
    marked = [
        (start, pid, process_stat.session)
        for pid, start in by_cookie(cookie, mark(records_dir, name, spec)[1])
        if (process_stat := stat(pid)) is not None and user_of(pid) == os.getuid()
    ]
    # what it has started carries the mark as well: the leader of its session is the process
    own = [(start, pid) for start, pid, session in marked if session == pid]
    # a server whose parent has died goes on in its workers, which hold its port
    own = own or [
        (start, pid) for start, pid, session in marked if is_gone(session) and sockets_of(pid)
    ]
    if not own:
        return None
    start, pid = min(own)
    if repair and not _is_recorded_elsewhere(records_dir, name, pid, start):
        with contextlib.suppress(OSError):
            write_record(records_dir, name, spec, pid, start)
    return pid, start


def is_gone(pid: int) -> bool:
    """Whether no such process runs; one that has died and was not waited for yet does not."""
    process_stat = stat(pid)
    return process_stat is None or process_stat.state in "ZX"


def _is_recorded_elsewhere(records_dir: Path, name: str, pid: int, start: int) -> bool:
    """Whether a record of another directory beside this one names a process under the same name:
    another site has taken it over, and what it was started with does not change that."""
    files = records_dir.parent.glob(f"*/{name}.*json")
    return any(
        read_record(file.parent, file.stem) == (pid, start)
        for file in files if file.parent != records_dir
    )  # fmt: skip


def user_of(pid: int) -> int | None:
    """The uid of a process; None when there is none."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return None
