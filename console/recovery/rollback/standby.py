"""The standby is a process that starts with the run and waits for one byte that makes it roll back.

    python -m console.recovery.rollback.standby RUN_DIR/rollback

On a thrashing machine an interpreter may take a minute to start. The standby has everything loaded
already, locks its pages in memory if permitted, and reads one byte from the FIFO `trigger`:

`R` means an emergency (the runner is fenced), `S` an emergency that the sentinel found, `r` a
rollback that the runner asks for; `q` means quit, `l` quit if no runner lives and the baseline
serves. The standby also makes that check itself from time to time, since a runner may die before
there is a sentinel to send `l`. While runner and sentinel are both dead, it counts the lease. An
emergency that ends with a serving baseline tells it to quit. A SIGTERM during a rollback ends the
standby after the rollback, a second one at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import sys
from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError, Exit
from console.common.files import hold, was_deleted, write_atomically
from console.common.text import one_line
from console.host import process
from console.host.ports import foreign
from console.host.privileges import lock_memory
from console.recovery.rollback import live as livelog
from console.recovery.rollback import records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.command import ignore_hangup
from console.recovery.rollback.live import LIVE, Live
from console.recovery.rollback.procedure import Procedure, load
from console.recovery.rollback.progress import (
    PROGRESS_FILE,
    is_of_runner,
    new_trigger,
    read_lines,
    record_request,
    size_of,
)
from console.recovery.rollback.sealed_plan import PLAN, SealedPlan
from console.recovery.rollback.trigger import (
    EMERGENCY,
    FIFO,
    LEAVE,
    QUIT,
    REQUEST,
    SENTINEL,
    STANDBY_FILE,
    is_standing_by,
    trigger,
)
from console.runtime import probe
from console.runtime import proxy as relay

OOM_SCORE = -900
LOOK_S = 60.0
"""Seconds of silence after which the standby checks whether it is still needed."""
WHO = {EMERGENCY: "warm", SENTINEL: "sentinel", REQUEST: "runner"}
"""Maps a byte to the first word of the rollback's id. Of several bytes, the first in this table
counts. All but the last fence the runner."""
LEASE = "lease"
"""The first word of the id if the lease expired and nobody sent a byte; it fences, too."""
__all__ = [
    "EMERGENCY", "FIFO", "LEAVE", "QUIT", "REQUEST", "SENTINEL", "STANDBY_FILE", "Standby",
    "is_standing_by", "lock_memory", "trigger",
]  # fmt: skip


class Standby:
    """The waiting process. `run()` returns when it is told to quit or is no longer needed."""

    def __init__(self, rollback_dir: Path) -> None:
        self.directory = rollback_dir
        self.clock: Clock = SystemClock()
        self.plan = sealed.read(rollback_dir / PLAN)
        self.plan_stamp = self._stamp()
        self.place = hold(rollback_dir)
        self.oom_score: int | None = None
        self.fifo = -1
        self.down_since: float | None = None
        self.progress_size = 0
        """Bytes in ladder.jsonl when the baseline was first seen down."""
        self.pending = b""
        self.written_at = 0.0
        """Unix time at which the last bytes were written, as the FIFO's date tells it."""

    def prepare(self) -> None:
        """Make the FIFO, load everything, protect the process, then record that it is ready."""
        path = self.directory / FIFO
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # It is opened for writing, too: otherwise the last writer's end would read as end of file.
        self.fifo = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not stat.S_ISFIFO(os.fstat(self.fifo).st_mode):
            raise ConsoleError("the trigger is not a FIFO", str(path))
        load()
        protection = {"memory": lock_memory(), "oom_score_adj": self._protect()}
        pid = os.getpid()
        start = process.start_time(pid) or 0
        with contextlib.suppress(OSError):
            text = json.dumps({"pid": pid, "start": start, **protection}) + "\n"
            write_atomically(self.directory / STANDBY_FILE, text)
        livelog.append(self.directory / LIVE, Live("ladder", "warm", pid, start))

    def run(self) -> None:
        """Wait, roll back, and wait again. A rollback also answers requests that come during it."""
        while True:
            known = size_of(self.directory / PROGRESS_FILE)
            pending = self.pending or self._unanswered(self._wait_for_bytes(), known)
            self.pending = b""
            who = next((w for byte, w in WHO.items() if byte in pending), "")
            if not pending and self._lease_expired():
                who = LEASE
                record_request(self.directory, "the lease", self.clock.now())
            if who:
                self._run(who)
                if QUIT in pending and QUIT not in self.pending:
                    self.pending += QUIT  # it came together with the request, and still counts
            elif QUIT in pending or self._may_leave(pending):
                self.pending = self._drain()  # requests that came while it was about to quit
                if not self.pending:
                    return

    def _may_leave(self, pending: bytes) -> bool:
        """Whether to quit: LEAVE asks for it, or no byte came and no sentinel lives."""
        if self._is_gone():
            # Nobody reaches it any more. It stays only for a lease that it may have to count.
            return not self._is_active() or self._is_unneeded("runner")
        if pending:
            return LEAVE in pending and self._is_unneeded("runner")
        return self._is_unneeded("runner", "sentinel")

    def _wait_for_bytes(self) -> bytes:
        """The bytes that come next; b"" if none come for LOOK_S."""
        if not select.select([self.fifo], [], [], LOOK_S)[0]:
            return b""
        self.written_at = os.fstat(self.fifo).st_mtime
        return os.read(self.fifo, 64)

    def _unanswered(self, pending: bytes, known: int) -> bytes:
        """Return these bytes without those that other rollbacks have answered since ladder.jsonl
        was `known` bytes long. While this process was stopped or starved, whoever wrote the byte
        may have rolled back another way; to do so again could hit a later run."""
        lines = read_lines(self.directory / PROGRESS_FILE, known)[0] if pending else []
        lines = [line for line in lines if line.get("rung") == "done"]
        since = [line for line in lines if not _is_before(line.get("at"), self.written_at)]
        ended = [is_of_runner(line.get("trigger")) for line in since]
        if ended:
            pending = pending.translate(None, delete=REQUEST)
        if False in ended:
            pending = pending.translate(None, delete=EMERGENCY + SENTINEL)
        return pending

    def _is_unneeded(self, *kinds: str) -> bool:
        """Whether none of the run's processes of these kinds lives, and the baseline serves."""
        return not self._lives(*kinds) and self._serves()

    def _is_gone(self) -> bool:
        """Whether the run's directory was deleted, even if a rollback has made one of that name."""
        return was_deleted(self.place)

    def _lives(self, *kinds: str) -> bool:
        entries = livelog.read(self.directory / LIVE)
        on = records.read(os.getuid()) if "runner" in kinds else None
        if on is not None and on.run_id == self.plan.run_id and process.alive(on.pid, on.start):
            return True  # live.jsonl may be lost
        return any(e.kind in kinds and process.alive(e.pid, e.start) for e in entries)

    def _serves(self) -> bool:
        base = self.plan.baseline
        if probe.health(base.url, base.ready_path)[0] is not probe.Health.SERVING:
            return False
        if base.kind != "container" and foreign(base.url, here=True) is not None:
            from console.recovery.rollback import observe

            if not observe.answers(self.plan, known=False):
                return False
        return relay.at(base.url) is None  # behind a relay, a candidate answers

    def _lease_expired(self) -> bool:
        """Whether the lease has expired while neither runner nor sentinel lives to count it.

        This is checked whenever no byte came for LOOK_S. It is true only if this run is the active
        one and no rollback has run since the baseline was first seen down.
        """
        now, lease_s = self.clock.monotonic(), self.plan.lease_s
        counts = lease_s and self._is_active() and not self._lives("runner", "sentinel")
        if not counts or self._serves():
            self.down_since = None
            return False
        progress_size = size_of(self.directory / PROGRESS_FILE)
        if self.down_since is None:
            self.down_since, self.progress_size = now, progress_size
        return now - self.down_since >= lease_s and progress_size == self.progress_size

    def _is_active(self) -> bool:
        """Whether this user's pointer names this run, and the run is not over. A standby does not
        end the outage of another run."""
        on = records.read(os.getuid())
        return on is not None and on.run_id == self.plan.run_id and not on.over

    def _run(self, who: str) -> None:
        clock, emergency = self.clock, who != "runner"
        begun = new_trigger(clock, emergency, who)
        self._reread()
        with ignore_hangup(signal.SIGTERM) as pressed:
            Procedure(
                self.plan, clock=clock, trigger=begun, oom_score=self.oom_score,
                settle=lambda: self._drop_answered(emergency),
            ).run()  # fmt: skip
        if pressed:
            self.pending += QUIT

    def _drop_answered(self, emergency: bool) -> None:
        """Drop the requests that this rollback has answered: an emergency answers all of them,
        another rollback only the runner's. A quit is kept."""
        answered = EMERGENCY + SENTINEL + REQUEST if emergency else REQUEST
        self.pending = self._drain().translate(None, delete=answered)

    def _drain(self) -> bytes:
        os.set_blocking(self.fifo, False)
        try:
            return os.read(self.fifo, 4096)
        except BlockingIOError:
            return b""
        finally:
            os.set_blocking(self.fifo, True)

    def _stamp(self) -> tuple[int, int, int]:
        try:
            info = os.stat(self.directory / PLAN)
        except OSError:
            return (0, 0, 0)
        return (info.st_mtime_ns, info.st_ino, info.st_size)

    def _reread(self) -> None:
        """Read a plan that has changed; keep the one in memory if the file is gone or invalid."""
        now = self._stamp()
        if now == self.plan_stamp:
            return
        with contextlib.suppress(ConsoleError):
            self.plan = self._same_run(sealed.read(self.directory / PLAN))
            self.plan_stamp = now

    def _same_run(self, fresh: SealedPlan) -> SealedPlan:
        if fresh.run_id != self.plan.run_id:
            raise ConsoleError("the plan belongs to another run", fresh.run_id)
        return fresh

    def _protect(self) -> str:
        """Lower this process's OOM score, and return in words the score that is in force then."""
        path = "/proc/self/oom_score_adj"
        try:
            before = int(Path(path).read_text())
        except (OSError, ValueError) as error:
            return f"unknown: {error}"
        # A buffered write would hide a refusal, so write to the descriptor and read the file back.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, str(min(before, OOM_SCORE)).encode())
            finally:
                os.close(descriptor)
        after = Path(path).read_text().strip()
        if after != str(before):
            self.oom_score = before
            return after
        return f"{after}: not permitted to lower it"


def _is_before(at: object, moment: float) -> bool:
    return isinstance(at, int | float) and at < moment


def main(arguments: list[str]) -> int:
    """Entry point of the process; returns 2 when the plan or the FIFO cannot be used."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m console.recovery.rollback.standby RUN_DIR/rollback\n")
        return 2
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        standby = Standby(Path(arguments[0]).absolute())
        standby.prepare()
    except (ConsoleError, OSError) as error:
        sys.stderr.write(f"{one_line(str(error))}\n")
        return 2
    try:
        standby.run()
    except KeyboardInterrupt:
        return int(Exit.ROLLBACK_FAILED)
    os.close(standby.fifo)  # so that a caller sees at once that nobody reads
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
