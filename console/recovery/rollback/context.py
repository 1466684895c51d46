"""What the stages of one rollback share: plan, clock, report, engine, and what was stopped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from console.common.clock import Clock
from console.common.errors import ConsoleError, EngineError, ServiceError
from console.common.text import decode, ending
from console.common.units import format_duration
from console.host import children, process, units
from console.host.licence import OF_SITE, Licence, Reason, stop_group
from console.host.memory import Resident
from console.host.process import BASELINE_COOKIE
from console.recovery.rollback import live as livelog
from console.recovery.rollback import records, sealed_plan
from console.recovery.rollback.live import Live
from console.recovery.rollback.progress import AGAIN, BY_HAND, Report, StageName
from console.recovery.rollback.records import CutOver
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runtime.answers.completion import Completion
from console.runtime.engine_api import EngineDenied, RawEngine, compose_is_missing, is_installed

COMMAND_S = 15.0
"""Deadline of one call of the docker command, seconds."""
HUNG_COMMAND_S = 5.0
"""The same, once one has not ended in time: the engine behind it does not answer."""
ENGINE_WAIT_S = 120.0
"""Seconds for which an engine that does not answer is asked again in a whole rollback, since it
usually comes back; rollback.sh has the same."""
DENIED_S = 6.0
"""Seconds for which an engine whose socket this user may not open is asked again."""
Ended = tuple[int, int] | str
"""What has ended: (pid, start time) of the process that led it, or the id of its container."""
MISSING = "no engine is installed on this machine"
SLICE_S = 0.2
FAILED: dict[StageName, str] = {
    "stop": "not stopped", "start": "not started", "ready": "not ready", "completion": "not proven",
}  # fmt: skip
"""What it means that a stage has failed, where its details do not say it: stages are the console's
own matter."""
"""Seconds that one wait for a thread lasts at most; see `join_all`."""


@dataclass
class RollbackContext:
    """One rollback in progress."""

    plan: SealedPlan
    clock: Clock
    report: Report
    engine: RawEngine | None
    oom_score: int | None = None
    """The OOM score for processes started here; None when this process is not protected."""
    engine_away: bool = False
    """The stop stage has given up on the engine: later calls to it must not delay the baseline."""
    engine_gives_up_at: float | None = None
    """Until when an engine that does not answer is asked again; None while it answers."""
    command_hung: bool = False
    """A docker command has not ended in time."""
    denied_since: float | None = None
    """Since when the engine has refused this user without a break; None while it has not."""
    no_grace: bool = False
    """RAM is nearly full: candidates are killed without a grace period."""
    ended: set[Ended] = field(default_factory=set)
    """The candidates, runners and steps that have ended: each counts once, whoever ends what part
    of it, and however often."""
    containers: list[str] = field(default_factory=list)
    """Ids of the containers that were told to stop."""
    groups: list[tuple[int, int]] = field(default_factory=list)
    """(pid, start time) of the process groups that were told to stop."""
    failures: list[tuple[StageName, str]] = field(default_factory=list)
    held: int = 0
    """Bytes of unshared RAM held by what was told to stop."""
    available: int | None = None
    """Bytes of RAM that were available before anything was told to stop; None if unknown."""

    answer: Completion | None = None
    """What the baseline last said to a proof; None while it was not asked."""

    manual: Callable[[], tuple[str, ...]] = tuple
    """Returns the commands to type by hand; none once they have been reported."""

    reported: set[tuple[str, str]] = field(default_factory=set)
    """What was said of an engine that is away, by stage."""

    _others: dict[str, str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stopped(self) -> int:
        """How many candidates, runners and steps have ended."""
        return len(self.ended)

    def count_ended(self, who: Iterable[Ended]) -> None:
        """Count what has ended; stages call this from several threads."""
        with self._lock:
            self.ended.update(who)

    def count_held(self, holding: Resident) -> None:
        """Add the RAM of what was told to stop; stages call this from several threads."""
        with self._lock:
            self.held += holding.own

    @property
    def grace_s(self) -> float:
        """Seconds that a candidate gets to end before it is killed."""
        return 0.0 if self.no_grace else self.plan.grace_s

    @property
    def uses_engine(self) -> bool:
        """Whether this plan may involve containers."""
        address = self.plan.engine
        return bool(address.socket or address.docker_host) or self.plan.baseline.kind == "container"

    @property
    def live(self) -> list[Live]:
        """What the run recorded as alive. It is read anew each time: a start may be under way."""
        return livelog.read(self.plan.rollback_dir / livelog.LIVE)

    @property
    def stop_failed(self) -> bool:
        """Whether something that should have stopped may still run."""
        return self.engine_away or any(stage == "stop" for stage, _ in self.failures)

    def fail(self, stage: StageName, detail: str) -> None:
        """Record and report a failure. It raises nothing: every stage goes on after an error."""
        lead = FAILED.get(stage, "")
        has_lead = not lead or detail.startswith(lead)
        self.failures.append((stage, detail if has_lead else f"{lead}: {detail}"))
        self.report.failed(stage, detail)

    def engine_answers(self) -> None:
        """Forget that the engine did not answer: where it is away again, it is waited for again."""
        self.engine_away, self.command_hung = False, False
        self.engine_gives_up_at = self.denied_since = None

    def engine_left_s(self) -> float:
        """For how many seconds an engine that does not answer is still asked again: there is one
        deadline for all stages, from the first time on that it did not."""
        now = self.clock.monotonic()
        if self.engine_gives_up_at is None:
            self.engine_gives_up_at = now + ENGINE_WAIT_S
        return max(0.0, self.engine_gives_up_at - now)

    def report_engine_away(self, stage: StageName, error: EngineError, limit_s: float) -> bool:
        """Report that the engine does not answer and for how long it is asked again, each fact
        once. The first time, also report the commands for an operator who does not want to wait.
        Return False once the engine has refused this user for DENIED_S without a break, which does
        not pass."""
        hint = f"; {error.hint}" if error.hint else ""
        denied, now = isinstance(error, EngineDenied), self.clock.monotonic()
        if not denied:
            self.denied_since = None
        elif self.denied_since is None:
            self.denied_since = now
        limit = format_duration(min(limit_s, DENIED_S) if denied else limit_s)
        fact = (stage, str(error))
        if fact not in self.reported:
            self.reported.add(fact)
            self.report.note(stage, f"{error}; {AGAIN} {limit}{hint}")
        for command in self.manual():
            self.report.note(stage, f"{BY_HAND}{command}")
        self.manual = tuple
        return self.denied_since is None or now - self.denied_since < DENIED_S

    @staticmethod
    def engine_is_missing(engine: RawEngine | None) -> bool:
        """Whether there is neither the engine's socket nor any engine's program: one that is away
        comes back, and this one never will."""
        return engine is not None and not os.path.exists(engine.path) and not is_installed()

    @property
    def mark(self) -> str:
        """The mark that a baseline process has in its environment; "" for any other."""
        base = self.plan.baseline
        spec = base.process
        return process.mark(self.plan.records_dir, base.name, spec)[1] if spec is not None else ""

    def marked(self) -> set[int]:
        """The pids of every process that has the baseline's mark; none where it has no mark, since
        every console's baselines would have that."""
        mark = self.mark
        return {pid for pid, _ in process.by_cookie(BASELINE_COOKIE, mark)} if mark else set()

    def baseline_process(self) -> tuple[int, int] | None:
        """(pid, start time) of the baseline's process if it runs, found by its record or mark."""
        base = self.plan.baseline
        if base.process is None:
            return None
        return process.known(
            self.plan.records_dir, base.name, base.process, BASELINE_COOKIE, repair=True
        )

    def unit_pids(self) -> set[int]:
        """The pids of a baseline that is a unit, as far as its systemd tells them."""
        if self.plan.baseline.unit is not None:
            with contextlib.suppress(ServiceError):
                return units.pids(units.look(self.plan.baseline.unit))
        return set()

    def members(self, pid: int, start: int) -> list[process.Stat]:
        """The live members of a group that the run started; the run's cookie identifies them once
        its leader has ended."""
        return process.members(pid, start, cookie=self.plan.run_id)

    def licence(self, reason: Reason) -> Licence:
        """The licence to end something of this run, or of this site if no run has sealed the plan;
        of a baseline, always of the site whose records name it."""
        plan = self.plan
        site = plan.records_dir.name if reason is Reason.BASELINE else plan.site_name
        subject = site if reason in OF_SITE or not plan.run_id else plan.run_id
        return Licence(reason, subject, plan.records_dir, plan.owner)

    def stop_group(self, licence: Licence, pid: int, start: int, grace_s: float) -> bool:
        """End a group that the run started. Raises ServiceError, as `licence.stop_group` does."""
        return stop_group(
            licence, pid, start, grace_s=grace_s, clock=self.clock, cookie=self.plan.run_id
        )

    def spared(self) -> set[int]:
        """Pids that nothing may signal: this process, its ancestors, standby, sentinel, baseline.

        Processes of an unknown kind are spared as well: what cannot be identified is not killed.
        """
        keep = process.ancestry(os.getpid())
        for entry in self.live:
            mine = entry.kind in livelog.STOPPABLE and entry.name != self.plan.baseline.name
            if entry.pid and not mine:
                keep |= {s.pid for s in self.members(entry.pid, entry.start)}
        keep |= self.unit_pids()
        for entry in self.serving_elsewhere().values():
            keep |= {s.pid for s in process.members(entry.pid, entry.start)} if entry.pid else set()
        running = self.baseline_process()
        if running is not None:
            own = process.members(*running, cookie=BASELINE_COOKIE, step=self.mark)
            keep |= {running[0]} | {s.pid for s in own}
        return keep

    def is_kept(self, container: str) -> bool:
        """Whether a container, given by name or id, is the baseline's or a protected one.

        Never pass the name of a service: it may equal the name of an unrelated container.
        """
        base = self.plan.baseline
        return container in {base.container_name, base.container_id, *self.plan.protected} - {""}

    def others(self) -> dict[str, str]:
        """The containers that the newest plans of other sites restore, with their sites: a promoted
        candidate has its labels still. Looked up once."""
        if self._others is None:
            plans = []
            for path in sealed_plan.copies():
                with contextlib.suppress(ConsoleError):
                    plans.append(sealed_plan.read(path))
            self._others = {
                plan.baseline.container_id: plan.site_name for plan in plans
                if plan.baseline.container_id and plan.site_name != self.plan.site_name
            }  # fmt: skip
        return self._others

    @cached_property
    def elsewhere(self) -> list[CutOver]:
        """The cutovers in force at other addresses than this baseline's. What serves there is left
        alone: whoever ends it owes these clients their own baseline, which this plan has not."""
        return records.cut_overs(besides=self.plan.baseline.url)

    def serving_elsewhere(self) -> dict[str, Live]:
        """What serves clients by those cutovers: relays, candidates and what else their runs have
        started, by the id of the container, or for a process by pid and start time."""
        lines = (livelog.read(cut.plan.rollback_dir / livelog.LIVE) for cut in self.elsewhere)
        services = (e for entries in lines for e in entries if e.kind in ("process", "container"))
        return {e.container or f"{e.pid} {e.start}": e for e in services}

    def may_stay(self, service: str) -> bool:
        """Whether a service may stay up: it has `keep: true`, and this is not an emergency."""
        return service in self.plan.keep and not self.report.trigger.emergency

    def docker_environment(self) -> dict[str, str]:
        """Environment of the docker command: the allow-listed variables and the sealed address."""
        address = self.plan.engine
        extra = [("DOCKER_HOST", address.docker_host), ("DOCKER_CONFIG", address.docker_config)]
        extra = [(key, value) for key, value in extra if value]
        return process.environment([*extra, *self.plan.baseline.compose_env], "rollback")

    def command(self, argv: list[str], timeout_s: float = COMMAND_S) -> str:
        """Run a command and return its output. Raises EngineError with the end of the output."""
        timeout_s = min(timeout_s, HUNG_COMMAND_S) if self.command_hung else timeout_s
        try:
            code, out, _ = children.run(argv, timeout_s, env=self.docker_environment(), merge=True)
        except subprocess.TimeoutExpired:
            self.command_hung = argv[:1] == ["docker"]
            raise EngineError(f"{argv[0]} {argv[1]} did not end in time") from None
        except OSError as error:
            raise EngineError(f"{argv[0]} cannot be run", error.strerror or "") from None
        text = decode(out)
        if code and (missing := compose_is_missing(text)) is not None:
            raise missing
        if code:
            raise EngineError(f"{argv[0]} {argv[1]} failed", ending(text, 300))
        return text


