"""A ladder that waits: started with the run, everything loaded, one byte away.

    python -m console.recovery.rollback.standby RUN_DIR/rollback

On a thrashing machine an interpreter may take a minute to start. This one has started already,
keeps its pages in memory where it may, and reads one byte from the FIFO `trigger`: `R` an
emergency (the runner is fenced), `S` one that the sentinel found, `r` the runner asks itself,
`q` quit, `l` quit if nobody needs a way back any more: no runner lives, and the baseline serves.
It asks itself that now and then, for where a runner died before there was a sentinel to ask; and
where both are dead it counts the lease. After an emergency that ended well it leaves.
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
from console.common.errors import ConsoleError
from console.common.files import write_atomically
from console.host import process
from console.host.ports import foreign
from console.host.privileges import lock_memory
from console.recovery.rollback import live as livelog
from console.recovery.rollback import records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.live import LIVE, Live
from console.recovery.rollback.procedure import Procedure, load
from console.recovery.rollback.progress import PROGRESS_FILE, asked, new_trigger, size_of
from console.recovery.rollback.sealed_plan import PLAN, SealedPlan
from console.recovery.rollback.trigger import (
    ASKED,
    EMERGENCY,
    FIFO,
    LEAVE,
    QUIT,
    SENTINEL,
    STANDBY_FILE,
    is_standing_by,
    trigger,
)
from console.runtime import probe
from console.runtime import proxy as relay

OOM_SCORE = -900
LOOK_S = 60.0
"""How often a ladder that nobody speaks to looks whether it is needed."""
WHO = {EMERGENCY: "warm", SENTINEL: "sentinel", ASKED: "runner"}
"""Byte → the trigger's name; the first of these that was sent counts. All but the last fence."""
LEASE = "lease"
"""What it calls itself where nobody sent a byte, and the lease ran out; it fences too."""
__all__ = [
    "ASKED", "EMERGENCY", "FIFO", "LEAVE", "QUIT", "SENTINEL", "STANDBY_FILE", "Standby",
    "is_standing_by", "lock_memory", "trigger",
]  # fmt: skip


