"""The process in a job of Slurm's: it holds the allocation while it lives, and nothing else of a
run lives there, because Slurm kills whatever a job has started.

    python -m console.runner.slurm.holder TICKET_DIR

Slurm asks for the allocation back with SIGTERM: `scancel`, a preemption, or the end of the job's
time soon. The holder then has the run's standby bring the baseline back, and stays until that has
happened or until SIGKILL; the run's sentinel sees that it is gone, and does the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError, Exit
from console.common.text import one_line
from console.journal.lock import closer_alive, runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_files import unrecorded_end, view_of
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import record_request
from console.runner.guard.process import is_watched
from console.runner.slurm import ticket as tickets
from console.runner.slurm.ticket import Ticket

TICK_S = 0.5
ALONE_S = 60.0
"""How long an allocation is held for a run that nobody begins."""
WATCHED_S = 180.0
"""How long it is held for the sentinel of a run that is over: as it would see a loss."""


class Holder:
    """Holds one allocation. `run` returns the job's exit code when it is given up."""

    def __init__(self, ticket: Ticket, job: str, clock: Clock) -> None:
        self.ticket, self.job, self._clock = ticket, job, clock
        self.asked_back = False
        """Slurm wants the allocation back; set by a signal."""
        self._run: RunDir | None = None
        self._rolls = False
        self._alone_since: float | None = None
        self._over_since: float | None = None
        self._last_words = ""

    def run(self) -> int:
        self.ticket.grant(self.job)
        self._say(f"job {self.job} holds the allocation: {self.ticket.wish}")
        while (code := self._tick_or_hold()) is None:
            self._clock.sleep(TICK_S)
        return code

    def _tick_or_hold(self) -> int | None:
        """A look; one that fails, as on a file server that is away, gives nothing up."""
        try:
            return self.tick()
        except (ConsoleError, OSError) as error:
            self._say(f"the allocation cannot be checked now: {one_line(str(error), 500)}")
            return None

    def tick(self) -> int | None:
        """Look once; the exit code when the allocation is given up."""
        if self._run is None or not self._run.path.exists():  # one that was refused has withdrawn
            self._run = self.ticket.run
        if self.asked_back:
            self.ticket.leave()
        if self._run is None:
            return self._without_run()
        if self.asked_back and not self._rolls:
            self._rolls = self._roll_back(self._run)
        if self._needs(self._run):
            return None
        self._say(f"run {self._run.id} is over: the allocation is given up")
        return int(Exit.OK)

    def _without_run(self) -> int | None:
        ended, now = self.ticket.ended, self._clock.monotonic()
        if ended is not None and not ended.run:
            self._say(f"no run has begun: {one_line(ended.words, 500)}")
            return int(Exit.FAILED)
        if self.ticket.awaited:
            self._alone_since = None
            return None
        self._alone_since = now if self._alone_since is None else self._alone_since
        if not self.asked_back and now - self._alone_since < ALONE_S:
            return None
        words = "Slurm wanted the allocation back" if self.asked_back else (
            "the process that would have begun the run is gone"
        )  # fmt: skip
        self.ticket.end(words=words, exit_=int(Exit.FAILED))
        self._say(f"no run has begun: {words}")
        return int(Exit.FAILED)

    def _roll_back(self, run: RunDir) -> bool:
        """Have the standby, which lives outside of this job, bring the baseline back."""
        who = f"Slurm, which ends job {self.job}"
        if trigger.is_held(run.rollback):
            return True
        record_request(run.rollback, who, self._clock.now())
        done = trigger.trigger(run.rollback)
        self._say(f"{who}: " + ("the baseline is brought back" if done else "no standby answers"))
        return done

    def _needs(self, run: RunDir) -> bool:
        """Whether the run still needs the allocation."""
        if runner_alive(run) or closer_alive(run) or trigger.is_held(run.rollback):
            self._over_since = None
            return True
        try:
            view = view_of(run)[0]
            # whoever rolled back without a journal has stopped what the run had started
            over = view.over or unrecorded_end(run, view).get("serving") is True
        except (ConsoleError, OSError):
            # whatever it left is on the cards; without a journal it never began
            return run.journal.exists() or self.ticket.awaited
        if view.outage or (view.services and not over):
            self._over_since = None
            self._say(f"run {run.id} has the baseline down and no runner: `omni-console rollback`, "
                      "or `resume`")  # fmt: skip
            return True
        now = self._clock.monotonic()
        self._over_since = now if self._over_since is None else self._over_since
        return is_watched(run) and now - self._over_since < WATCHED_S

    def _say(self, words: str) -> None:
        if words != self._last_words:
            self._last_words = words
            with contextlib.suppress(OSError):
                print(time.strftime("%Y-%m-%d %H:%M:%S"), words, flush=True)


def main(arguments: list[str]) -> int:
    """Entry point of the process; 2 when there is no such ticket."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m console.runner.slurm.holder TICKET_DIR\n")
        return int(Exit.USAGE)
    try:
        holder = Holder(
            tickets.read(Path(arguments[0])), os.environ.get("SLURM_JOB_ID", ""), SystemClock()
        )
        signal.signal(signal.SIGTERM, lambda *_: setattr(holder, "asked_back", True))
        return holder.run()
    except (ConsoleError, OSError) as error:
        sys.stderr.write(f"{one_line(str(error))}\n")
        return int(Exit.USAGE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
