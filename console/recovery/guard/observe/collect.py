"""All readings as one `Snapshot`, and how long the next one may wait.

Memory is read at each tick; every other part is as old as its own time says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from console.common.clock import Clock
from console.recovery.guard.config import GuardConfig
from console.recovery.guard.decide.policy import NEAR_S, POLL_S, Decision, Policy
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.memory import MemoryCollector
from console.recovery.guard.observe.quick import Quick
from console.recovery.guard.observe.service_memory import ServiceMemoryCollector
from console.recovery.guard.observe.slow_io import GpuCollector, SlowIo
from console.recovery.guard.observe.snapshot import FASTEST, Load, Memory, Snapshot, Swap

REST_POLL_S = 0.25
REST_TTE_S = 3 * NEAR_S
REST_PRESSURE = 1.0
"""Per cent of the time that some tasks wait for memory. From here on, memory is read as often as
under a load."""


def rest_s(policy: Policy, memory: Memory | None, decision: Decision) -> float:
    """Return how many seconds the next reading may wait: longer than the policy says, if no limit
    can be passed before it."""
    if memory is None or decision.level != "ok" or decision.wait_s < POLL_S:
        return decision.wait_s
    tte_s, some = policy.forecast.tte_s, policy.metrics.some.share
    if tte_s is None or tte_s < REST_TTE_S or (some or 0.0) >= REST_PRESSURE:
        return POLL_S
    return max(POLL_S, min(REST_POLL_S, policy.room(memory) / FASTEST))


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
        self.machine.bound.inside = any(target.pid for target in targets)
        self._services.watch(targets)
        self.quick.watch(config.limits, targets, self._services.groups)
        self.slow_io.tell(config, ring, targets)

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll beside the inbox."""
        children = [self.slow_io.child, *([self.cards.child] if self.cards else [])]
        return [child.descriptor for child in children if child.descriptor >= 0]

    def tend(self) -> None:
        """Read what the child processes wrote and restart dead ones."""
        if self.slow_io.tend():
            for group in self.slow_io.members():
                self.quick.update(*group)
        if self.cards is not None:
            self.cards.tend()

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
        return (*(load for load in loads if (load.kind, load.name) not in now), *now.values())

    def close(self) -> None:
        """End the child processes, which copy the recorder to disk one last time."""
        self.slow_io.child.close(ENDING_S)
        if self.cards is not None:
            self.cards.child.close()
        self.quick.close()
        self._services.close()
        self.machine.close()
