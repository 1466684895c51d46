"""The caller's side of the standby: whether one waits, the byte that triggers it, and its answer.

This module also has the lock, a flock on rollback/lock, which lets one rollback run at a time. It
imports little, so that it loads fast.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import stat
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Protocol

from console.common.files import open_untrusted
from console.host import licence, process
from console.host.licence import Licence, Reason, Refused
from console.recovery.rollback import live as livelog
from console.recovery.rollback.live import LIVE

LOCK = "lock"


class Lock:
    """The lock of one rollback directory. Never raises: a rollback also runs without the lock."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = _open_lock(directory, os.O_RDWR | os.O_CREAT)
        self.given_up = False
        """The holder hangs, so this rollback runs without the lock."""

    def taken(self) -> bool:
        """Try to take the lock. Return whether it was taken; also True if nothing can be locked."""
        if self._descriptor < 0:
            return True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def release(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def holder_is_stopped(self) -> bool:
        """Whether the lock's holder was stopped (SIGSTOP), as far as this user may see."""
        lock_holders = _processes_with_lock(self._descriptor)
        # A holder's children have the lock, too, but start nothing new while the holder is stopped.
        started = {holder.pid for holder in lock_holders}
        first = [holder for holder in lock_holders if holder.parent not in started]
        if first:
            return all(holder.state in "Tt" for holder in first)
        return any(is_stopped(pid) for pid in holders(self._descriptor))


def _processes_with_lock(descriptor: int) -> list[process.Stat]:
    """The processes that have this file open and locked; other users' are visible only to root.

    The kernel's table of locks names only the process that took a lock. For rollback.sh that is the
    `flock` command, which has ended since.
    """
    try:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        file = os.fstat(descriptor)
        process_stats = [process.stat(pid) for pid in process.pids() if _has_lock(pid, name, file)]
    except OSError:
        return []
    return [process_stat for process_stat in process_stats if process_stat is not None]


def _has_lock(pid: int, name: str, file: os.stat_result) -> bool:
    """Whether a process has this file open under this name, by a descriptor that has the lock."""
    place = f"/proc/{pid}"
    with contextlib.suppress(OSError):
        for number in os.listdir(f"{place}/fd"):
            with contextlib.suppress(OSError):
                at = f"{place}/fd/{number}"
                # A file of another name is not looked at: it may be on a disk that hangs.
                if os.path.basename(os.readlink(at)) != name:
                    continue
                locks = Path(place, "fdinfo", number).read_text()
                locked = re.search("^lock:.* FLOCK .* WRITE ", locks, re.MULTILINE)
                if locked and os.path.samestat(os.stat(at), file):
                    return True
    return False


def holders(file: int | Path) -> set[int]:
    """The pids that hold a file's flock, according to the kernel's table of locks."""
    try:
        inode = os.stat(file).st_ino
    except OSError:
        return set()
    return {pid for pid, name in flocks() if name.endswith(f":{inode}")}


def flocks() -> list[tuple[int, str]]:
    """Every exclusive flock: its holder's pid, and device and inode of the file as one text."""
    try:
        table = Path("/proc/locks").read_text()
    except OSError:
        return []
    form = r"^\d+: FLOCK +\w+ +WRITE +(\d+) +([0-9a-f]+:[0-9a-f]+:\d+) "
    return [(int(pid), name) for pid, name in re.findall(form, table, re.MULTILINE)]


def is_held(directory: Path) -> bool:
    """Whether a rollback runs in this directory at this moment."""
    descriptor = _open_lock(directory, os.O_RDONLY)
    if descriptor < 0:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _open_lock(directory: Path, flags: int) -> int:
    """A descriptor of the lock file; of the directory if there can be no such file; else -1."""
    for path, how in (
        (directory / LOCK, flags),
        (directory / LOCK, os.O_RDONLY),
        (directory, os.O_RDONLY | os.O_DIRECTORY),
    ):
        with contextlib.suppress(OSError):
            descriptor = open_untrusted(path, how)
            with contextlib.suppress(OSError):  # whoever can open a file can also lock it
                os.fchmod(descriptor, 0o700 if path == directory else 0o600)
            return descriptor
    return -1


FIFO = "trigger"
STANDBY_FILE = "warm.json"
"""The standby writes this file once it waits."""
INBOX = ("guard", "inbox")
"""The sentinel's FIFO in a run's directory. `recovery.guard.config` names it, too, but no module
of the rollback imports the guard."""
EMERGENCY, SENTINEL, REQUEST, QUIT, LEAVE = b"R", b"S", b"r", b"q", b"l"
"""The bytes that the standby reads; see its module for what each means."""


def trigger(rollback_dir: Path, byte: bytes = EMERGENCY) -> bool:
    """Write a byte to the standby. Return False if nobody reads it or this user may not write."""
    return say(rollback_dir / FIFO, byte)


def say(fifo: Path, words: bytes) -> bool:
    """Write to a FIFO without ever waiting. Return False if nobody reads it or it is full."""
    try:
        descriptor = open_untrusted(fifo, os.O_WRONLY)
    except OSError:
        return False
    try:
        is_fifo = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        return is_fifo and os.write(descriptor, words) == len(words)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def is_standing_by(rollback_dir: Path, *, running: bool = False) -> bool:
    """Whether a recorded standby of this run is alive and, with `running`, not stopped (Ctrl-Z)."""
    return any(
        process.alive(e.pid, e.start) and not (running and is_stopped(e.pid))
        for e in livelog.read(rollback_dir / LIVE)
        if e.kind == "ladder"
    )


def end_stopped(rollback_dir: Path) -> None:
    """Kill a standby that was stopped (Ctrl-Z, a debugger): its caller rolls back another way. When
    continued, perhaps during a later run, it would still act on the old byte."""
    for entry in livelog.read(rollback_dir / LIVE):
        if entry.kind == "ladder" and is_stopped(entry.pid):
            with contextlib.suppress(OSError, Refused):
                licence.send(Licence(Reason.HELPER), entry.pid, entry.start, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process. It keeps its lock meanwhile."""
    process_stat = process.stat(pid)
    return process_stat is not None and process_stat.state in "Tt"


ALIVE_S = 0.25
"""Seconds between two checks of whether the triggered standby is alive and at work."""


class Answer(Enum):
    """How a triggered standby answers; after GONE and SILENT the caller rolls back another way."""

    WAITING = "waiting"
    ENDED = "ended"
    """The last line of its rollback is there."""
    GONE = "gone"
    """It died or was stopped; or it is done, but a full disk did not take its last line."""
    SILENT = "silent"
    """It has written no line at all, or none for so long that it counts as stuck."""


class ProgressReader(Protocol):
    """Reads the standby's lines; `seen` counts them."""

    @property
    def seen(self) -> int: ...

    def poll(self) -> object:
        """Read the new lines. The result is true once the last line is there."""


class StandbyFollower:
    """Follows the rollback of a standby that was just triggered. It never waits: `step` returns the
    present state, and the caller decides what to do if the standby does not answer."""

    def __init__(
        self,
        rollback_dir: Path,
        reader: ProgressReader,
        now: float,
        *,
        first_line_s: float,
        quiet_s: Callable[[], float],
        lock_counts: bool = False,
    ) -> None:
        """The standby is silent after `first_line_s` seconds without its first line, and later
        after `quiet_s()` seconds without another. With `lock_counts`, the first line may be late
        while a rollback holds the lock: the standby works for the runner, or waits its turn."""
        self._directory, self._reader = rollback_dir, reader
        self._first_line_s, self._quiet_s = first_line_s, quiet_s
        self._lock_counts = lock_counts
        self._heard = self._checked = now
        self._seen = 0
        self._limit_s: float | None = None
        """`quiet_s()`, once the first line is there or, with `lock_counts`, is late."""

    def step(self, now: float) -> Answer:
        """Read the new lines, and return the state at this monotonic time."""
        if self._reader.poll():
            return Answer.ENDED
        if self._reader.seen != self._seen:
            self._seen, self._heard = self._reader.seen, now
        quiet = now - self._heard
        if self._limit_s is None and (self._seen or quiet >= self._first_line_s):
            if not (self._seen or self._lock_counts):
                return Answer.SILENT
            self._limit_s = self._quiet_s()
        if self._limit_s is None:
            return Answer.WAITING
        if quiet >= self._limit_s:
            return Answer.SILENT
        if now - self._checked < ALIVE_S:
            return Answer.WAITING
        self._checked = now
        if is_held(self._directory) and is_standing_by(self._directory, running=True):
            return Answer.WAITING
        return Answer.ENDED if self._reader.poll() else Answer.GONE
