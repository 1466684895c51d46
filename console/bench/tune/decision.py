"""Whether a point is surely faster than today's flags: both measured again and again, in turns.

The search picks the point that looked best, so its first figure is too good on average and decides
nothing. What decides are starts made for this alone, a pair in each round, so that a machine that
slowly gets warmer does not choose. The interval is Student's, over the rounds, of the logarithm of
the ratio; two points are compared with today's at most, each at 97.5 %, so that one of both passes
by chance in one of twenty cases at most where neither is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from console.bench.tune.outcome import Goal, Outcome, together
from console.bench.tune.space import Point

Ask = Callable[[Point], Outcome]
"""Measure a point."""

ROUNDS, MOST_ROUNDS = 3, 6
"""Rounds at first, and at most while it is not decided."""
CLOSE = 2
"""So many of the points that looked best are compared with today's flags."""
QUANTILES = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}
"""Student's t at 97.5 %, by degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster a point is than today's flags, as a share, between `low` and `high`."""

    mean: float
    low: float
    high: float
    rounds: int


@dataclass
class Found:
    """How a search ended: the best point, None if none could be measured, and why it stopped."""

    best: Point | None = None
    why: str = ""
    outcomes: dict[Point, Outcome] = field(default_factory=dict)
    gains: dict[Point, Gain] = field(default_factory=dict)
    """How much faster than today's flags the points are that were measured in turns with them."""
    dropped: dict[Point, str] = field(default_factory=dict)
    """Why a point that looked good failed when it was measured again."""


def gain_of(point: Sequence[float], today: Sequence[float]) -> Gain | None:
    """By the rates of the same rounds; None for fewer rounds than ROUNDS."""
    rounds = min(len(point), len(today), MOST_ROUNDS)
    if rounds < ROUNDS:
        return None
    logs = [math.log(a / b) for a, b in zip(point[:rounds], today[:rounds], strict=True)]
    middle, half = fmean(logs), QUANTILES[rounds - 1] * stdev(logs) / math.sqrt(rounds)
    low, high = math.expm1(middle - half), math.expm1(middle + half)
    return Gain(math.expm1(middle), low, high, rounds)


@dataclass
class Decision:
    """Decides what `found` is worth against the point at the `start`, by measuring `again`. `gain`:
    the share by which a point has to be faster at least."""

    found: Found
    start: Point
    goal: Goal
    again: Ask
    gain: float = 0.0

    def run(self) -> None:
        """Today's flags win unless another point is surely faster; without a figure of theirs
        nothing is compared, and the fastest point is only said."""
        found, start = self.found, self.start
        today = self._score(start) > 0
        looked = [p for p in found.outcomes if p != start and self._score(p) > 0]
        close = sorted(looked, key=self._score, reverse=True)[: CLOSE if today else 1]
        best, sure = None, False
        for wanted in (ROUNDS, MOST_ROUNDS):
            self._in_turns([*([start] if today else []), *close], wanted)
            if not today:
                found.why = "today's flags gave no figure: nothing is compared with them"
                return
            gains = {p: gain_of(self._later(p), self._later(start)) for p in close}
            found.gains = {p: gain for p, gain in gains.items() if gain is not None}
            best = max(found.gains, key=lambda p: found.gains[p].mean, default=None)
            sure = best is not None and found.gains[best].low >= max(self.gain, 1e-9)
            if best is None or sure or found.gains[best].mean <= self.gain:
                break
            close = [best]
        found.best = best if sure else start
        if not sure and looked:
            found.why = "nothing is surely faster than the flags as they are"

    def _score(self, point: Point) -> float:
        outcome = self.found.outcomes.get(point)
        if outcome is None or not self.goal.fits(outcome):
            return 0.0
        return self.goal.score(outcome) or 0.0

    def _in_turns(self, points: list[Point], rounds: int) -> None:
        """Measure each point until it has so many starts after its first. One that fails is left as
        it is, and asked no more."""
        outcomes, dropped = self.found.outcomes, self.found.dropped
        for number in range(2, rounds + 2):
            for point in points if number % 2 else reversed(points):
                if point in dropped or outcomes[point].starts >= number:
                    continue
                more = self.again(point)
                if more.fate == "measured":
                    outcomes[point] = together(outcomes[point], more)
                else:
                    dropped[point] = more.why

    def _later(self, point: Point) -> list[float]:
        """The rates of the starts that were made to decide; none of a point that then failed."""
        if point in self.found.dropped:
            return []
        return self.goal.rates(self.found.outcomes[point])[1:]
