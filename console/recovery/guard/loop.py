"""The sentinel's main loop, from its first tick to its last. Clock and waiting are passed in."""

from __future__ import annotations

import gc
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.files import hold, was_deleted
from console.common.text import one_line
from console.host import process
from console.recovery.guard import config as guard_config
from console.recovery.guard.breach import (
    BreachHandler,
    BreachRecord,
    RecorderFeed,
    allocation_record,
    held,
    lease_record,
    reap,
    record_of,
)
from console.recovery.guard.config import CONFIG_FILE, GuardConfig, Inbox, defaults
from console.recovery.guard.decide.policy import POLL_S, Breach, Decision, Lease, Policy
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import LiveTargets, deny_of
from console.recovery.guard.observe.collect import Collector, rest_s
from console.recovery.guard.observe.memory import MemoryCollector
from console.recovery.guard.observe.quick import gap_s
from console.recovery.guard.observe.snapshot import Snapshot
from console.recovery.guard.record import status
from console.recovery.guard.record.recorder import Recorder
from console.recovery.rollback import records, trigger

SECOND_S = 1.0
COLLECT_S = 60.0
ADVISED_S = 5.0
"""A rollback repeats the advisory message every second; after this time without it the guard may
kill."""
LEFT_S = 60.0
"""The sentinel ends once runner, standby and all else of the run have been gone for this long."""
Wait = Callable[[list[int], float], bool]
"""Waits this many seconds at most until a descriptor can be read. Returns whether one can."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything that a sentinel works with. `spawn` starts `omni-console rollback` for a guard
    config and returns whether that worked."""

    inbox: Inbox
    collector: Collector
    ring: Recorder
    killer: Killer
    alive: LiveTargets
    clock: Clock
    spawn: Callable[[GuardConfig], bool]


def poll(descriptors: list[int], seconds: float) -> bool:
    """Wait with select(2); see `Wait`."""
    return bool(select.select(descriptors, [], [], max(0.0, seconds))[0])


def policy_of(config: GuardConfig, machine: MemoryCollector, now: float) -> Policy:
    """Return the policy for a guard config on this machine. Raises OSError if memory cannot be
    read, and ValueError for an invalid limit."""
    memory = machine.read(now)
    if memory is None:
        raise OSError(machine.why)
    machine_defaults = defaults(memory.total, memory.swap_total, machine.bound.least)
    return Policy(config.limits, machine_defaults, config.envelope, config.gpus)


def limits_of(policy: Policy, config: GuardConfig) -> list[dict[str, Any]]:
    """Return all limits, defaults first, for the status page."""
    return [limit.to_json() for limit in (*policy.defaults.limits, *config.limits)]


def carry_over(policy: Policy, before: Policy, snapshot: Snapshot) -> Policy:
    """Give a new policy the state of the one before it."""
    policy.advisory(before.advised)
    if before.armed:
        policy.metrics.grown_from = before.metrics.grown_from
        if policy.forecast.envelope == before.forecast.envelope:
            policy.resume(before.base)
        policy.arm(snapshot)
        policy.breach = before.breach
    return policy


def standby_gone(directory: Path) -> bool:
    """Return whether no standby waits. One that waits is asked to quit, and does so if no runner
    lives and the baseline serves."""
    if not trigger.is_standing_by(directory):
        return True
    trigger.trigger(directory, trigger.LEAVE)
    return False


def is_lost(holder: tuple[int, int]) -> bool:
    """Return whether Slurm has given a run's cards to somebody else, or is about to: whoever holds
    them has ended, or was stopped. Never for a run that needs no allocation."""
    pid, start = holder
    return pid != 0 and (not process.alive(pid, start) or trigger.is_stopped(pid))


