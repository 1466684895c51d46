"""Whether a point is surely faster than today's flags: both measured again and again, in turns.

The search picks the point that looked best, so its first figure is too good on average and decides
nothing. What decides are starts made for this alone, a pair in each round, so that a machine that
slowly gets warmer does not choose. The interval is Student's, over the rounds, of the logarithm of
the ratio. Two points are compared with today's at most, after three rounds and once more after six,
so each at 97.5 %: where neither is faster, one passes in one of twelve cases, and in fewer than one
of twenty where it has to be faster by the usual 2 %.
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
Again = Callable[[Point, str], Outcome]
"""Start a point once more, in the round of this name; a figure is that start's alone."""

ROUNDS, MAX_ROUNDS = 3, 6
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
class SearchResult:
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
    rounds = min(len(point), len(today), MAX_ROUNDS)
    if rounds < ROUNDS:
        return None
    logs = [math.log(a / b) for a, b in zip(point[:rounds], today[:rounds], strict=True)]
    middle, half = fmean(logs), QUANTILES[rounds - 1] * stdev(logs) / math.sqrt(rounds)
    low, high = math.expm1(middle - half), math.expm1(middle + half)
    return Gain(math.expm1(middle), low, high, rounds)


@dataclass
class Decision:
    """Decides what `result` is worth against the point at the `start`, by measuring `again`.
    `gain`: the share by which a point has to be faster at least. `label` names the rounds of this
    search: only starts of one round are compared, since a machine is another one days later."""

    result: SearchResult
    start: Point
    goal: Goal
    again: Again
    gain: float = 0.0
    label: str = ""

    def run(self) -> None:
        """Today's flags win unless another point is surely faster, or they may not win; without a
        figure of theirs nothing is compared, and the fastest point is only said."""
        search_result, start = self.result, self.start
        looked = [p for p in search_result.outcomes if p != start and self._score(p) > 0]
        looked.sort(key=self._score, reverse=True)
        if not self.goal.rates(search_result.outcomes[start]):
            search_result.best = self._fastest(looked[:CLOSE])
            search_result.why = "today's flags gave no figure: nothing is compared with them"
            return
        sure = self._compare(looked[:CLOSE])
        if start in search_result.dropped:
            search_result.best, search_result.gains = start, {}
            search_result.why = (
                "today's flags failed when they were started again, so nothing is decided"
            )
        elif sure:
            search_result.best = self._leader(sure)
        elif self.goal.fits(search_result.outcomes[start]):
            search_result.best = start
            search_result.why += (
                "; nothing is surely faster than the flags as they are" if looked else ""
            )
        else:
            search_result.best = self._leader(
                [p for p in search_result.gains if self._score(p) > 0]
            )
            search_result.why += "; the flags as they are take more memory than may win"

    def _compare(self, close: list[Point]) -> list[Point]:
        """Measure the points in turns with today's flags until it is decided; the points that are
        surely faster."""
        search_result, least, sure = self.result, max(self.gain, 1e-9), list[Point]()
        for wanted in (ROUNDS, MAX_ROUNDS):
            self._in_turns(close, wanted)
            gains = {p: gain_of(*self._pairs(p)) for p in close if p not in search_result.dropped}
            search_result.gains = {p: gain for p, gain in gains.items() if gain is not None}
            may = [p for p in search_result.gains if self._score(p) > 0]
            sure = [p for p in may if search_result.gains[p].low >= least]
            close = [p for p in may if p in sure or search_result.gains[p].mean > self.gain]
            if self._leader(close) in (None, self._leader(sure)):
                break
        return sure

    def _leader(self, points: list[Point]) -> Point | None:
        return max(points, key=lambda p: self.result.gains[p].mean, default=None)

    def _score(self, point: Point) -> float:
        outcome = self.result.outcomes.get(point)
        if outcome is None or not self.goal.fits(outcome):
            return 0.0
        return self.goal.score(outcome) or 0.0

    def _pairs(self, point: Point) -> tuple[list[float], list[float]]:
        """The rates of a point and of today's flags, of the rounds in which both were started."""
        mine, today = (self.goal.by_turn(self.result.outcomes[p]) for p in (point, self.start))
        both = [turn for turn in mine if turn in today]
        return [mine[turn] for turn in both], [today[turn] for turn in both]

    def _in_turns(self, points: list[Point], rounds: int) -> None:
        """Start each point together with today's flags until it has so many rounds. One that fails
        is asked no more; today's flags serve, so a failure of theirs may be chance once."""
        dropped = self.result.dropped
        for number in range(1, MAX_ROUNDS + 1):
            short = [p for p in points if p not in dropped and len(self._pairs(p)[0]) < rounds]
            if not short or self.start in dropped:
                return
            turn, order = f"{self.label} {number}", [self.start, *short]
            for point in reversed(order) if number % 2 else order:
                if turn in self.result.outcomes[point].turns or self._started(point, turn):
                    continue
                if point == self.start and self._started(point, turn):
                    dropped.pop(point)

    def _started(self, point: Point, turn: str) -> bool:
        """Whether another start of a point gave its rate; else it is dropped."""
        more = self.again(point, turn)
        if self.goal.score(more) is None:
            self.result.dropped[point] = more.why or "the rate that counts was not measured"
            return False
        self.result.outcomes[point] = together(self.result.outcomes[point], more, turn)
        return True

    def _fastest(self, points: list[Point]) -> Point | None:
        """The first of the points that serves again each time, the fastest first."""
        for point in points:
            turns = [f"{self.label} {number}" for number in range(1, ROUNDS + 1)]
            seen = self.result.outcomes[point].turns
            if all(turn in seen or self._started(point, turn) for turn in turns):
                return point
        return None
