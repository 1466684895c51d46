"""Which looks need no judgement: nothing moved since the last one that was judged.

On a machine at rest four ticks of five are like the one before. They are recorded; judging them
again would cost more than reading them.
"""

from __future__ import annotations

from console.guard.judge import POLL_S, Judgement
from console.guard.look import Memory

LONGEST_S = 0.2
"""Everything is judged at least this often: what grows slowly, and figures that grow old."""
SMALL = 4 << 20
"""Bytes of RAM since the look that was judged: 20 MB/s and more is judged at every tick."""


class Calm:
    """Forgets at every word from outside and at every level but ok."""

    def __init__(self) -> None:
        self._memory: Memory | None = None

    def forget(self) -> None:
        self._memory = None

    def judged(self, memory: Memory | None, found: Judgement) -> None:
        """This look was judged like that."""
        at_rest = found.level == "ok" and found.wait_s >= POLL_S
        self._memory = memory if at_rest else None

    def holds(self, memory: Memory | None) -> bool:
        """Whether a look is like the one that was judged."""
        before = self._memory
        return (
            before is not None
            and memory is not None
            and memory.at - before.at < LONGEST_S
            and abs(memory.available - before.available) < SMALL
            and memory.swap_used == before.swap_used
            and memory.some_us == before.some_us
            and memory.total == before.total
        )
