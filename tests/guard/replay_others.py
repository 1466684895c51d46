"""When other usual guards would act on the same curve, by the rules in their sources."""

from __future__ import annotations

import math

from tests.guard.replay_machine import SWAP, TOTAL, Curve, Filling

STEP_S = 0.1
AVG_TAU_S, AVG_EVERY_S = 10.0, 2.0
EXCESS_S = 30.0


def others(curve: Curve) -> dict[str, float | None]:
    """Return the second at which each rule is met with nothing else interfering; None for never.

    earlyoom: MemAvailable and free swap both at 10 % or less, then 5 %. systemd-oomd: memory and
    swap both used above 90 %; or the 10 s average of PSI full above 60 % for 30 s.
    """
    found: dict[str, float | None] = dict.fromkeys(
        ("earlyoom TERM", "earlyoom KILL", "oomd swap", "oomd pressure", "RAM full")
    )
    filling, averaged, above, before, due = Filling(curve), 0.0, 0.0, 0.0, AVG_EVERY_S
    while not filling.ended:
        filling.step(STEP_S)
        memory, t = filling.memory(), filling.t
        free = 100 * (SWAP - memory.swap_used) / SWAP
        available = 100 * memory.available / TOTAL
        if t >= due:
            share = (filling.stalled_us - before) / AVG_EVERY_S / 1e4
            averaged += (share - averaged) * (1 - math.exp(-AVG_EVERY_S / AVG_TAU_S))
            before, due = filling.stalled_us, due + AVG_EVERY_S
        above = above + STEP_S if averaged > 60 else 0.0
        met = {
            "earlyoom TERM": available <= 10 and free <= 10,
            "earlyoom KILL": available <= 5 and free <= 5,
            "oomd swap": 100 - available > 90 and 100 - free > 90,
            "oomd pressure": above >= EXCESS_S,
            "RAM full": TOTAL - filling.ram < 2.5e9,
        }
        for name, yes in met.items():
            if yes and found[name] is None:
                found[name] = t
    return found
