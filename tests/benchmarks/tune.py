"""How near to the best combination of flags the tuner comes, and with how many measurements.

On a surface that was recorded on a real llama-bench, replayed with the samples it had, so that
the search sees their noise. Each round begins at another combination. The peer measures as many
points as the tuner did, drawn at random, and takes the best: a sweep by hand with that patience.
"""

import itertools
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path

from console.bench.tune.outcome import Goal, Outcome, speed
from console.bench.tune.search import Search
from console.bench.tune.space import Flag, Point, Space
from tests.benchmarks.figures import Figure

SURFACE = Path(__file__).with_name("data") / "llama_bench_surface.json"
ROUNDS = 60
GOALS = (Goal("decode"), Goal("prompt"), Goal("request", prompt_tokens=512, answer_tokens=128))
MOST_BEHIND, MOST_SHARE = 0.02, 0.20


def recorded() -> tuple[tuple[Flag, ...], dict[Point, Outcome], Point]:
    """The flags, every point that the engine accepts, and the one where it was recorded from."""
    found = json.loads(SURFACE.read_text())
    flags = tuple(Flag((name,), tuple(values)) for name, values in found["flags"].items())
    places = itertools.product(*(range(len(flag.values)) for flag in flags))
    points = {
        place: Outcome("measured", speed(*row[0]), speed(*row[1]))
        for place, row in zip(places, found["points"], strict=True) if row is not None
    }  # fmt: skip
    start = tuple(
        flag.values.index(value) for flag, value in zip(flags, found["start"], strict=True)
    )
    return flags, points, start


def run(say: Callable[[str], None]) -> list[Figure]:
    """By goal: how far the tuner's choice is behind the best point, and its share of all points."""
    flags, points, start = recorded()
    size = Space(flags, start).size
    refused = size - len(points)
    say(f"{size} combinations of {len(flags)} flags, {refused} of which the engine refuses")
    figures: list[Figure] = []
    for goal in GOALS:
        rate = {point: goal.score(found) or 0.0 for point, found in points.items()}
        best = max(rate.values())
        behind, share, by_chance = [], [], []
        for number in range(ROUNDS):
            chance = random.Random(number)
            begin = start if number == 0 else chance.choice(sorted(points))
            chosen, asked = tuned(flags, points, begin, goal)
            behind.append(1 - rate[chosen] / best)
            share.append(asked / size)
            drawn = chance.sample(sorted(points), asked)
            by_chance.append(1 - max(rate[point] for point in drawn) / best)
        name = goal.prefer
        figures += [
            Figure(f"{name}: behind the best of all points", "share", behind, MOST_BEHIND, "p95"),
            Figure(f"{name}: points measured, of all", "share", share, MOST_SHARE, "worst"),
        ]
        middle = statistics.median(by_chance)
        say(f"{name}: as many points at random are {middle:.1%} behind [{max(by_chance):.1%}]")
    return figures


def tuned(
    flags: tuple[Flag, ...], points: dict[Point, Outcome], start: Point, goal: Goal
) -> tuple[Point, int]:
    """The point that the search chooses, and how many it measured."""
    refused = Outcome("failed", why="the engine refuses the combination")
    search = Search(Space(flags, start), goal, lambda point: points.get(point, refused))
    found = search.run()
    assert found.best is not None
    return found.best, search.asked
