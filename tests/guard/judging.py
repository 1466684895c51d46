"""A policy on the machine of the incident, and snapshots that advance in time."""

import dataclasses

from console.host.gpu.figures import GpuSample
from console.recovery.guard.config import GIB, Limit, defaults
from console.recovery.guard.decide.policy import Breach, Decision, Policy
from console.recovery.guard.observe.snapshot import GpuReading, Memory, Snapshot
from tests.waiting import some

TOTAL, SWAP = 377 * 10**9, 207 * 10**9
MACHINE = defaults(TOTAL, SWAP)
PLENTY = 200 * GIB


def card_of(
    uuid: str, at: float, used: int | None = None, total: int | None = None, why: str = ""
) -> GpuReading:
    """A card of which only the memory is known."""
    return GpuReading(GpuSample(uuid, 0, "x", used, total, why=why), at)


class Bench:
    """Whatever a test does not set is idle."""

    def __init__(
        self, *limits: Limit, armed: bool = True, rest: float = PLENTY, **more: object
    ) -> None:
        self.rest = rest
        self.policy = Policy(limits, MACHINE, **more)  # type: ignore[arg-type]
        self.at = 1000.0
        self.last = Decision("ok")
        self.go(1.0)
        if armed:
            self.policy.arm(self.see())

    def see(self, available: float | None = None, swap: float = 0, full_us: int | None = 0,
            some_us: int | None = 0, **parts: object) -> Snapshot:  # fmt: skip
        free = self.rest if available is None else available
        memory = Memory(self.at, TOTAL, int(free), SWAP, int(swap), some_us, full_us)
        snapshot = Snapshot(self.at, memory, beat_at=self.at)
        return dataclasses.replace(snapshot, **parts)  # type: ignore[arg-type]

    def go(self, seconds: float, step: float = 0.05, **parts: object) -> Decision:
        """Repeat the same snapshot for a while; returns the last decision."""
        for _ in range(max(1, round(seconds / step))):
            self.at += step
            self.last = self.policy.decide(self.see(**parts))  # type: ignore[arg-type]
        return self.last

    def fill(self, rate: float, available: float, to: float = 0.0) -> Decision:
        """Take this many bytes a second until so many are left, or until the breach."""
        while available > to and self.last.breach is None:
            available -= rate * 0.05
            self.go(0.05, available=available)
        return self.last

    def pressed(self, share: float, seconds: float) -> Decision:
        """Have all tasks wait for memory for this share of the time, until the breach."""
        begun = self.at
        while self.at < begun + seconds and self.last.breach is None:
            full = int((self.at + 0.05 - begun) * share * 1e6)
            self.go(0.05, full_us=full, some_us=full)
        return self.last

    def breached(self, seconds: float, **parts: object) -> Breach:
        return some(self.go(seconds, **parts).breach)