class GuardLoop:
    """The work of one sentinel. `run` returns when it is over."""

    def __init__(self, config: GuardConfig, deps: Dependencies, wait: Wait = poll) -> None:
        """Raises ValueError for invalid limits, and OSError if memory cannot be read."""
        self.config = config
        self.protections: dict[str, Any] = {"protections": {}, "missing": []}
        """What the sentinel got, for the status page; see `console.recovery.guard.daemon`."""
        self.over = False
        self._deps, self._wait = deps, wait
        self._clock = deps.clock
        self._policy = policy_of(config, deps.collector.machine, deps.clock.monotonic())
        self._policy.resume(deps.ring.last.get("base"))
        self._limits = limits_of(self._policy, self.config)
        self._lease = Lease(config.lease_s)
        self._feed = RecorderFeed(deps.ring, deps.clock)
        self._handler: BreachHandler | None = None
        self._known_targets: set[str | tuple[int, int]] = set()
        self._error, self._wait_s = "", 0.0
        self._asked_to_arm = self._outage = False
        self._second_at = self._advised_at = float("-inf")
        self._collect_at = self._left_at = self._clock.monotonic()
        self._place = hold(config.rollback_dir)

    def run(self) -> None:
        """Run until the sentinel is over. A missed tick is not repeated."""
        due = self._clock.monotonic()
        while not self.over:
            self._run_safely(self.tick)
            due = max(due + self._wait_s, self._clock.monotonic())
            while (left := due - self._clock.monotonic()) > 0 and not self.over:
                if not self._run_safely(self._wait_for_messages, left):
                    self._clock.sleep(min(left, POLL_S))

    def _wait_for_messages(self, seconds: float) -> None:
        if self._wait([self._deps.inbox.descriptor, *self._deps.collector.descriptors()], seconds):
            self._listen()

    def _run_safely(self, act: Callable[..., None], *given: float) -> bool:
        """Run one action and record its exception, because a guard goes on after an error; viewers
        see that its status page grows old. Returns whether the action succeeded."""
        try:
            act(*given)
        except Exception as error:
            self._wait_s = POLL_S
            words = one_line(f"{type(error).__name__}: {error}")
            if words != self._error:
                self._error = words
                self._deps.ring.event("error", words)
            return False
        return True

    def rehearse(self) -> None:
        """Run every ordinary code path once, so that its pages are in memory before the lock."""
        self._reread()
        self._listen()
        self.tick()

    def tick(self) -> None:
        """Take a snapshot, decide, record it, and kill if the decision says so."""
        deps, now = self._deps, self._clock.monotonic()
        if deps.alive.tick(now):
            self._targets_changed()
        if now - self._second_at >= SECOND_S:
            self._every_second(now)
        memory = deps.collector.memory()
        deps.collector.quick.tick(memory.at if memory is not None else now)
        self._decide(deps.collector.snapshot(memory))

    def _decide(self, snapshot: Snapshot) -> None:
        self._arm(snapshot)
        decision = self._policy.decide(snapshot)
        rest = rest_s(self._policy, snapshot.memory, decision)
        self._wait_s = self._deps.collector.quick.wait_s(rest)
        if decision.fresh and decision.breach is not None:
            self._kill(decision.breach, snapshot)
        self._feed.record(
            snapshot, decision, self._policy.metrics,
            lambda: self._status_page(snapshot, decision),
        )  # fmt: skip
        if self._handler is not None and not self._handler.over:
            self._handler.advance()

    def _status_page(self, snapshot: Snapshot, decision: Decision) -> dict[str, Any]:
        copied = self._deps.collector.slow_io.copied_at
        left = None if self._policy.advised else self._lease.left(snapshot.at)
        return status.status(
            snapshot, decision,
            countdown=self._policy.metrics.countdown,
            lease=(left, self._lease.is_attended(snapshot.at)),
            more={
                **self.protections,
                "advisory": self._policy.advised, "armed": self._policy.armed,
                "acted": self._handler is not None, "outage": self._outage,
                "own": self._feed.own, "base": self._policy.base,
                "targets": [target.title for target in self._deps.alive.targets],
                "spared": [*self._deps.alive.refused, *self._deps.collector.slow_io.uncounted],
                "trouble": list(self._deps.collector.slow_io.troubles),
                "copied_s": None if copied is None else status.age(snapshot.at, copied),
                "limits": self._limits,
            },
        )  # fmt: skip

    def _every_second(self, now: float) -> None:
        deps, self._second_at = self._deps, now
        deps.collector.tend()
        reap(deps.killer, deps.ring.event)
        if deps.alive.grew():
            self._reread()
        elif deps.alive.second(now):
            self._targets_changed()
        deps.collector.second()
        if self._policy.advised and now - self._advised_at > ADVISED_S:
            self._policy.advisory(False)
            deps.ring.event("acting", "no rollback reports any more that it is under way")
        if self._lease.expired(now) and not (self._policy.advised or self._handler):
            self._begin(record := lease_record(self.config.lease_s, now, self._clock.now()))
            deps.ring.event("lease", one_line(record.reason))
        at_stake = process.alive(*self.config.runner) or deps.alive.any or self._outage
        if at_stake and is_lost(self.config.holder) and not (self._policy.advised or self._handler):
            self._begin(record := allocation_record(now, self._clock.now()))
            deps.ring.event("allocation", one_line(record.reason))
        self._feed.second(deps.collector.snapshot())
        if now - self._collect_at >= COLLECT_S:
            self._collect_at = now
            gc.collect()  # objects from the start are frozen, so that few are left to visit
        self._maybe_end(now)

    def _maybe_end(self, now: float) -> None:
        """End the sentinel once nothing has needed it for LEFT_S: no runner, nothing alive, no
        lease that counts down, no breach under way and no standby."""
        deps, runner = self._deps, self.config.runner
        counting = self._lease.left(now) is not None and not self._handler
        busy = self._handler is not None and not self._handler.over
        gone = was_deleted(self._place)
        if process.alive(*runner) or (counting and not (gone and self._is_over())):
            self._left_at = now
        elif gone:
            # Nothing that it writes is read any more, and no rollback of this run can be asked for.
            if now - self._left_at >= LEFT_S:
                self._end("the run's directory was deleted")
        elif deps.alive.any or busy:
            self._left_at = now
        elif now - self._left_at >= LEFT_S and standby_gone(self.config.rollback_dir):
            self._end("nothing is left to watch")

    def _is_over(self) -> bool:
        """Whether this user's pointer names this run no more, or says that it is over."""
        on = records.read(os.getuid())
        return on is None or on.run_id != self.config.run_id or on.over

    def _end(self, words: str) -> None:
        self._deps.ring.event("end", words)
        self.over = True

    def _reread(self) -> None:
        """Read the records of what is alive again."""
        alive, killer = self._deps.alive, self._deps.killer
        killer.deny = alive.read(lambda all: deny_of(self.config, all), self._clock.monotonic())
        self._targets_changed()

    def _targets_changed(self) -> None:
        deps = self._deps
        deps.collector.tell(self.config, deps.ring.path, deps.alive.targets)
        deps.collector.second()

    def _arm(self, snapshot: Snapshot) -> None:
        """Arm the policy when something new of the run comes alive. Each arming allows one kill.
        After a kill, the next arming needs a request by the runner, and the breach to be over."""
        alive = self._deps.alive
        if not alive.armed(snapshot.at):
            killing = self._policy.breach and self._handler and not self._handler.over
            if not killing and self._policy.disarm():
                self._deps.ring.event("disarmed", "nothing of the run is alive")
            self._known_targets.clear()
            self._asked_to_arm = False
            return
        now = {target.container or (target.pid, target.start) for target in alive.targets}
        before = self._handler
        if now <= self._known_targets or (before and not (self._asked_to_arm and before.over)):
            return
        self._known_targets = now
        self._handler, self._asked_to_arm = None, False
        self._policy.arm(snapshot)
        self._deps.ring.event(
            "armed", one_line(", ".join(target.title for target in alive.targets))
        )

    def _kill(self, breach: Breach, snapshot: Snapshot) -> None:
        """Send the first kill signals. Before that, only record what is about to happen, in some
        50 µs and without a disk: after the kill nothing tells what the targets held."""
        deps, wall = self._deps, self._clock.now()
        record = record_of(breach, wall)
        handler = self._begin(record)
        try:
            deps.ring.event("breach", one_line(record.reason))
            record.held = held(
                deps.alive.targets, snapshot.loads, snapshot.at, deps.collector.quick.held
            )
        finally:
            handler.kill(deps.killer, deps.alive.targets)
        more = deps.collector.quick.points(breach.limit, breach.of)
        record.data["curve"] = self._feed.curves.of(breach, self._policy.metrics, more, wall)
        record.data["gap_s"] = round(gap_s(more, breach), 4)

    def _begin(self, record: BreachRecord) -> BreachHandler:
        self._asked_to_arm = False
        self._handler = BreachHandler(
            self.config, record, self._feed.window, self._clock, self._deps.ring.event,
            lambda: self._deps.spawn(self.config),
        )  # fmt: skip
        return self._handler

    def _listen(self) -> None:
        self._deps.collector.tend()
        for message in self._deps.inbox.read():
            self._handle_message(message)

    def _handle_message(self, message: dict[str, Any]) -> None:
        now, word, on = self._clock.monotonic(), message["do"], message.get("on") is True
        if word == "beat":  # the only message that no decision depends on
            self._deps.collector.beat_at = now
            return
        if word == "arm":
            # what starts while a rollback is being triggered is ended by that rollback
            self._asked_to_arm = self._handler is None or self._handler.over
            self._reread()
        elif word == "sheet":
            self._take_config()
        elif word == "advisory":
            self._advised_at = now
            self._policy.advisory(on)
        elif word == "outage":
            self._outage = on
            self._lease.outage(on, now)
        elif word == "attended":
            self._lease.attended(now)
        elif word == "quit":
            self._end("the run is over")

    def _take_config(self) -> None:
        """Take a new guard config. An unusable one is recorded and the current one kept."""
        try:
            fresh = guard_config.read(self.config.directory / CONFIG_FILE)
            if fresh.run_id != self.config.run_id:
                raise ValueError("the configuration belongs to another run")
            same = (fresh.limits, fresh.envelope, fresh.gpus) == (
                self.config.limits, self.config.envelope, self.config.gpus,
            )  # fmt: skip
            policy = self._policy
            if not same:
                made = policy_of(fresh, self._deps.collector.machine, self._clock.monotonic())
                policy = carry_over(made, self._policy, self._deps.collector.snapshot())
        except (OSError, ValueError) as error:
            self._deps.ring.event("refused", one_line(f"a new configuration: {error}"))
            return
        self.config, self._policy = fresh, policy
        self._limits = limits_of(self._policy, self.config)
        self._lease.length_s = max(0.0, fresh.lease_s)
        self._reread()
