"""All readings as one `Snapshot`, and which ticks need no decision.

Memory is read at each tick; every other part is as old as its own time says.

Every sample goes into the forecast and the pressure. While each value stays on the right side of
every limit on it, no message has come and no deadline has passed, a new decision would be the same
as the last one, so `IdleSkip` skips it. A sample that leaves this band is decided on at once, so
that nothing is found later than without the skip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.common.clock import Clock
from console.recovery.guard.config import GuardConfig
from console.recovery.guard.decide.policy import NEAR_S, POLL_S, Decision, Policy
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.cards import GpuCollector
from console.recovery.guard.observe.memory import MemoryCollector
from console.recovery.guard.observe.quick import Quick
from console.recovery.guard.observe.service_memory import ServiceMemoryCollector
from console.recovery.guard.observe.slow_io import SlowIo
from console.recovery.guard.observe.snapshot import FASTEST, Load, Memory, Snapshot, Swap

LONGEST_S = 1.0
"""A decision is made at least this often."""
REST_POLL_S = 0.25
REST_TTE_S = 3 * NEAR_S
REST_PRESSURE = 1.0
"""Per cent of the time that some tasks wait for memory. From here on, memory is read as often as
under a load."""


@dataclass(frozen=True, slots=True)
class Band:
    """The range in which values may move without a new decision. `least` and `most` bound the RAM
    available, in bytes. `tte_s` (seconds until RAM is full) and `bound` (bytes left to the control
    group) are lower bounds; `some` and `full` (per cent of pressure) are upper bounds. `until` is
    the first deadline, monotonic."""

    least: float
    most: float
    tte_s: float
    some: float
    full: float
    bound: float
    until: float


class IdleSkip:
    """Decides which ticks need no decision. Every message and every level but ok ends the skipping.
    `wait_s` is the time to the next reading."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._band = Band(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._swap = self._total = 0
        self._has_full = True
        self.wait_s = POLL_S

    def forget(self) -> None:
        self._policy = None

    def decided(self, policy: Policy, memory: Memory | None, decision: Decision) -> None:
        """Take note of a decision and of the memory that it was made from."""
        if memory is None or decision.level != "ok" or decision.wait_s < POLL_S:
            self.forget()
            self.wait_s = decision.wait_s
            return
        self._policy, self._band = policy, band(policy, memory.at)
        self._swap, self._total = memory.swap_used, memory.total
        self._has_full = policy.metrics.full.share is not None
        self.wait_s = rest_s(policy, memory)

    def holds(self, memory: Memory | None) -> bool:
        """Return whether the last decision also holds for this sample of memory. The sample is fed
        to the forecast and the pressure in any case."""
        policy, band = self._policy, self._band
        if policy is None or memory is None:
            return False
        metrics = policy.metrics
        metrics.feed(memory)
        tte_s, some, full = policy.forecast.tte_s, metrics.some.share, metrics.full.share
        return (
            memory.at < band.until
            and band.least <= memory.available <= band.most
            and tte_s is not None
            and tte_s >= band.tte_s
            and (some is None or some <= band.some)
            and (full is not None) == self._has_full
            and (full is None or full <= band.full)
            and (memory.bound is None or memory.bound >= band.bound)
            and memory.swap_used == self._swap
            and memory.total == self._total
        )


def rest_s(policy: Policy, memory: Memory) -> float:
    """Return how many seconds the next reading may wait, since nothing urgent can come before."""
    tte_s, some = policy.forecast.tte_s, policy.metrics.some.share
    if tte_s is None or tte_s < REST_TTE_S or (some or 0.0) >= REST_PRESSURE:
        return POLL_S
    return max(POLL_S, min(REST_POLL_S, policy.room(memory) / FASTEST))


def band(policy: Policy, now: float) -> Band:
    """Return the band around values for which the decision at `now` was ok."""
    least, most, bound = 2 * policy.highest, math.inf, 2 * policy.bound_floor
    tte_s, some, full = NEAR_S, math.inf, math.inf
    for limit in (state.limit for state in policy.fast):
        below = -math.inf if limit.below is None else limit.below
        above = math.inf if limit.above is None else limit.above
        if limit.metric == "host.ram_available":
            least, most = max(least, below), min(most, above)
        elif limit.metric == "host.bound_left":
            bound = max(bound, below)
        elif limit.metric == "host.time_to_full":
            tte_s = max(tte_s, below) if limit.above is None else math.inf
        elif limit.metric == "host.pressure_some":
            some = min(some, above) if limit.below is None else -1.0
        elif limit.metric == "host.pressure":
            full = min(full, above) if limit.below is None else -1.0
    until = min([now + LONGEST_S, *(state.due(now) for state in policy.states)])
    return Band(least, most, tte_s, some, full, bound, until)


