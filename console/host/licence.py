"""The licence to end a process: why it may be ended, checked against this machine when it happens.

Whoever ends, restarts or pauses a process, a container or a unit passes a `Licence`, which names a
reason and whose it is. Processes are signalled here and nowhere else, apart from the sentinel's
kill, which has the same rules in `recovery.guard.kill.targets`. A test looks at each call in the
program that could end something.

What is recorded as the baseline of any site of this user ends by that site's own licence alone:
records of an earlier `init` or `adopt`, of a renamed site, or of a run that has been promoted never
make it somebody's candidate. Standard library only; the emergency side uses this.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from console.common import paths
from console.common.clock import Clock
from console.common.errors import ServiceError
from console.common.options.engines import engine_of
from console.common.text import one_line
from console.host import cgroup, process
from console.host.cgroup import FULL_ID
from console.host.ports import ports_of
from console.host.process import BASELINE_COOKIE, UNKNOWN_OWNER, Owner, Stat

BASELINES = "baseline.*json"
"""The records of a site's baseline: `baseline.json`, the newest, and `baseline.SHA.json`, which a
later one was put beside. A service named `baseline-tuned` is another one."""


class Reason(StrEnum):
    """Why something may be ended. There is no reason for what merely is in the way."""

    BASELINE = "the baseline of this site"
    CANDIDATE = "a candidate of this run"
    EARLIER = "a candidate that an earlier run of this site started"
    LABEL = "the labels say that it is a candidate of this site"
    STEP = "a step of this run"
    COOKIE = "it carries the run's cookie"
    RUNNER = "the runner of this run"
    RELAY = "the relay of a cutover at the baseline's address"
    HELPER = "a helper process of the console"
    TRIAL = "started by this console, and for nothing else"


PORT_NAMES = ("LLAMA_ARG_PORT", "OLLAMA_HOST", "PORT", "UVICORN_PORT")
"""Variables by which servers are told their port. Those of workers (MASTER_PORT) are none."""
INTERPRETER = re.compile(r"python|pypy|perl|ruby|node")
PARTS, RAY = frozenset({"gcs_server", "raylet", "orted", "prted", "prterun", "mpirun"}), "/ray/"
"""Programs that engines on several cards start beside themselves, and what is in the paths of those
that Ray starts by an interpreter."""
OF_SITE = frozenset({Reason.BASELINE, Reason.EARLIER, Reason.LABEL, Reason.RELAY})
"""The reasons whose subject is a site."""


@dataclass(frozen=True, slots=True)
class Licence:
    """Why something may be ended. `subject` is the site of a baseline, else the run, or what else
    the reason speaks of. `records`: a directory of a site's records outside of this user's own
    state, as root has it that rolls back for somebody else. `owner`: which site it is, where two
    files may have its name."""

    reason: Reason
    subject: str = ""
    records: Path | None = None
    owner: Owner = UNKNOWN_OWNER

    def covers(self, baseline: Recorded) -> bool:
        """Whether this is the licence of the baseline's own site."""
        own = self.reason is Reason.BASELINE and baseline.site == self.subject
        return own and not baseline.owner.is_other(self.owner)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A process that a site's records name as its baseline, and that still runs."""

    pid: int
    start: int
    site: str
    owner: Owner = UNKNOWN_OWNER

    @property
    def words(self) -> str:
        """`pid`'s site in clean words, with its file where that is known."""
        file = f" ({one_line(self.owner.file, 200)})" if self.owner.file else ""
        return f"site {one_line(self.site, 60)}{file}"

    def has(self, process_stat: Stat) -> bool:
        """Whether a process is this one, or of the session or group that it leads."""
        return (
            self.pid in (process_stat.pid, process_stat.session, process_stat.group)
            and process_stat.start >= self.start
        )


class Refused(ServiceError):
    """Something has no licence to be ended: it is left alone, and named."""


