"""Makes an hour of idle from a recorded minute: its changes are repeated in another order each
time, so that nothing is added and no jump appears that was not recorded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

from console.recovery.guard.observe.snapshot import Memory
from tests.guard.replay_record import CURVES, KIB, read

HOUR_S = 3600.0


def idle_hour(seed: int = 7) -> tuple[Iterator[Memory], int, int]:
    """Return samples, and RAM and swap of the machine in bytes."""
    minute = read(CURVES / "idle.csv.gz")
    steps = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairwise(minute.rows)]
    shuffled = random.Random(seed)

    def samples() -> Iterator[Memory]:
        at, available, swap, some, full = 0.0, minute.rows[0][1], minute.rows[0][2], 0, 0
        while at < HOUR_S:
            # the minute's total gain or loss is given back, or an hour of it would drift
            available, swap = minute.rows[0][1], minute.rows[0][2]
            for ms, more, swapped, waited, stalled in shuffled.sample(steps, len(steps)):
                at += ms / 1000
                available, swap = available + more, swap + swapped
                some, full = some + waited, full + stalled
                yield Memory(
                    1000.0 + at, minute.total, available * KIB, minute.swap_total, swap * KIB,
                    some, full,
                )  # fmt: skip

    return samples(), minute.total, minute.swap_total
