"""Kills the targets of a breach: all of them at once, each by the quickest way that it allows.

    killer = Killer(run_id, deny, engine=socket)
    killer.rehearse()                       # before mlockall: the same code, on a child of its own
    operation = killer.kill(targets, crossed_at)
    while not operation.advance(): ...      # once a tick; never waits
    operation.report()

It has one thread, and nothing here waits: a child process frees memory (`mrelease`), and requests
to the engine and the root helper do not wait for an answer.
"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from console.host import cgroup, process
from console.recovery.guard.kill.mrelease import Reaper, at_once
from console.recovery.guard.kill.sequence import (
    SOON_S,
    SWEEP_S,
    ContainerKill,
    ProcessKill,
    StrayKill,
    TargetKill,
)
from console.recovery.guard.kill.signals import socket_of
from console.recovery.guard.kill.targets import Deny, Target, refreshed, refusal
from console.runtime.root_helper import HELPER, helper_is_there

GIVE_UP_S = 60.0
"""A kill operation is over after this many seconds; the rollback reports what still lives."""
REHEARSAL_S = 5.0
RESTARTS = (
    "the engine was not told: unless the restart policy is `no`, it restarts the container, "
    "and the rollback stops that"
)


@dataclass(frozen=True, slots=True)
class Killed:
    """What became of one target. `stages` (JSON: `rungs`) says what reached it, in order:
    cgroup.kill, signals, engine, helper, process_mrelease. `written_s` and `empty_s` are seconds
    since the limit was passed, None for not (yet). `why` says what did not work, and `stuck`
    which processes do not die; both are clean."""

    name: str
    kind: str
    who: str
    stages: tuple[str, ...]
    written_s: float | None
    empty_s: float | None
    why: tuple[str, ...] = ()
    stuck: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "kind": self.kind, "who": self.who, "rungs": list(self.stages),
            "written_s": self.written_s, "empty_s": self.empty_s, "why": list(self.why),
            "stuck": self.stuck,
        }  # fmt: skip


class KillOperation:
    """One kill under way. `crossed_at` and all times are on the killer's monotonic clock."""

    def __init__(
        self, kills: Sequence[TargetKill], strays: StrayKill | None, deny: Deny, crossed_at: float,
        clock: Callable[[], float], refused: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.crossed_at = crossed_at
        self.refused = refused
        self.over = False
        self._clock, self._deny = clock, deny
        self._containers = [kill for kill in kills if isinstance(kill, ContainerKill)]
        self._processes = [kill for kill in kills if isinstance(kill, ProcessKill)]
        if strays is not None:
            self._processes.append(strays)
        self._sweep_at = self._late_at = 0.0
        self._until = clock() + GIVE_UP_S

    def advance(self) -> bool:
        """Check what is dead and signal the rest again. Returns True when it is over. This takes
        some 0.1 ms; with processes among the targets, all of /proc is listed every 0.1 s."""
        if self.over:
            return True
        now = self._clock()
        dead = [kill.advance(now) for kill in self._containers]
        left = [kill for kill in self._processes if not kill.over]
        if left and now >= self._sweep_at and (now >= self._late_at or not _all_live(left)):
            stats = process.all_stats()
            spared = self._deny.pids(stats)
            for kill in left:
                kill.sweep(now, stats, spared)
            after = self._clock()
            self._sweep_at, self._late_at = after + SOON_S, after + SWEEP_S
        self.over = (all(dead) and all(kill.over for kill in left)) or now >= self._until
        return self.over

    @property
    def empty(self) -> bool:
        """Whether every target is dead."""
        return all(kill.over for kill in (*self._containers, *self._processes))

    @property
    def killed(self) -> tuple[Killed, ...]:
        """What became of each target that existed, containers first."""
        there: list[TargetKill] = [kill for kill in self._containers if kill.present]
        there += [
            kill for kill in self._processes if not isinstance(kill, StrayKill) or kill.stray_count
        ]
        return tuple(self._outcome(kill) for kill in there)

    def _outcome(self, kill: TargetKill) -> Killed:
        target = kill.target
        why = list(kill.why)
        if target.container and kill.reached_by and "engine" not in kill.reached_by:
            why.append(RESTARTS)
        return Killed(
            target.title, target.kind, target.who, kill.stages,
            self._since(kill.written_at), self._since(kill.empty_at), tuple(why), kill.stuck,
        )  # fmt: skip

    def _since(self, at: float | None) -> float | None:
        return None if at is None else round(at - self.crossed_at, 6)

    def report(self) -> dict[str, Any]:
        """Return everything as plain JSON: `killed`, `refused`, and `written_s` and `empty_s` of
        the whole operation."""
        killed = self.killed
        written = [outcome.written_s for outcome in killed if outcome.written_s is not None]
        empty = [outcome.empty_s for outcome in killed]
        known = [at for at in empty if at is not None]
        return {
            "killed": [outcome.to_json() for outcome in killed],
            "refused": list(self.refused),
            "written_s": min(written, default=None),
            "empty_s": max(known) if known and len(known) == len(empty) else None,
        }

    def close(self) -> None:
        """Close the requests that have no answer."""
        for kill in self._containers:
            for request in kill.requests.values():
                request.close()


class Killer:
    """Kills targets; see the module. `engine` is the path of a socket (with or without unix://),
    `helper` that of the root helper's socket. `close()` ends the child that frees memory."""

    def __init__(
        self,
        run_id: str,
        deny: Deny,
        *,
        engine: str = "",
        helper: str = HELPER,
        clock: Callable[[], float] = time.monotonic,
        release: bool = True,
    ) -> None:
        self.run_id = run_id
        self.deny = deny
        self.trees = cgroup.hierarchies()
        self.reaper = Reaper() if release else None
        self._engine, self._helper, self._clock = socket_of(engine), helper, clock

    def kill(self, targets: Iterable[Target], crossed_at: float | None = None) -> KillOperation:
        """Send the first kill to every target. Denied ones are left alone and named in
        `refused`."""
        crossed = self._clock() if crossed_at is None else crossed_at
        kills: list[TargetKill] = []
        refused = []
        inside: dict[str, int] | None = None
        with at_once():
            for target in sorted(targets, key=lambda candidate: candidate.pending):
                if target.pending:  # /proc is listed once, after the other targets were killed
                    inside = cgroup.processes() if inside is None else inside
                    target = refreshed(target, self.trees, inside=inside)
                why = refusal(target, self.deny, self.trees)
                if why:
                    refused.append(f"{target.title} is spared: {why}")
                    continue
                kill = self._kill_of(target)
                kill.begin(self._clock())
                kills.append(kill)
        strays = StrayKill(self.run_id, self.reaper, self._clock) if self.run_id else None
        return KillOperation(kills, strays, self.deny, crossed, self._clock, tuple(refused))

    def _kill_of(self, target: Target) -> ContainerKill | ProcessKill:
        if target.container:
            helper = self._helper if helper_is_there(self._helper) else ""
            return ContainerKill(target, self.reaper, self._clock, self.trees, self._engine, helper)
        return ProcessKill(target, self.reaper, self._clock)

    def rehearse(self) -> tuple[str, ...]:
        """Run the whole kill path on a child made for it and on a container that does not exist,
        which takes some 60 ms. Returns in words what does not work here."""
        words = []
        argv = [sys.executable, "-S", "-E", "-c", "import time; time.sleep(60)"]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True) as child:
            start = process.start_time(child.pid) or 0
            targets = (
                Target("process", "rehearsal", pid=child.pid, start=start),
                Target("container", "rehearsal", "0" * 64),
            )
            rehearsal = copy.copy(self)
            rehearsal.run_id, rehearsal._engine = "", "/nowhere"
            operation = rehearsal.kill(targets)
            operation.advance()
            operation.report()
            operation.close()
            words += self._rehearse_reaper(child.pid)
            if child.poll() is None:
                child.kill()
            if child.wait() != -signal.SIGKILL:
                words.append("a signal did not end the rehearsal's own child")
        return tuple(words)

    def _rehearse_reaper(self, pid: int) -> list[str]:
        """Wait for the child to start, which takes longer than a kill would wait. Returns what is
        wrong, in words."""
        if self.reaper is None or self.reaper.why:
            return [self.reaper.why] if self.reaper is not None else []
        descriptor = os.pidfd_open(pid)  # the child is not reaped yet, so the pid is still its own
        try:
            answered = self.reaper.kill([descriptor], wait_s=REHEARSAL_S)
        finally:
            os.close(descriptor)
        return [] if answered else ["the child for process_mrelease does not answer"]

    def close(self) -> None:
        if self.reaper is not None:
            self.reaper.close()


def _all_live(kills: Sequence[ProcessKill]) -> bool:
    return all(kill.lives for kill in kills)
