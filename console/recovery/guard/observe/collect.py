"""Everything that is looked at, as one `Look`: memory at each tick, the rest as old as it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from console.common.clock import Clock
from console.recovery.guard.config import Sheet
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.cards import Cards
from console.recovery.guard.observe.memory import FastReader
from console.recovery.guard.observe.quick import Quick
from console.recovery.guard.observe.service_memory import SlowReader
from console.recovery.guard.observe.slow_io import Outer
from console.recovery.guard.observe.snapshot import Load, Look, Memory, Swap

ENDING_S = 3.0
"""How long the last copy of the recorder may take."""


class Watch:
    """Samplers and children of one sentinel. `tick` at every tick, `second` once a second.

    `gpu` and `outside` are the argv of the children, where a test has others.
    """

    def __init__(
        self, clock: Clock, *, root: Path = Path("/"),
        gpu: Sequence[str] = (), outside: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._clock = clock
        self._gpu_argv = gpu
        self.fast = FastReader(root)
        self._slow = SlowReader(root)
        self.outer = Outer(clock, outside)
        self.quick = Quick()
        self.cards: Cards | None = None
        self.beat_at: float | None = None
        self._swap: Swap | None = None
        self._groups: tuple[Load, ...] = ()
        self._calm: Callable[[int], None] = lambda pid: None

    def calm(self, how: Callable[[int], None]) -> None:
        """What is done to each child that is started from now on."""
        self._calm = self.outer.child.calm = how
        if self.cards is not None:
            self.cards.child.calm = how

    def tell(self, sheet: Sheet, ring: Path, targets: Sequence[Target]) -> None:
        """A sheet, or what is alive, is another one from now on."""
        if self.cards is None and (sheet.gpus or any("gpu." in x.metric for x in sheet.limits)):
            self.cards = Cards(self._clock, self._gpu_argv)
            self.cards.child.calm = self._calm
        # what the runner starts is bounded with it and with this process; a container is not
        self.fast.bound.inside = any(one.pid for one in targets)
        self._slow.watch(targets)
        self.quick.watch(sheet.limits, targets, self._slow.groups)
        self.outer.tell(sheet, ring, targets)

    def descriptors(self) -> list[int]:
        """What to poll beside the inbox."""
        children = [self.outer.child, *([self.cards.child] if self.cards else [])]
        return [one.descriptor for one in children if one.descriptor >= 0]

    def tend(self) -> bool:
        """Read what the children wrote; start one that has died. Whether something was heard."""
        heard = self.outer.tend()
        if heard:
            for group in self.outer.members():
                self.quick.tell(*group)
        return (self.cards is not None and self.cards.tend()) or heard

    def second(self) -> None:
        """Swap traffic and control groups."""
        now = self._clock.monotonic()
        self._swap = self._slow.swap(now)
        self._groups = self._slow.loads(now)

    def memory(self) -> Memory | None:
        """RAM, swap and pressure now."""
        return self.fast.read(self._clock.monotonic())

    def look(self, memory: Memory | None = None) -> Look:
        """One look, with memory that was read just now or is read here; `at` is its time."""
        memory = memory or self.memory()
        at = memory.at if memory is not None else self._clock.monotonic()
        cards = self.cards
        return Look(
            at, memory, self._swap, cards.cards if cards else (), cards.trouble if cards else "",
            self.outer.disks, self._loads(), self.outer.hits,
            self.beat_at, self.fast.why,
        )  # fmt: skip

    def _loads(self) -> tuple[Load, ...]:
        """As they were in the last second; those over a limit as they are now, also where nobody
        has looked at them yet."""
        loads, now = (*self._groups, *self.outer.loads()), self.quick.loads
        if not now:
            return loads
        return (*(one for one in loads if (one.kind, one.name) not in now), *now.values())

    def close(self) -> None:
        """End the children; the recorder is copied to disk once more."""
        self.outer.close(ENDING_S)
        if self.cards is not None:
            self.cards.close()
        self.quick.close()
        self._slow.close()
        self.fast.close()