def baselines(records: Path | None = None) -> Iterator[Recorded]:
    """Every process that is recorded as the baseline of a site of this user and still runs, those
    of an earlier `init` or `adopt` included. `records`: one more directory to look into."""
    files = {*paths.state_dir().glob(f"services/*/{BASELINES}")}
    files |= {*records.parent.glob(f"*/{BASELINES}")} if records is not None else set()
    for file in sorted(files):
        recorded = process.read_record(file.parent, file.stem)
        if recorded is not None:
            owner = process.owner_of(file.parent, file.stem)
            yield Recorded(*recorded, file.parent.name, owner)


def hand_over(pid: int, start: int, site: str) -> list[str]:
    """Take the record of this process from the other sites of this user, since it is a site's
    baseline from now on; their names. Raises OSError."""
    others = [
        baseline for baseline in baselines() if (baseline.pid, baseline.start) == (pid, start)
    ]
    names = {other.site for other in others if other.site != site}
    for name in names:
        directory = paths.records_dir(name)
        for file in directory.glob(BASELINES):
            if process.read_record(directory, file.stem) == (pid, start):
                file.unlink(missing_ok=True)
    return sorted(names)


def not_covered(licence: Licence) -> list[Recorded]:
    """The baselines that a licence does not cover: all but its own site's."""
    return [baseline for baseline in baselines(licence.records) if not licence.covers(baseline)]


def refusal(licence: Licence, pid: int, start: int) -> str:
    """Why a process may not be ended with this licence, in clean words; "" if it may."""
    process_stat = process.stat(pid)
    if process_stat is None or process_stat.start != start:
        return ""  # it is gone: nothing reaches whatever has its number by now
    if not process.alive(pid, start) and not process.Group(pid, start).members():
        return ""  # a zombie, and nobody of its session lives: nothing is left to end
    for baseline in not_covered(licence):
        if baseline.has(process_stat):
            named = licence.reason is Reason.BASELINE and baseline.site == licence.subject
            whose = baseline.words if named else f"site {one_line(baseline.site, 60)}"
            return f"it is the recorded baseline of {whose}"
    if licence.reason is Reason.BASELINE:
        own = any(record.has(process_stat) for record in baselines(licence.records))
        why = "nothing records it as the baseline of this site"
        return "" if own or process.carries(pid, BASELINE_COOKIE) else why
    if process.carries(pid, BASELINE_COOKIE):
        return "the console started it as a baseline"
    return ""


def require(licence: Licence, pid: int, start: int) -> None:
    """Raise Refused if the licence does not cover a process."""
    if why := refusal(licence, pid, start):
        raise Refused(f"pid {pid} is left alone", why)


def send(licence: Licence, pid: int, start: int, number: int) -> bool:
    """Signal that same process; False if it is gone. Raises Refused, and PermissionError as
    `process.send` does."""
    require(licence, pid, start)
    return process.send(pid, start, number)


def stop_group(
    licence: Licence, pid: int, start: int, *, grace_s: float, clock: Clock | None = None,
    cookie: str = "", step: str = "",
) -> bool:  # fmt: skip
    """End a session and group as `process.stop_group` does, without the baselines in it that the
    licence does not cover, and without `other_servers`, other programs that its starter has begun,
    and what they have started. Raises Refused if its leader is a baseline."""
    require(licence, pid, start)
    kept, others = not_covered(licence), set[int]()
    if licence.reason is Reason.BASELINE:
        others = {other for other, _ in other_servers(pid, start)} | _other_programs(pid, start)
    return process.stop_group(
        pid, start, grace_s=grace_s, clock=clock, cookie=cookie, step=step,
        spared=lambda process_stat: any(baseline.has(process_stat) for baseline in kept) or bool(
            others & process.ancestry(process_stat.pid)
        ),
    )  # fmt: skip


