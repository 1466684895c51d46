"""How near to the best combination of flags the tuner comes, and with how many measurements.

On rates that a real llama-bench showed, of each combination in two passes. The machine that they
were recorded on is shared: the passes differ by 25 %, so the fastest figure of all is mostly luck.
Therefore the true rate of a point is what the flags and all pairs of them explain (of each
point's median, fitted as in a factorial design); the rest is noise. Each round begins at another
combination and searches the true rates, then rates with the noise of a start's samples. There a
sweep of all points sees the same samples, and a peer measures as many points as the tuner did,
drawn at random.
"""

import itertools
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from console.bench.tune.outcome import Goal, Outcome, speed
from console.bench.tune.search import Search
from console.bench.tune.space import Flag, Point, Space
from tests.benchmarks.figures import Figure

SURFACE = Path(__file__).with_name("data") / "llama_bench_surface.json"
ROUNDS = 60
GOALS = (Goal("decode"), Goal("prompt"), Goal("request", prompt_tokens=512, answer_tokens=128))
MAX_BEHIND, MAX_SHARE = 0.02, 0.20
SWEEPS = 50
"""Rounds of the fit; it ends before, once nothing moves."""

Rates = dict[Point, float]


class Surface:
    """The recorded combinations: their flags, where they were recorded from, the true rates of
    generating and of reading by point, and the samples of both over their own mean."""

    def __init__(self, path: Path = SURFACE) -> None:
        found = json.loads(path.read_text())
        self.flags = tuple(Flag((name,), tuple(values)) for name, values in found["flags"].items())
        self.start: Point = tuple(
            flag.values.index(value) for flag, value in zip(self.flags, found["start"], strict=True)
        )
        places = itertools.product(*(range(len(flag.values)) for flag in self.flags))
        rows = {p: row for p, row in zip(places, found["points"], strict=True) if row is not None}
        self.points = sorted(rows)
        self.size = Space(self.flags, self.start).size
        kinds = range(2)
        self.true = [explained({p: middle(row[kind]) for p, row in rows.items()}) for kind in kinds]
        self.noise = [
            [one / statistics.fmean(start) for row in rows.values() for start in row[kind]
             for one in start]
            for kind in kinds
        ]  # fmt: skip

    def outcome(self, point: Point) -> Outcome:
        """The point without noise."""
        decode, prompt = (speed(rates[point]) for rates in self.true)
        return Outcome("measured", decode, prompt)

    def drawn(self, point: Point, samples: int, chance: random.Random) -> Outcome:
        """The point as one start of so many samples shows it."""
        decode, prompt = (
            speed(*(rates[point] * one for one in chance.choices(noise, k=samples)))
            for rates, noise in zip(self.true, self.noise, strict=True)
        )
        return Outcome("measured", decode, prompt)


def middle(starts: list[list[float]]) -> float:
    return statistics.median(one for start in starts for one in start)


def explained(rates: Mapping[Point, float]) -> Rates:
    """The rates that single flags and pairs of them explain, as factors: backfitting of the mean
    logarithms of each flag's and each pair's values."""
    left = {point: math.log(rate) for point, rate in rates.items()}
    flags = range(len(next(iter(left))))
    groups = [axes for count in range(3) for axes in itertools.combinations(flags, count)]
    for _ in range(SWEEPS):
        most = 0.0
        for axes in groups:
            alike: dict[tuple[int, ...], list[Point]] = defaultdict(list)
            for point in left:
                alike[tuple(point[axis] for axis in axes)].append(point)
            for points in alike.values():
                mean = statistics.fmean(left[point] for point in points)
                most = max(most, abs(mean))
                for point in points:
                    left[point] -= mean
        if most < 1e-6:
            break
    return {point: rate / math.exp(left[point]) for point, rate in rates.items()}


SAMPLES = 12
"""Samples of a start, as each point was recorded with."""


def run(say: Callable[[str], None]) -> list[Figure]:
    """By goal: how far the tuner's choice is behind the best point, and its share of all points."""
    surface = Surface()
    refused = surface.size - len(surface.points)
    say(f"{surface.size} combinations of {len(surface.flags)} flags, {refused} are refused")
    figures: list[Figure] = []
    for goal in GOALS:
        quiet, noisy, swept, by_chance, share = rounds(surface, goal)
        name = goal.prefer
        figures += [
            Figure(f"{name}: behind the best of all points", "share", quiet, MAX_BEHIND, "worst"),
            Figure(f"{name}: points measured, of all", "share", share, MAX_SHARE, "worst"),
        ]
        for who, behind in (
            ("the tuner", noisy), ("a sweep of all points", swept), ("as many at random", by_chance)
        ):  # fmt: skip
            middle, most = statistics.median(behind), sorted(behind)[int(0.95 * len(behind))]
            say(f"{name} with noise: {who} is {middle:.1%} behind, {most:.1%} at the 95th")
    return figures


def rounds(surface: Surface, goal: Goal) -> tuple[list[float], ...]:
    """Shares behind the truly best point: the tuner on the true rates, the tuner on noisy ones,
    a sweep of these, points at random; and the shares of all points that the tuner measured."""
    true = {point: goal.score(surface.outcome(point)) or 0.0 for point in surface.points}
    best = max(true.values())
    quiet, noisy, swept, by_chance, share = [], [], [], [], []
    for number in range(ROUNDS):
        chance = random.Random(number)
        begin = surface.start if number == 0 else chance.choice(surface.points)
        chosen, asked = tuned(surface, surface.outcome, begin, goal)
        quiet.append(1 - true[chosen] / best)
        share.append(asked / surface.size)
        seen = {point: surface.drawn(point, SAMPLES, chance) for point in surface.points}
        rate = {point: goal.score(found) or 0.0 for point, found in seen.items()}
        chosen, asked = tuned(surface, seen.__getitem__, begin, goal)
        noisy.append(1 - true[chosen] / best)
        share.append(asked / surface.size)
        swept.append(1 - true[max(rate, key=rate.__getitem__)] / best)
        drawn = chance.sample(surface.points, asked)
        by_chance.append(1 - true[max(drawn, key=rate.__getitem__)] / best)
    return quiet, noisy, swept, by_chance, share


def tuned(
    surface: Surface, measured: Callable[[Point], Outcome], start: Point, goal: Goal
) -> tuple[Point, int]:
    """The point that the search chooses, and how many it measured."""
    refused = Outcome("failed", why="the engine refuses the combination")
    known = frozenset(surface.points)

    def ask(point: Point) -> Outcome:
        return measured(point) if point in known else refused

    search = Search(Space(surface.flags, start), goal, ask)
    found = search.run()
    assert found.best is not None
    return found.best, search.point_count