ENDING_S = 3.0
"""How long the last copy of the recorder to disk may take."""


class Collector:
    """The samplers and child processes of one sentinel. Call `second` once a second, and `memory`
    or `snapshot` at every tick.

    `gpu_argv` and `slow_io_argv` replace the command lines of the child processes in tests.
    """

    def __init__(
        self, clock: Clock, *, root: Path = Path("/"),
        gpu_argv: Sequence[str] = (), slow_io_argv: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._clock = clock
        self._gpu_argv = gpu_argv
        self.machine = MemoryCollector(root)
        self._services = ServiceMemoryCollector(root)
        self.slow_io = SlowIo(clock, slow_io_argv)
        self.quick = Quick()
        self.cards: GpuCollector | None = None
        self.beat_at: float | None = None
        self._swap: Swap | None = None
        self._groups: tuple[Load, ...] = ()
        self._prepare_child: Callable[[int], None] = lambda pid: None

    def prepare_child(self, how: Callable[[int], None]) -> None:
        """Set what is done to each child process that starts from now on."""
        self._prepare_child = self.slow_io.child.prepare = how
        if self.cards is not None:
            self.cards.child.prepare = how

    def tell(self, config: GuardConfig, ring: Path, targets: Sequence[Target]) -> None:
        """Take the current guard config and targets."""
        if self.cards is None and (config.gpus or any("gpu." in x.metric for x in config.limits)):
            self.cards = GpuCollector(self._clock, self._gpu_argv)
            self.cards.child.prepare = self._prepare_child
        # the runner's children share the limits on this process's control group; containers do not
        self.machine.bound.inside = any(one.pid for one in targets)
        self._services.watch(targets)
        self.quick.watch(config.limits, targets, self._services.groups)
        self.slow_io.tell(config, ring, targets)

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll beside the inbox."""
        children = [self.slow_io.child, *([self.cards.child] if self.cards else [])]
        return [one.descriptor for one in children if one.descriptor >= 0]

    def tend(self) -> bool:
        """Read what the child processes wrote and restart dead ones. Returns whether any wrote."""
        heard = self.slow_io.tend()
        if heard:
            for group in self.slow_io.members():
                self.quick.update(*group)
        return (self.cards is not None and self.cards.tend()) or heard

    def second(self) -> None:
        """Read swap traffic and control groups."""
        now = self._clock.monotonic()
        self._swap = self._services.swap(now)
        self._groups = self._services.loads(now)

    def memory(self) -> Memory | None:
        """Read RAM, swap and pressure now."""
        return self.machine.read(self._clock.monotonic())

    def snapshot(self, memory: Memory | None = None) -> Snapshot:
        """Return a snapshot with this sample of memory, or with one that is read now. The
        snapshot's time is that of the sample."""
        memory = memory or self.memory()
        at = memory.at if memory is not None else self._clock.monotonic()
        cards = self.cards
        return Snapshot(
            at, memory, self._swap, cards.cards if cards else (), cards.trouble if cards else "",
            self.slow_io.disks, self._loads(), self.slow_io.hits,
            self.beat_at, self.machine.why,
        )  # fmt: skip

    def _loads(self) -> tuple[Load, ...]:
        """Return the loads as read in the last second. A load over its limit is returned as read at
        this tick, even if the last second did not know it yet."""
        loads, now = (*self._groups, *self.slow_io.loads()), self.quick.loads
        if not now:
            return loads
        return (*(one for one in loads if (one.kind, one.name) not in now), *now.values())

    def close(self) -> None:
        """End the child processes, which copy the recorder to disk one last time."""
        self.slow_io.close(ENDING_S)
        if self.cards is not None:
            self.cards.close()
        self.quick.close()
        self._services.close()
        self.machine.close()
