"""What the rungs share during one rollback: plan, clock, report, engine, what was stopped."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from console.common.clock import Clock
from console.common.errors import EngineError
from console.common.text import decode, one_line
from console.common.units import format_duration
from console.host import children, process
from console.host.process import BASELINE_COOKIE
from console.host.resident import Resident
from console.recovery.rollback import live as livelog
from console.recovery.rollback.live import Live
from console.recovery.rollback.progress import Report
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runtime.engine_api import RawEngine

COMMAND_S = 15.0
"""Deadline of one call of the docker command."""
SLICE_S = 0.2


@dataclass
class RollbackContext:
    """One rollback in progress. `stopped` is how many things were really ended."""

    plan: SealedPlan
    clock: Clock
    report: Report
    engine: RawEngine | None
    oom_score: int | None = None
    """What a started process gets back when this one is protected from the OOM killer."""
    engine_away: bool = False
    """The stop rung gave the engine up: later looks at it must not hold the baseline up."""
    hurried: bool = False
    """RAM is nearly full: candidates are killed, not asked to end."""
    stopped: int = 0
    containers: list[str] = field(default_factory=list)
    """Ids of containers that were told to stop."""
    groups: list[tuple[int, int]] = field(default_factory=list)
    """(pid, start) of process groups that were told to stop."""
    failures: list[str] = field(default_factory=list)
    held: int = 0
    """Bytes of RAM that what was told to stop held for itself."""
    available: int | None = None
    """Bytes of RAM that were available before anything was told to stop."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ended(self, count: int = 1) -> None:
        """Count something that was really ended; rungs do it from several threads."""
        with self._lock:
            self.stopped += count

    def told(self, holding: Resident) -> None:
        """Something was told to stop that held this; rungs do it from several threads."""
        with self._lock:
            self.held += holding.own

    @property
    def grace_s(self) -> float:
        """A candidate's time to end."""
        return 0.0 if self.hurried else self.plan.grace_s

    @property
    def uses_engine(self) -> bool:
        """Whether this plan may have to do with containers at all."""
        address = self.plan.engine
        return bool(address.socket or address.docker_host) or self.plan.baseline.kind == "container"

    @property
    def live(self) -> list[Live]:
        """What the run recorded as alive, read anew: a start may have been in flight."""
        return livelog.read(self.plan.rollback_dir / livelog.LIVE)

    @property
    def stop_failed(self) -> bool:
        """Whether something that was to be stopped may still run."""
        return self.engine_away or any(text.startswith("stop:") for text in self.failures)

    def fail(self, stage: str, detail: str) -> None:
        """Record a failure and go on: every rung continues past errors."""
        self.failures.append(f"{stage}: {detail}")
        self.report.failed(stage, detail)

    def baseline_process(self) -> tuple[int, int] | None:
        """(pid, start) of the baseline's process if it runs, by its record or its mark."""
        base = self.plan.baseline
        if base.process is None:
            return None
        return process.known(
            self.plan.records_dir, base.name, base.process, BASELINE_COOKIE, repair=True
        )

    def spared(self) -> set[int]:
        """Pids nobody may signal: this ladder, its ancestors, other ladders, the baseline.

        A line of an unknown kind is spared as well: what cannot be placed is not killed.
        """
        keep = process.ancestry(os.getpid())
        for entry in self.live:
            mine = entry.kind in livelog.STOPPABLE and entry.name != self.plan.baseline.name
            if entry.pid and not mine:
                keep |= {s.pid for s in process.members(entry.pid, entry.start)}
        running = self.baseline_process()
        if running is not None:
            keep |= {running[0]} | {s.pid for s in process.members(*running)}
        return keep

    def is_kept(self, container: str) -> bool:
        """Whether a container, by name or id, is the baseline's or protected. Never asked of a
        service's name: that one may be called alike and be another."""
        base = self.plan.baseline
        return container in {base.container_name, base.container_id, *self.plan.protected} - {""}

    def outlives(self, service: str) -> bool:
        """Whether a service may stay: `keep: true`, and the runner asked, not a person's alarm."""
        return service in self.plan.keep and not self.report.trigger.emergency

    def docker_environment(self) -> dict[str, str]:
        """Environment for the docker command: the allow-listed one and the sealed address."""
        address = self.plan.engine
        extra = [("DOCKER_HOST", address.docker_host), ("DOCKER_CONFIG", address.docker_config)]
        extra = [(key, value) for key, value in extra if value]
        return process.environment([*extra, *self.plan.baseline.compose_env], "rollback")

    def command(self, argv: list[str], timeout_s: float = COMMAND_S) -> str:
        """Run a command to its end; its output. Raises EngineError with its last words."""
        try:
            code, out, _ = children.run(argv, timeout_s, env=self.docker_environment(), merge=True)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{argv[0]} {argv[1]} did not end in time") from None
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be run", error.strerror or "") from None
        text = decode(out)
        if code:
            raise EngineError(f"{argv[0]} {argv[1]} failed", one_line(text[-300:]))
        return text


def away(error: EngineError, limit_s: float) -> str:
    """An engine that does not answer: how long it is waited for, and what brings it back."""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error}; asked again for up to {format_duration(limit_s)}{hint}"


def together(tasks: list[Callable[[], None]], limit_s: float) -> bool:
    """Run all at once in threads of their own; False when one is still at it after `limit_s`."""
    return joined([thread for task in tasks if (thread := beside(task)) is not None], limit_s)


def joined(threads: list[threading.Thread], limit_s: float) -> bool:
    """Wait for all of them; False when one is still at it after `limit_s`. In slices: a Ctrl-C on
    its way into a join is heard only when that join ends."""
    deadline = time.monotonic() + limit_s
    for thread in threads:
        while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            thread.join(min(left, SLICE_S))
    return not any(thread.is_alive() for thread in threads)


def beside(task: Callable[[], None]) -> threading.Thread | None:
    """Run a task in a thread; where the system gives none, here and now, and None."""
    thread = threading.Thread(target=task, daemon=True)
    try:
        thread.start()
    except (OSError, RuntimeError):
        task()
        return None
    return thread


def log_path(plan: SealedPlan) -> Path:
    """The log of a baseline process."""
    if plan.baseline.log:
        return Path(plan.baseline.log)
    return plan.records_dir / f"{plan.baseline.name}.log"
