"""The sentinel's process, as the runner starts it, finds it again and ends it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.paths import module_argv
from console.host import licence, process
from console.host.licence import Licence, Reason
from console.journal.breach import look, ready, tell
from console.journal.run_dir import RunDir
from console.recovery.guard import config as guard_config
from console.recovery.guard.record.read import open_newest
from console.recovery.guard.record.recorder import place
from console.recovery.rollback import live
from console.recovery.rollback.trigger import is_stopped

READY_S = 10.0
SILENT_S = 2.0
"""A sentinel that has written nothing for this long is not trusted any more."""
END_S = 5.0


class SentinelProcess:
    """One sentinel at a time. `pid` is (pid, start time), (0, 0) before the first start."""

    def __init__(self, run: RunDir, clock: Clock, copy: str = "") -> None:
        """`copy` is the run's sealed copy, which the sentinel runs, "" if there is none."""
        self.run, self.copy = run, copy
        self.clock = clock
        self.pid = (0, 0)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return str(self.run.guard / "sentinel.log")

    @property
    def alive(self) -> bool:
        if self._child is not None:
            self._child.poll()  # a dead child is a zombie until it is reaped
        return process.alive(*self.pid)

    @property
    def watches(self) -> bool:
        """Whether the sentinel has said that it watches, lives, and is not stopped."""
        return ready(self.run) == self.pid and self.alive and not is_stopped(self.pid[0])

    def adopt(self) -> bool:
        """Adopt the sentinel that an earlier runner started, if it works; else end it. Returns
        whether it was adopted."""
        sentinel = ready(self.run)
        if sentinel is None or not process.alive(*sentinel):
            return False
        seen = look(self.run, sentinel)
        late = seen is None or self.clock.monotonic() - seen.at > SILENT_S
        if late or is_stopped(sentinel[0]) or (seen is not None and seen.acted):
            licence.send(_licence(self.run), *sentinel, signal.SIGKILL)
            return False
        self.pid = sentinel
        tell(self.run, {"do": "sheet"})
        return True

    def start(self) -> None:
        """Start a new sentinel, which says in sentinel.json when it watches. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            (self.run.guard / guard_config.READY).unlink()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._child = subprocess.Popen(
                [*module_argv("console.recovery.guard.daemon", self.copy), str(self.run.guard)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)
        self.pid = (self._child.pid, process.start_time(self._child.pid) or 0)
        live.append(self.run.live, live.Live("sentinel", "sentinel", *self.pid))

    def wait_ready(self) -> None:
        """Wait until the sentinel watches, READY_S at most. Raises ConsoleError after ending it."""
        deadline = self.clock.monotonic() + READY_S
        while not self.watches:
            if not self.alive or self.clock.monotonic() > deadline:
                self.end()
                raise ConsoleError(
                    "the sentinel did not start", f"see {self.log}",
                    "no run starts while nothing guards the machine's memory",
                )  # fmt: skip
            self.clock.sleep(0.01)

    def end(self) -> None:
        """Send SIGKILL, and wait for the process if it is a child of this one."""
        with contextlib.suppress(OSError):
            licence.send(_licence(self.run), *self.pid, signal.SIGKILL)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(END_S)


def _licence(run: RunDir) -> Licence:
    return Licence(Reason.HELPER, run.id)


def is_watched(run: RunDir) -> bool:
    """Return whether a sentinel has said that it watches this run, lives, and is not stopped."""
    sentinel = ready(run)
    return sentinel is not None and process.alive(*sentinel) and not is_stopped(sentinel[0])


def dismiss(run: RunDir, clock: Clock | None = None) -> None:
    """End the sentinel of a run that is over: by a message, or after SILENT_S by a signal."""
    clock = clock or SystemClock()
    sentinel = ready(run)
    if sentinel is not None and process.alive(*sentinel):
        will_quit = tell(run, {"do": "quit"}) and not is_stopped(sentinel[0])
        deadline = clock.monotonic() + (SILENT_S if will_quit else 0.0)
        while process.alive(*sentinel) and clock.monotonic() < deadline:
            clock.sleep(0.01)
        with contextlib.suppress(OSError):
            licence.send(_licence(run), *sentinel, signal.SIGKILL)
    _remove_shared_ring(run)


def _remove_shared_ring(run: RunDir) -> None:
    """Remove what a killed sentinel left in shared memory, and keep its last copy on disk."""
    copy = run.guard / guard_config.RING
    with contextlib.suppress(OSError, ValueError):
        config = guard_config.read(run.guard / guard_config.CONFIG_FILE)
        shared = place(config.ring, run.guard)[0]
        if shared.parent == run.guard or not shared.exists():
            return
        newest = open_newest(run.path)
        if newest is not None and newest.path == shared:
            shutil.copyfile(shared, copy)
        shared.unlink()