class Standby:
    """The waiting process; `run()` returns when it is told to quit."""

    def __init__(self, rollback_dir: Path) -> None:
        self.directory = rollback_dir
        self.clock: Clock = SystemClock()
        self.plan = sealed.read(rollback_dir / PLAN)
        self.seen = self._stamp()
        self.oom_score: int | None = None
        self.fifo = -1
        self.down_since: float | None = None
        self.climbed = 0
        """How much ladders of this run had said by then, bytes."""
        self.pending = b""

    def prepare(self) -> None:
        """FIFO, everything loaded, protection, then the line that says it is ready."""
        path = self.directory / FIFO
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Read and write: the last writer going away must not look like the end of the file.
        self.fifo = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not stat.S_ISFIFO(os.fstat(self.fifo).st_mode):
            raise ConsoleError("the trigger is no FIFO", str(path))
        load()
        got = {"memory": lock_memory(), "oom_score_adj": self._protect()}
        pid = os.getpid()
        start = process.start_time(pid) or 0
        with contextlib.suppress(OSError):
            text = json.dumps({"pid": pid, "start": start, **got}) + "\n"
            write_atomically(self.directory / STANDBY_FILE, text)
        livelog.append(self.directory / LIVE, Live("ladder", "warm", pid, start))

    def run(self) -> None:
        """Wait, climb, wait again; a key pressed during a climb is answered by that climb."""
        while True:
            pending = self.pending or self._heard()
            self.pending = b""
            who = next((w for byte, w in WHO.items() if byte in pending), "")
            if not pending and self._overdue():
                who = LEASE
                asked(self.directory, "the lease", self.clock.now())
            if who:
                self._run(who)
                if QUIT in pending and QUIT not in self.pending:
                    self.pending += QUIT  # it came with the call, and is still wanted
            elif QUIT in pending or self._may_leave(pending):
                self.pending = self._drain()  # what was asked while it was about to leave
                if not self.pending:
                    return

    def _may_leave(self, pending: bytes) -> bool:
        """Asked to, or in a silence that no sentinel would break."""
        if pending:
            return LEAVE in pending and self._needless("runner")
        return self._needless("runner", "sentinel")

    def _heard(self) -> bytes:
        """What is asked next; b"" where nobody asks for LOOK_S."""
        return os.read(self.fifo, 64) if select.select([self.fifo], [], [], LOOK_S)[0] else b""

    def _needless(self, *kinds: str) -> bool:
        """Whether none of the run's processes of these kinds lives, and the baseline serves."""
        return not self._lives(*kinds) and self._serves()

    def _lives(self, *kinds: str) -> bool:
        entries = livelog.read(self.directory / LIVE)
        return any(e.kind in kinds and process.alive(e.pid, e.start) for e in entries)

    def _serves(self) -> bool:
        base = self.plan.baseline
        if probe.health(base.url, base.ready_path)[0] is not probe.Health.SERVING:
            return False
        if base.kind == "process" and foreign(base.url, here=True) is not None:
            return False
        return relay.at(base.url) is None  # else a candidate answers there, by a cutover

    def _overdue(self) -> bool:
        """Whether the lease ran out with neither runner nor sentinel to count it: asked in every
        silence, and true only where this run is the one that is on, and nobody has climbed since
        the baseline was seen down."""
        now, lease_s = self.clock.monotonic(), self.plan.lease_s
        if not (lease_s and self._is_on()) or self._lives("runner", "sentinel") or self._serves():
            self.down_since = None
            return False
        climbed = size_of(self.directory / PROGRESS_FILE)
        if self.down_since is None:
            self.down_since, self.climbed = now, climbed
        return now - self.down_since >= lease_s and climbed == self.climbed

    def _is_on(self) -> bool:
        """Whether this user's pointer names this run, and it is not over: the outage of another
        run is not this one's to end."""
        on = records.read(os.getuid())
        return on is not None and on.run_id == self.plan.run_id and not on.over

    def _run(self, who: str) -> None:
        clock, emergency = self.clock, who != "runner"
        begun = new_trigger(clock, emergency, who)
        self._reread()
        Procedure(
            self.plan, clock=clock, trigger=begun, oom_score=self.oom_score,
            settle=lambda: self._settle(emergency),
        ).run()  # fmt: skip

    def _settle(self, emergency: bool) -> None:
        """Presses until now have their answer; what the runner asked for meanwhile has not,
        unless this climb was an emergency, and neither has a quit."""
        answered = EMERGENCY + SENTINEL + ASKED if emergency else ASKED
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
        """Take a changed plan; the copy in memory serves when the file is gone or garbage."""
        now = self._stamp()
        if now == self.seen:
            return
        with contextlib.suppress(ConsoleError):
            self.plan = self._same_run(sealed.read(self.directory / PLAN))
            self.seen = now

    def _same_run(self, fresh: SealedPlan) -> SealedPlan:
        if fresh.run_id != self.plan.run_id:
            raise ConsoleError("the plan is another run's", fresh.run_id)
        return fresh

    def _protect(self) -> str:
        """Ask for protection from the OOM killer; what it got, as read back."""
        path = "/proc/self/oom_score_adj"
        try:
            before = int(Path(path).read_text())
        except (OSError, ValueError) as error:
            return f"unknown: {error}"
        # A buffered write hides the refusal: write the descriptor, then read back.
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


def main(arguments: list[str]) -> int:
    """Entry of the process; 2 when the plan or the FIFO cannot be used."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m console.recovery.rollback.standby RUN_DIR/rollback\n")
        return 2
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        standby = Standby(Path(arguments[0]).absolute())
        standby.prepare()
    except (ConsoleError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    standby.run()
    os.close(standby.fifo)  # before the interpreter's end: whoever asks now finds nobody at once
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
