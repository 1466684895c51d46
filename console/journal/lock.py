"""One run per host: a flock that lives as long as the runner, and a pointer everybody can read.

A runner counts as alive by its pid and start time, never because a file exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from console.common import paths
from console.common.errors import HostBusy
from console.common.files import open_untrusted
from console.host import process
from console.journal.run_dir import RunDir
from console.recovery.rollback import live, records
from console.recovery.rollback.progress import unfinished
from console.recovery.rollback.records import live_runs_of_others
from console.recovery.rollback.trigger import flocks, is_held

CHANGING = "its runner is still starting or just ending"
HINT = "omni-console attach joins it; omni-console abort stops it; omni-console rollback too"


def run_on() -> tuple[RunDir | None, bool]:
    """Return the active run (this user's; for root anybody's), and whether its runner lives. A run
    without a runner counts as active while its sentinel watches."""
    uid = os.getuid()
    mine = [record for record in records.find_all() if record.uid == uid or uid == 0]
    for pointer in mine:
        if process.alive(pointer.pid, pointer.start):
            return RunDir(Path(pointer.run_dir)), True
    if not mine:
        return None, False
    # imported late: a machine without a run is looked at more often than any other
    from console.recovery.guard.record.read import open_newest

    for pointer in mine:
        recording = open_newest(Path(pointer.run_dir))
        if recording is not None and recording.alive:
            return RunDir(Path(pointer.run_dir)), False
    return None, False


def runner_alive(run: RunDir) -> bool:
    """Whether the newest recorded runner of this run still lives."""
    runners = [entry for entry in live.read(run.live) if entry.kind == "runner"]
    return bool(runners) and process.alive(runners[-1].pid, runners[-1].start)


def closer_alive(run: RunDir) -> bool:
    """Whether a process lives that a rollback started to write this run's end."""
    closers = [entry for entry in live.read(run.live) if entry.kind == "closer"]
    return any(process.alive(entry.pid, entry.start) for entry in closers)


def ladder_busy(run: RunDir) -> bool:
    """Whether a rollback of this run has begun, not recorded its end, and still holds its lock."""
    try:
        size: int = run.ladder.stat().st_size
    except OSError:
        return False
    # A rollback that was killed leaves lines without an end; the kernel took its lock away.
    return unfinished(run.ladder) < size and is_held(run.rollback)


class HostChanging(HostBusy):
    """The lock is held, but no run is named yet, or none any more: a short time later it is free,
    or the run that has begun is named."""


class HostLock:
    """Held as long as this object is; the kernel releases it when the process dies.

    Each user has a lock of their own; another user's run counts if its pointer names the process
    that holds that lock, wherever the file is. So nobody can keep others out just by holding a lock
    or creating a file.
    """

    def __init__(self) -> None:
        """Take the lock. Raises HostBusy, naming the run that holds the host, and HostChanging."""
        self._fd = _opened(os.getuid())
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            words = holder()
            busy = HostChanging if words == CHANGING else HostBusy
            raise busy("another run holds this host", words, HINT) from error
        try:
            refuse_others()
        except HostBusy:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock; repeating it does nothing."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


def _opened(uid: int) -> int:
    """The user's lock file, or the one in the user's own directory if another user has put
    something in its place. Raises HostBusy."""
    why = ""
    for path in _places(uid):
        try:
            paths.make(path.parent)
            descriptor = open_untrusted(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            why = why or f"{path}: {error.strerror}"
            continue
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode) and info.st_uid == uid:
            return descriptor
        os.close(descriptor)
        why = why or f"{path} is no file of this user's"
    raise HostBusy(
        "the host lock cannot be opened", why, "OMNI_HOST_DIR names another directory for it"
    )


def _places(uid: int) -> tuple[Path, Path]:
    return paths.host_lock(uid), paths.own_host_dir() / "lock"


def held_name() -> str:
    """The kernel's name for the host lock that this process holds; "" if it gives none."""
    mine = [name for pid, name in flocks() if pid == os.getpid()]
    for path in _places(os.getuid()):
        with contextlib.suppress(OSError):
            inode = os.stat(path).st_ino
            lock_names = [name for name in mine if name.endswith(f":{inode}")]
            if lock_names:
                return lock_names[0]
    return ""


def refuse_others() -> None:
    """Raise HostBusy if another user's run is active."""
    for words in runs_of_others():
        raise HostBusy(
            "another run holds this host", words,
            "to run beside it, OMNI_HOST_DIR names another directory for the lock",
        )  # fmt: skip


def runs_of_others() -> list[str]:
    """The live runs of other users that hold this host, in words."""
    return [_words(pointer) for pointer in live_runs_of_others({os.getuid()})]


def holder() -> str:
    """This user's run that holds the host, in words."""
    pointer = records.read(os.getuid())
    if pointer is not None and process.alive(pointer.pid, pointer.start):
        return _words(pointer)
    return CHANGING


def _words(pointer: records.Pointer) -> str:
    return f"run {pointer.run_id} of {pointer.owner} (pid {pointer.pid}), {pointer.playbook}"
