"""A model server that systemd runs as a service: looked at, started and stopped by `systemctl`.

Standard library only; the emergency side uses this. No call waits for the unit: systemd takes the
job, and the caller looks until it is done, because a unit may take as long to start as its model.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from console.common import files
from console.common.clock import Clock, SystemClock
from console.common.errors import ServiceError
from console.common.text import clean_lines, decode, ending, one_line
from console.common.units import format_duration
from console.host import children, memory, process
from console.host.licence import Licence, Reason, Refused

CALL_S = 5.0
"""Deadline of one call of systemctl or journalctl, seconds."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 0.5
UP = ("active", "activating", "reloading", "refreshing", "deactivating")
PROPERTIES = "LoadState,ActiveState,SubState,MainPID,ControlGroup,InvocationID,NRestarts"
INVOCATION = re.compile("[0-9a-f]{32}")
OF_INVOCATION, OF_USERS = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID"), "USER_INVOCATION_ID"
"""Fields of the journal with a start's invocation: what its processes wrote, and what systemd, or a
user's systemd, wrote of it."""
ENDED = ("auto-restart", "auto-restart-queued")
"""Sub-states of a unit that has ended and that its systemd will start again."""
_HINT = "does systemd run here? `systemctl status` says; a user unit needs the user's own systemd"


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """A service of the machine's own systemd, or (`user`) of this user's."""

    name: str
    user: bool = False

    @property
    def words(self) -> str:
        return f"{'user unit' if self.user else 'unit'} {one_line(self.name, 80)}"

    def command(self, *words: str) -> list[str]:
        """A systemctl command for it, as a person may type it."""
        return ["systemctl", *(["--user"] if self.user else []), *words, self.name]

    def journal(self, count: int) -> list[str]:
        which = "--user-unit" if self.user else "--unit"
        return ["journalctl", which, self.name, "--lines", str(count), "--no-pager"]


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as its systemd describes it. `main` is its first process' pid, 0 for none; the control
    group is where its processes are; the invocation differs between two starts; `restarts`: how
    often its systemd has started it again by itself."""

    load: str = ""
    active: str = ""
    main: int = 0
    group: str = ""
    invocation: str = ""
    sub: str = ""
    restarts: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it counts as up and still cannot serve before it is started again."""
        return self.sub in ENDED or self.active == "deactivating"

    @property
    def exists(self) -> bool:
        return self.load not in ("", "not-found")

    @property
    def is_up(self) -> bool:
        """Whether it may hold memory: one that just starts or stops counts."""
        return self.active in UP