def engine_of(plan: SealedPlan, report: Report) -> RawEngine | None:
    """The plan's engine; None when the plan has none, or only the docker command can reach it."""
    address = plan.engine
    if not (address.socket or address.docker_host) and plan.baseline.kind != "container":
        return None
    try:
        return RawEngine(address.socket or address.docker_host)
    except EngineError as error:
        report.note("stop", f"{error}; using the docker command")
        return None


def run_all(tasks: list[Callable[[], None]], limit_s: float) -> bool:
    """Run all tasks at the same time, each in a thread; False if one still runs after `limit_s`."""
    return join_all([thread for task in tasks if (thread := in_thread(task)) is not None], limit_s)


def join_all(threads: list[threading.Thread], limit_s: float) -> bool:
    """Wait for all threads; False if one still runs after `limit_s` seconds.

    The wait is cut into slices of SLICE_S, because Python handles a Ctrl-C that comes right before
    a join only after that join.
    """
    deadline = time.monotonic() + limit_s
    for thread in threads:
        while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            thread.join(min(left, SLICE_S))
    return not any(thread.is_alive() for thread in threads)


def in_thread(task: Callable[[], None]) -> threading.Thread | None:
    """Run a task in a thread and return that; if none can be started, run it here, return None."""
    thread = threading.Thread(target=task, daemon=True)
    try:
        thread.start()
    except (OSError, RuntimeError):
        task()
        return None
    return thread


def log_path(plan: SealedPlan) -> Path:
    """The log file of a baseline process."""
    if plan.baseline.log:
        return Path(plan.baseline.log)
    return plan.records_dir / f"{plan.baseline.name}.log"
