"""From the question for an allocation to the run's begin.

    python -m console.runner.slurm.waiter TICKET_DIR

Whoever asks leaves a process outside of the job that waits for the allocation and begins the run:
its runner, standby and sentinel are no children of the job, so that `scancel` ends none of them.
"""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError, Exit
from console.common.paths import module_argv
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.config.playbook.load import load_playbook
from console.config.site.site import Site, load_site
from console.recovery.rollback.trigger import Lock
from console.runner import launch
from console.runner.prepare.baseline import restore_time
from console.runner.slurm import job as slurm
from console.runner.slurm import ticket as tickets
from console.runner.slurm.job import MARGIN_S, NeverGiven, SlurmError, Wish
from console.runner.slurm.ticket import Held, Ticket

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook

TICK_S = 0.5
LOOK_S = 10.0
"""Seconds between two questions to Slurm; that the job holds its allocation is seen at once."""


def enter(
    site: Site, playbook: Playbook, inputs: Mapping[str, str], wish: Wish,
    say: Callable[[str], None], *, ticket: str = "", **more: object,
) -> Ticket:  # fmt: skip
    """Ask Slurm for an allocation, and leave a process behind that begins the run with it.

    `ticket`: its id, if it has to be known beforehand; `more`: as `launch.begin` takes it. Raises
    SlurmError and what else keeps the job from being asked for; then there is none.
    """
    slurm.refuse_inside()
    node, restore_s = slurm.node_here(wish), restore_time(site.name) or 0.0
    lead_s = 2 * restore_s + MARGIN_S
    if wish.time:
        _require_long(f"slurm time={wish.time}", slurm.seconds_of(wish.time), lead_s)
    made = Ticket(
        ticket or secrets.token_hex(8), str(playbook.path.resolve()), str(playbook.base),
        str(site.path.resolve()), dict(inputs), wish=wish.words(), at=time.time(),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    made.keep()
    argv = [*module_argv("console.runner.slurm.holder"), str(made.path)]
    try:
        job = slurm.submit(wish, playbook.name, argv, made.path, lead_s, node)
    except ConsoleError as error:
        made.end(words=str(error), exit_=int(error.exit_code))
        raise
    try:
        made.ask_with(job)
        left_s = slurm.limit_of(job)  # its partition's, where none was asked for
        if left_s is not None:
            _require_long(f"the time of Slurm job {job}", left_s, lead_s)
        launch.detach(
            f"omni-console-slurm-{made.id}", [*module_argv("console.runner.slurm.waiter"),
            str(made.path)], made.path / "waiter.log",
        )  # fmt: skip
    except BaseException as error:  # a full disk and Ctrl-C, too: nobody would wait for the job
        code = error.exit_code if isinstance(error, ConsoleError) else Exit.FAILED
        with suppress(OSError):
            made.end(words=str(error) or "interrupted", exit_=int(code))
        slurm.cancel(job)
        raise
    say(f"Slurm job {job}: {wish.words()}; `scancel {job}` on this host gives it up")
    wait_s = slurm.kill_wait_s()
    if wait_s is not None and restore_s > wait_s:
        say(f"WARNING: after `scancel` Slurm waits {format_duration(wait_s)} (KillWait), and the "
            f"baseline takes {format_duration(restore_s)} to come back: it comes back all the "
            "same, but the cards are given away before")  # fmt: skip
    return made


def _require_long(what: str, time_s: float, lead_s: float) -> None:
    """Raise NeverGiven for a time that is over as soon as the baseline is down."""
    if time_s <= 2 * lead_s:
        raise NeverGiven(
            f"{what} is too short: {format_duration(time_s)}",
            f"{format_duration(lead_s)} before its end the baseline is brought back",
            "ask for a longer time, as with --slurm time=8:00:00, if the partition allows it",
        )


class Waiter:
    """Waits for one ticket's allocation. `run` returns an exit code when it is known what became of
    it."""

    def __init__(self, ticket: Ticket, clock: Clock) -> None:
        self.ticket, self._clock = ticket, clock
        self._looked = float("-inf")

    def run(self) -> Exit:
        while True:
            if held := self.ticket.held:
                return self._begin(held)
            if self.ticket.held_elsewhere:
                return self._give_back()
            now = self._clock.monotonic()
            if now - self._looked >= LOOK_S:
                self._looked = now
                if words := self._gone():
                    return self._never(SlurmError(words))
            self._clock.sleep(TICK_S)

    def _give_back(self) -> Exit:
        """Of an allocation that has begun since this process waits, and on no boot of its own: with
        one home on several machines it is another one's."""
        with suppress(SlurmError):
            slurm.cancel(self.ticket.job)
        job, wish = self.ticket.job, self.ticket.wish
        return self._never(SlurmError(
            f"Slurm gave job {job} to another machine", f"asked for: {wish}",
            "`node` has to be this machine's name in Slurm",
        ))  # fmt: skip

    def _gone(self) -> str:
        """Why there will be no allocation, "" while there may."""
        try:
            (job,) = slurm.look([self.ticket.job]).values()
        except SlurmError:
            return ""  # a controller that is down says nothing about the job
        return slurm.ended_words(job) if job.over else ""

    def _begin(self, held: Held) -> Exit:
        ticket = self.ticket
        try:
            if ticket.leaving or not held.lives:
                raise SlurmError(f"Slurm took the allocation of job {held.job} back")
            site = load_site(Path(ticket.site))
            playbook = load_playbook(
                Path(ticket.playbook), ticket.inputs, base=Path(ticket.base),
                site_services=frozenset(site.model.services), aliases=site.model.names,
                offers=site.offers,
            )  # fmt: skip
            run = launch.begin(
                site, playbook, ticket.inputs, step=ticket.step, say=_say, yes=ticket.yes,
                headless=ticket.headless, expect=ticket.expect, lease_s=ticket.lease_s,
                overrides=ticket.overrides, request=ticket.request,
                allocation=tickets.stamp_of(ticket, held),
            )  # fmt: skip
        except ConsoleError as error:
            return self._never(error)
        ticket.end(run=run.id)
        return Exit.OK

    def _never(self, error: ConsoleError) -> Exit:
        """No run begins: note why, and tell whom the site names."""
        from console.runner.unattended.schedule import tell

        words = "\n".join(error.lines())
        _say(words)
        self.ticket.end(words=clean(words.replace("\n", "; "), 2000), exit_=int(error.exit_code))
        try:
            tell(load_site(Path(self.ticket.site)), self.ticket.name, f"slurm:{self.ticket.id}",
                 str(error))  # fmt: skip
        except (ConsoleError, OSError) as lost:
            _say(f"nobody could be told: {lost}")
        return error.exit_code


def _say(words: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), words, flush=True)


def main(arguments: list[str]) -> int:
    """Entry point of the process; 2 when there is no such ticket."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m console.runner.slurm.waiter TICKET_DIR\n")
        return int(Exit.USAGE)
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        ticket = tickets.read(Path(arguments[0]))
        if not Lock(ticket.path).taken():
            return int(Exit.BUSY)  # another one waits already
        return int(Waiter(ticket, SystemClock()).run())
    except (ConsoleError, OSError) as error:
        _say(one_line(str(error), 500))
        return int(Exit.INTERNAL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
