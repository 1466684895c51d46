"""Finds the fastest point of a space with few measurements.

In a large space it begins with points all over it. It changes one flag at a time from the best
point so far, then two at once where the single changes promise enough. A point that surely takes
more memory than one that did not fit is left out, so a range of layers is halved until the last
that fits is found. It stops when no change of one flag is faster, and no change of two can be: by
the product of what each change gives alone, raised by the largest interaction that was seen.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from console.bench.tune.decision import Ask, SearchResult
from console.bench.tune.outcome import Goal, Outcome
from console.bench.tune.space import Point, Resource, Space

FEW = 4
"""A line of so many values is measured whole; a longer one is narrowed down."""
SLACK = 0.25
"""An interaction of two flags that is reckoned with before any was seen."""
MAX_PASSES = 20
SCATTERED, MAX_SCATTERED = 20, 20
"""One of so many combinations is measured to begin with, and so many at most."""
RESOURCES: tuple[Resource, ...] = ("card", "host")
LEFT_OUT = Outcome("unfit", why="it takes more memory than a point that did not fit")


class Spent(Exception):
    """No more points may be measured."""


@dataclass
class Search:
    """One search. `most`: points measured at most, besides what is `known` of others; `gain`: the
    share by which a point has to be faster to replace the best one."""

    space: Space
    goal: Goal
    ask: Ask
    most: int = 1_000_000
    gain: float = 0.0
    known: Mapping[Point, Outcome] = field(default_factory=dict)
    point_count: int = 0
    result: SearchResult = field(default_factory=SearchResult)
    _slack: float = SLACK

    def run(self) -> SearchResult:
        """Search to the end, or until `most` points were asked for."""
        self.result.outcomes.update(self.known)
        try:
            self._begin()
            for point in (*self.known, *self._scattered()):
                self._take(point)
            for _ in range(MAX_PASSES):
                while self._lines():
                    pass
                if not self._pairs():
                    break
            self.result.why = "no change of one flag or of two promises more"
        except Spent:
            self.result.why = f"{self.most} points were measured: more may find a faster one"
        if self.result.best is None:
            self.result.why = "no point could be measured"
        return self.result

    # -- points ----------------------------------------------------------------------------------

    def _score(self, point: Point) -> float:
        """The rate of a point, measured now if it was not; 0 for one that cannot win."""
        outcomes = self.result.outcomes
        if point not in outcomes:
            if self._too_big(point):
                outcomes[point] = LEFT_OUT
            elif self.point_count >= self.most:
                raise Spent
            else:
                self.point_count += 1
                outcomes[point] = self.ask(point)
        return self._known(point)

    def _known(self, point: Point) -> float:
        outcome = self.result.outcomes.get(point)
        if outcome is None or not self.goal.fits(outcome):
            return 0.0
        return self.goal.score(outcome) or 0.0

    def _too_big(self, point: Point) -> bool:
        """Whether it surely takes as much memory as a point that did not fit. Where it was not
        seen which memory was too small, both have to be as full."""
        for other, outcome in self.result.outcomes.items():
            if other == self.space.start:
                continue
            which: tuple[Resource, ...] = RESOURCES if outcome.fate == "unfit" else ()
            if outcome.fate == "host" or outcome.fate == "card":
                which = (outcome.fate,)
            needs = [self.space.needs_at_least(point, other, resource) for resource in which]
            if needs and all(needs) and outcome is not LEFT_OUT:
                return True
        return False

    def _take(self, point: Point) -> bool:
        """Measure a point; True if it is the best from now on."""
        score, best = self._score(point), self.result.best
        if score <= 0 or (best is not None and score <= self._known(best) * (1 + self.gain)):
            return False
        self.result.best = point
        return True

    def _begin(self) -> None:
        """A point to start from: as it is, else the one that takes the least memory. The flags as
        they are serve, so a failure of theirs may be chance: they are tried once more, and what did
        not fit with them limits nothing."""
        if self._take(self.space.start):
            return
        if self.result.outcomes[self.space.start].fate != "measured":
            self.result.outcomes[self.space.start] = self.ask(self.space.start)
            if self._take(self.space.start):
                return
        for resource in RESOURCES:
            if self._take(self._smallest(resource)):
                return
        for flag, _ in enumerate(self.space.flags):
            for place in _others(self.space, self.space.start, flag):
                if self._take(_at(self.space.start, flag, place)):
                    return

    def _scattered(self) -> list[Point]:
        """Points all over a large space, every value of each flag as often as the others: changes
        of one flag alone may end beside a point that is much slower than the best. The same each
        time, so that a search that was stopped goes on with them."""
        count = min(MAX_SCATTERED, self.space.size // SCATTERED, self.most // 3)
        chance, columns = random.Random(count), []
        for flag in self.space.flags:
            places = [number % len(flag.values) for number in range(count)]
            chance.shuffle(places)
            columns.append(places)
        return list(zip(*columns, strict=True))

    def _smallest(self, resource: Resource) -> Point:
        """The start with every value that takes the least of a memory."""
        point = self.space.start
        for flag, option in enumerate(self.space.flags):
            direction = option.direction(resource)
            if direction and option.ordered:
                point = _at(point, flag, option.ordered[0 if direction > 0 else -1])
        return point

    # -- one flag --------------------------------------------------------------------------------

    def _lines(self) -> bool:
        """Vary each flag alone, those with most effect first; True if the best point changed."""
        if self.result.best is None:
            return False
        before = self.result.best
        for flag in sorted(range(len(self.space.flags)), key=self._effect, reverse=True):
            if len(self.space.flags[flag].ordered) > FEW:
                self._narrow(flag)
            else:
                self._whole(flag)
        return self.result.best != before

    def _whole(self, flag: int) -> None:
        """Measure every value of a flag that may win."""
        for place in range(len(self.space.flags[flag].values)):
            if self.result.best is not None:
                self._try(_at(self.result.best, flag, place))

    def _try(self, point: Point) -> None:
        if self._promises(point):
            self._take(point)

    def _narrow(self, flag: int) -> None:
        """A long line of numbers: both ends and the middle, then halves around the best."""
        line = self.space.flags[flag].ordered
        assert self.result.best is not None
        base = self.result.best
        for place in _others(self.space, base, flag):
            if place not in line:
                self._try(_at(base, flag, place))
        positions = {0, len(line) // 2, len(line) - 1}
        if base[flag] in line:
            positions.add(line.index(base[flag]))
        while positions:
            for at in sorted(positions):
                self._take(_at(base, flag, line[at]))
            positions = set(self._halves(base, flag, line))

    def _halves(self, base: Point, flag: int, line: tuple[int, ...]) -> Iterator[int]:
        """The middles between the best place of a line and its measured neighbours."""
        outcomes = self.result.outcomes
        seen = [at for at, place in enumerate(line) if _at(base, flag, place) in outcomes]
        scores = {at: self._known(_at(base, flag, line[at])) for at in seen}
        best = max(seen, key=lambda at: scores[at])
        if scores[best] <= 0:
            return
        below = [at for at in seen if at < best]
        above = [at for at in seen if at > best]
        for low, high in ((below[-1:], [best]), ([best], above[:1])):
            if low and high and high[0] - low[0] > 1:
                yield (low[0] + high[0]) // 2

    # -- what is expected ------------------------------------------------------------------------

    def _ratio(self, flag: int, place: int) -> float | None:
        """By how much a value is faster than the best point's value of that flag, all else equal:
        the mean of what was seen; None if it never was."""
        assert self.result.best is not None
        now, seen = self.result.best[flag], []
        for point in self.result.outcomes:
            if point[flag] != place:
                continue
            mine, its = self._known(point), self._known(_at(point, flag, now))
            if mine > 0 and its > 0:
                seen.append(math.log(mine / its))
        return math.exp(sum(seen) / len(seen)) if seen else None

    def _effect(self, flag: int) -> float:
        ratios = [self._ratio(flag, place) for place in range(len(self.space.flags[flag].values))]
        known = [abs(math.log(ratio)) for ratio in ratios if ratio]
        return max(known, default=math.inf)

    def _promises(self, point: Point) -> bool:
        """Whether a point that was not measured may be faster than the best."""
        if point in self.result.outcomes:
            return True
        expected = self._expected(point)
        return expected is None or math.log(expected) + self._slack > math.log1p(self.gain)

    def _expected(self, point: Point) -> float | None:
        """The rate of a point over the best one's, if each flag acts alone; None if that of one is
        not known."""
        assert self.result.best is not None
        product = 1.0
        for flag, (place, now) in enumerate(zip(point, self.result.best, strict=True)):
            if place != now:
                ratio = self._ratio(flag, place)
                if ratio is None:
                    return None
                product *= ratio
        return product

    # -- two flags -------------------------------------------------------------------------------

    def _pairs(self) -> bool:
        """Vary two flags at once, the most promising first; True if the best point changed."""
        if self.result.best is None:
            return False
        before = self.result.best
        rows = [(self._expected(point), point) for point in _two_changes(self.space, before)]
        known = sorted(((e, p) for e, p in rows if e is not None), reverse=True)
        for expected, point in known:
            if point in self.result.outcomes:
                continue
            if math.log(expected) + self._slack <= math.log1p(self.gain):
                break
            self._take(point)
            self._learn(expected, point, before)
            if self.result.best != before:
                return True
        return False

    def _learn(self, expected: float, point: Point, best: Point) -> None:
        """How far two flags together were from the product: larger ones raise the slack, smaller
        ones lower it slowly."""
        score, base = self._known(point), self._known(best)
        if score > 0 and base > 0:
            seen = math.log(score / base) - math.log(expected)
            self._slack = max(seen, 0.9 * self._slack + 0.1 * abs(seen))


def _at(point: Point, flag: int, place: int) -> Point:
    return (*point[:flag], place, *point[flag + 1 :])


def _others(space: Space, point: Point, flag: int) -> list[int]:
    """The places of a flag's values that a point does not have."""
    return [place for place in range(len(space.flags[flag].values)) if place != point[flag]]


def _two_changes(space: Space, point: Point) -> Iterator[Point]:
    """The points that differ from this one in two flags."""
    for flag, other_flag in itertools.combinations(range(len(space.flags)), 2):
        for first in _others(space, point, flag):
            for second in _others(space, point, other_flag):
                yield _at(_at(point, flag, first), other_flag, second)
