"""The incident, its variants and recorded loads, replayed with the sentinel's own policy.

python -m tests.guard.replay            the numbers of docs/measurements/replay.md, as text
python -m tests.guard.replay --write    write them into docs/measurements/replay.md
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from console.models.sizing.load_curve import Envelope
from console.recovery.guard.config import NOTHING_PREDICTED, defaults
from console.recovery.guard.decide.policy import Decision, Policy
from console.recovery.guard.observe.snapshot import Memory, Snapshot
from tests.guard.replay_machine import SWAP, TOTAL, Curve, Filling

KILL_S = 0.25
"""Seconds from the decision to the last page that the load takes; kills measured faster."""


@dataclass(slots=True)
class Outcome:
    """What the replay of one curve gave, in seconds since the start of the load; None if it did not
    happen. `used` and `lowest`: RAM used at the end, and the least available until the kill took
    effect, in bytes. `snapshots`: how many there were."""

    warned_at: float | None = None
    acted_at: float | None = None
    reason: str = ""
    used: float = 0.0
    lowest: float = math.inf
    snapshots: int = 0

    def decide(self, policy: Policy, memory: Memory, t: float, available: float) -> Decision:
        """Show the policy what memory is `t` seconds after the start; `available` is the truth."""
        decision = policy.decide(_snapshot(memory))
        self.snapshots += 1
        self.used, self.lowest = memory.total - available, min(self.lowest, available)
        if self.warned_at is None and decision.level != "ok":
            self.warned_at = t
        if decision.breach is not None:
            self.acted_at, self.reason = t, decision.breach.reason
        return decision


def replay(curve: Curve, envelope: Envelope = NOTHING_PREDICTED, seed: int = 1) -> Outcome:
    """Replay a curve on the machine of the incident, armed at its start."""
    policy, found = Policy((), defaults(TOTAL, SWAP), envelope), Outcome()
    filling = Filling(curve, seed)
    policy.arm(_snapshot(filling.memory()))
    while not filling.ended and found.acted_at is None:
        decision = found.decide(policy, filling.memory(), filling.t, TOTAL - filling.ram)
        filling.step(KILL_S if found.acted_at is not None else decision.wait_s)
    if found.acted_at is not None:
        found.lowest = min(found.lowest, TOTAL - filling.ram)
    return found


def replay_memories(memories: Iterable[Memory], total: int, swap_total: int) -> Outcome:
    """Replay what a machine really reported, with nothing predicted."""
    policy, found = Policy((), defaults(total, swap_total)), Outcome()
    start: float | None = None
    for memory in memories:
        if start is None:
            start = memory.at
            policy.arm(_snapshot(memory))
        found.decide(policy, memory, memory.at - start, memory.available)
        if found.acted_at is not None:
            break
    return found


def _snapshot(memory: Memory) -> Snapshot:
    return Snapshot(memory.at, memory, beat_at=memory.at)


if __name__ == "__main__":
    import sys

    from tests.guard.replay_table import main

    sys.exit(main(sys.argv[1:]))
