"""The incident, its variants and recorded loads, replayed with the sentinel's own policy.

python -m tests.guard.replay            the numbers of docs/measurements/replay.md, as text
python -m tests.guard.replay --write    write them into docs/measurements/replay.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.models.sizing.load_curve import Envelope
from console.recovery.guard.config import NOTHING_PREDICTED, defaults
from console.recovery.guard.decide.policy import Policy
from console.recovery.guard.observe.snapshot import Memory, Snapshot
from tests.guard.replay_machine import SWAP, TOTAL, Curve, Filling

KILL_S = 0.25
"""Seconds from the decision to the last page that the load takes; kills measured faster."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the replay of one curve gave, in seconds since the start of the load; None if it did not
    happen. `lowest`: the least RAM available until the kill took effect, in bytes. `snapshots`:
    how many there were."""

    warned_at: float | None = None
    acted_at: float | None = None
    reason: str = ""
    used: float = 0.0
    lowest: float = 0.0
    snapshots: int = 0


def replay(curve: Curve, envelope: Envelope = NOTHING_PREDICTED, seed: int = 1) -> Outcome:
    """Replay a curve on the machine of the incident, armed at its start."""
    policy = Policy((), defaults(TOTAL, SWAP), envelope)
    filling = Filling(curve, seed)
    policy.arm(_snapshot(filling.memory()))
    warned: float | None = None
    lowest, snapshots = float(TOTAL), 0
    while not filling.ended:
        decision = policy.decide(_snapshot(filling.memory()))
        snapshots += 1
        lowest = min(lowest, TOTAL - filling.ram)
        if warned is None and decision.level != "ok":
            warned = filling.t
        if decision.breach is not None:
            acted, used = filling.t, filling.ram
            filling.step(KILL_S)
            reason = decision.breach.reason
            return Outcome(warned, acted, reason, used, min(lowest, TOTAL - filling.ram), snapshots)
        filling.step(decision.wait_s)
    return Outcome(warned, None, "", filling.ram, lowest, snapshots)


def replay_memories(memories: Iterable[Memory], total: int, swap_total: int) -> Outcome:
    """Replay what a machine really reported, with nothing predicted, in seconds since the first
    sample."""
    policy = Policy((), defaults(total, swap_total))
    start: float | None = None
    warned: float | None = None
    lowest, snapshots = total, 0
    for memory in memories:
        snapshot = _snapshot(memory)
        if start is None:
            start = memory.at
            policy.arm(snapshot)
        decision = policy.decide(snapshot)
        snapshots += 1
        lowest = min(lowest, memory.available)
        if warned is None and decision.level != "ok":
            warned = memory.at - start
        if decision.breach is not None:
            used = total - memory.available
            reason = decision.breach.reason
            return Outcome(warned, memory.at - start, reason, used, lowest, snapshots)
    return Outcome(warned, None, "", 0.0, lowest, snapshots)


def _snapshot(memory: Memory) -> Snapshot:
    return Snapshot(memory.at, memory, beat_at=memory.at)


if __name__ == "__main__":
    import sys

    from tests.guard.replay_table import main

    sys.exit(main(sys.argv[1:]))
