"""Which looks need no judgement: none could come to another one than the look before.

Every sample goes into forecast and pressure. While each figure stays on the right side of every
limit on it, nothing new was heard and no deadline has come, a judgement would say the same again; a
sample that leaves this band is judged itself. Nothing is found later than without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from console.recovery.guard.decide.policy import NEAR_S, POLL_S, Judge, Judgement
from console.recovery.guard.observe.snapshot import Memory

LONGEST_S = 1.0
"""Everything is judged at least this often."""
REST_POLL_S = 0.25
FASTEST = 40e9
"""Bytes a second: nothing makes new pages faster, so that no level of RAM that kills is reached
between two looks, however far they are apart."""
REST_TTE_S = 3 * NEAR_S
REST_WAITING = 1.0
"""Per cent of the time: from there on it is looked at pressure as often as at a load."""


@dataclass(frozen=True, slots=True)
class Band:
    """Where the figures may move: RAM available in bytes, what the rest must not be below (seconds
    until RAM is full, bytes left to the control group) or above (per cent of pressure); `until`:
    the first deadline, monotonic."""

    least: float
    most: float
    tte_s: float
    some: float
    full: float
    bound: float
    until: float


class Calm:
    """Forgets at every word from outside and at every level but ok. `wait_s`: when to look next."""

    def __init__(self) -> None:
        self._judge: Judge | None = None
        self._band = Band(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._swap = self._total = 0
        self._tells = True
        self.wait_s = POLL_S

    def forget(self) -> None:
        self._judge = None

    def judged(self, judge: Judge, memory: Memory | None, found: Judgement) -> None:
        """This look was judged like that."""
        if memory is None or found.level != "ok" or found.wait_s < POLL_S:
            self.forget()
            self.wait_s = found.wait_s
            return
        self._judge, self._band = judge, band(judge, memory.at)
        self._swap, self._total = memory.swap_used, memory.total
        self._tells = judge.sight.full.share is not None
        self.wait_s = rest_s(judge, memory)

    def holds(self, memory: Memory | None) -> bool:
        """Whether a look can be judged no other than the one before. It is taken note of."""
        judge, band = self._judge, self._band
        if judge is None or memory is None:
            return False
        sight = judge.sight
        sight.feed(memory)
        tte_s, some, full = judge.forecast.tte_s, sight.some.share, sight.full.share
        return (
            memory.at < band.until
            and band.least <= memory.available <= band.most
            and tte_s is not None
            and tte_s >= band.tte_s
            and (some is None or some <= band.some)
            and (full is not None) == self._tells
            and (full is None or full <= band.full)
            and (memory.bound is None or memory.bound >= band.bound)
            and memory.swap_used == self._swap
            and memory.total == self._total
        )


def rest_s(judge: Judge, memory: Memory) -> float:
    """How long nothing can happen that is not far away now, seconds."""
    tte_s, some = judge.forecast.tte_s, judge.sight.some.share
    if tte_s is None or tte_s < REST_TTE_S or (some or 0.0) >= REST_WAITING:
        return POLL_S
    return max(POLL_S, min(REST_POLL_S, judge.room(memory) / FASTEST))


def band(judge: Judge, now: float) -> Band:
    """The band around a look that was judged ok, at `now`."""
    least, most, bound = 2 * judge.highest, math.inf, 2 * judge.bound_floor
    tte_s, some, full = NEAR_S, math.inf, math.inf
    for limit in (track.limit for track in judge.fast):
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
    until = min([now + LONGEST_S, *(track.due(now) for track in judge.tracks)])
    return Band(least, most, tte_s, some, full, bound, until)