def look(spec: UnitSpec, seconds: float = CALL_S) -> UnitState:
    """The unit now. Raises ServiceError if its systemd does not say."""
    out = _call(spec, ["show", f"--property={PROPERTIES}"], seconds)
    rows = dict(line.partition("=")[::2] for line in clean_lines(out))
    return UnitState(
        rows.get("LoadState", ""), rows.get("ActiveState", ""), _count(rows.get("MainPID", "")),
        rows.get("ControlGroup", ""), rows.get("InvocationID", ""), rows.get("SubState", ""),
        _count(rows.get("NRestarts", "")),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a unit gives its processes, and the files of them that cannot be read."""

    env: dict[str, str]
    unread: tuple[str, ...] = ()


def variables(spec: UnitSpec, seconds: float = CALL_S) -> Variables:
    """What `Environment=` and `EnvironmentFile=` of a unit say, the last word on each name. Raises
    ServiceError if its systemd does not say. Source: systemd.exec(5)."""
    out = _call(spec, ["show", "--property=Environment,EnvironmentFiles"], seconds)
    env, unread = dict[str, str](), list[str]()
    rows = [line.partition("=")[::2] for line in out.splitlines()]
    for name, value in rows:
        if name == "Environment":
            env |= dict(word.partition("=")[::2] for word in _words(value) if "=" in word)
    for name, value in rows:
        path, _, ignored = value.rpartition(" (ignore_errors=")
        if name != "EnvironmentFiles" or not path:
            continue
        try:
            text = Path(path).read_text("utf-8", errors="replace")
        except OSError as error:
            if not (ignored.startswith("yes") and isinstance(error, FileNotFoundError)):
                unread.append(path)
            continue
        env |= _of_file(text)
    return Variables(env, tuple(unread))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _of_file(text: str) -> dict[str, str]:
    """Lines of `NAME=VALUE`; a backslash at a line's end joins the next one."""
    env: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name[:1] not in ("#", ";"):
            env[name.strip()] = " ".join(_words(value)) if value[:1] in "\"'" else value.strip()
    return env


def _count(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def start(spec: UnitSpec) -> None:
    """Have it started; one that failed too often is allowed to start again. Raises ServiceError."""
    try:
        _call(spec, ["reset-failed"], CALL_S)
    except ServiceError:
        pass  # it had not failed, or the start says what is wrong
    _call(spec, ["start", "--no-block"], CALL_S)


def stop(licence: Licence, spec: UnitSpec, grace_s: float, clock: Clock | None = None) -> bool:
    """Stop it, by SIGKILL after the grace; False when it was not up. Returns when it is down.
    Raises Refused unless it is the baseline, as the console starts no other unit, and
    ServiceError."""
    clock, state = clock or SystemClock(), look(spec)
    if not state.is_up:
        return False
    if licence.reason is not Reason.BASELINE:
        raise Refused(f"{spec.words} is left alone", f"it is not {licence.reason}")
    kill_s = memory.kill_wait_s(memory.resident(pids(state)))
    _call(spec, ["stop", "--no-block"], CALL_S)
    if _await_down(spec, grace_s, clock):
        return True
    if look(spec).invocation == state.invocation:  # else somebody has started it again meanwhile
        _call(spec, ["kill", "--signal=SIGKILL"], CALL_S)
    if _await_down(spec, kill_s, clock):
        return True
    raise ServiceError(
        "a unit outlived SIGKILL", f"{spec.words} after {format_duration(kill_s)}",
        "it waits in the kernel (state D): a driver or a disk holds it",
    )  # fmt: skip


def pids(state: UnitState) -> set[int]:
    """Its processes: those in its control group, and in the session that its first one leads."""
    members = {state.main} - {0}
    began = process.start_time(state.main) if state.main else None
    if began is not None:
        members |= {member.pid for member in process.members(state.main, began)}
    if len(state.group) > 1:
        members |= {pid for pid in process.pids() if _is_in(pid, state.group)}
    return members


def last_lines(spec: UnitSpec, count: int, invocation: str = "") -> list[str]:
    """The last lines that it wrote to the journal, clean, and what its systemd said of it; none if
    that cannot be read. `invocation`: of this start alone, since an earlier one may have ended for
    another reason."""
    argv = spec.journal(count)
    if INVOCATION.fullmatch(invocation):
        fields = [*OF_INVOCATION, *([OF_USERS] if spec.user else [])]
        matches = [f"{field}={invocation}" for field in fields]
        argv = [*argv[:1], *argv[3:], *" + ".join(matches).split()]
    argv += ["--output=cat", "--quiet"]
    try:
        _, out, _ = children.run(argv, CALL_S, env=_environment())
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in clean_lines(decode(out)) if line][-count:]


def _is_in(pid: int, group: str) -> bool:
    for row in files.read_text(f"/proc/{pid}/cgroup").splitlines():
        path = row.split(":", 2)[-1]
        if path == group or path.startswith(f"{group}/"):
            return True
    return False


def _await_down(spec: UnitSpec, limit_s: float, clock: Clock) -> bool:
    deadline, pause = clock.monotonic() + limit_s, FIRST_PAUSE_S
    while look(spec).is_up:
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(pause)
        pause = min(LAST_PAUSE_S, pause * 1.5)
    return True


def _environment() -> dict[str, str]:
    """A user's systemd is found by XDG_RUNTIME_DIR, which `sudo` and cron do not set."""
    return {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}


def _call(spec: UnitSpec, words: list[str], seconds: float) -> str:
    argv = spec.command("--no-ask-password", *words)
    command = f"systemctl {words[0]} {one_line(spec.name, 80)}"
    try:
        code, out, error = children.run(argv, seconds, env=_environment())
    except subprocess.TimeoutExpired:
        detail = f"no answer within {format_duration(seconds)}"
        raise ServiceError(f"{command} did not end", detail, _HINT) from None
    except OSError as failure:
        raise ServiceError(f"{command} cannot be run", failure.strerror or "", _HINT) from None
    if code:
        raise ServiceError(f"{command} failed", ending(decode(error), 300), _HINT)
    return decode(out)