def other_servers(pid: int, start: int) -> list[tuple[int, int]]:
    """(pid, port) of the servers of their own in the session and group of a process that the
    console has not started itself: each listens at a port that its own command line names, or a
    variable that servers read, or at the usual port of its engine, or is another program, which may
    have its port from a file, as a proxy has.

    A script may have started two servers and become one of them. What starts the baseline again
    does not start the other, so it may not be ended. Workers listen, too, at ports that nothing
    names: they are the program of their parent, or what engines bring along. A script that still
    runs, and listens nowhere, starts all of its servers again.
    """
    listens = bool(ports_of([pid]))
    if process.carries(pid, BASELINE_COOKIE) or (process.alive(pid, start) and not listens):
        return []
    own, program, servers = _launch_of(pid), _program(pid), list[tuple[int, int]]()
    for member in process.Group(pid, start).members():
        launch = _launch_of(member.pid)
        if member.pid == pid or launch == own or launch.is_runner:
            continue
        if not (ports := ports_of([member.pid])):
            continue
        named = launch.ports
        port = next((port for port in ports if str(port) in named), 0)
        if not port and listens and not _is_worker(_program(member.pid), program):
            port = min(ports)
        servers += [(member.pid, port)] if port else []
    known = {server for server, _ in servers}
    return [
        (server, port) for server, port in servers
        if not (process.ancestry(server) - {server}) & known
    ]  # fmt: skip


def _other_programs(pid: int, start: int) -> set[int]:
    """The members of a group that the console has not started itself which are another program than
    its leader, as a loop that copies logs: what starts the baseline again does not start them."""
    if process.carries(pid, BASELINE_COOKIE) or not ports_of([pid]):
        return set()
    own, members = _program(pid), process.Group(pid, start).members()
    return {
        member.pid
        for member in members
        if member.pid != pid and not _is_worker(_program(member.pid), own)
    }


def _program(pid: int) -> tuple[str, str]:
    """The file that a process runs, and the script or module if that is an interpreter's; "" for
    what is not known, or has no name, as the code of `-c`."""
    file = ""
    with contextlib.suppress(OSError):
        file = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    argv = process.argv(pid)
    if not argv or not INTERPRETER.match(os.path.basename(argv[0])):
        return file, ""
    at = next((at for at, word in enumerate(argv[1:], 1) if not word.startswith("-")), 0)
    return file, argv[at] if at and argv[at - 1] != "-c" else ""


def _is_worker(other: tuple[str, str], own: tuple[str, str]) -> bool:
    """Whether a program may belong to the one that is to be ended: it is the same one,
    gives itself a title, or is what engines start for themselves."""
    file, script = other
    if os.path.basename(file) in PARTS or RAY in script or not file:
        return True
    return file == own[0] and script in ("", own[1])


class _Launch(NamedTuple):
    """What a process was started with: its command line, and the values of PORT_NAMES."""

    argv: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def is_runner(self) -> bool:
        """Whether `ollama serve` has started it for a model: it ends with that."""
        return os.path.basename(self.argv[0] if self.argv else "") == "ollama" and (
            self.argv[1:2] == ("runner",)
        )

    @property
    def ports(self) -> set[str]:
        """Every number that may be a port at which it was told to listen."""
        words = (word.partition("=")[2] or word for word in self.argv[1:])
        ports = {value.rpartition(":")[2] for value in (*words, *self.values)}
        engine = engine_of(self.argv)
        return ports | {str(engine.port)} if engine is not None else ports


def _launch_of(pid: int) -> _Launch:
    environ = process.environ(pid) or {}
    return _Launch(process.argv(pid), tuple(environ.get(name, "") for name in PORT_NAMES))


def require_container(licence: Licence, container: str) -> None:
    """Raise Refused unless a container is named by its full id, which none ever has again: a name
    may be somebody else's container by now. A baseline is started by name, too."""
    if licence.reason is not Reason.BASELINE and not FULL_ID.fullmatch(container):
        raise Refused(
            f"container {one_line(container, 60)} is left alone", "only its full id identifies it"
        )


def end_cgroup(
    licence: Licence, path: str, pid: int, start: int, also: Collection[int] = ()
) -> int:
    """End what an ended process left in its control group, as `cgroup.end` does. The group is left
    alone if a baseline that the licence does not cover, or a process of `also`, is in it."""
    kept = {baseline.pid for baseline in not_covered(licence)}
    return cgroup.end(path, pid, start, kept | set(also))
