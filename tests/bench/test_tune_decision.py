"""Whether a combination is surely faster than today's flags: by starts that are made to decide."""

import itertools
import math
import random

import pytest

from console.bench.tune.decision import Ask, Decision, gain_of
from console.bench.tune.outcome import Goal, Outcome, speed
from console.bench.tune.search import Search
from console.bench.tune.space import Point, space
from tests.bench.test_tune import GIB, grid, measured


def decide(search: Search, again: Ask, label: str = "run") -> None:
    Decision(
        search.result, search.space.start, search.goal, lambda point, _: again(point), search.gain,
        label,
    ).run()  # fmt: skip


def test_a_lucky_point_does_not_win_over_todays_flags() -> None:
    search = Search(grid((2,)), Goal(), lambda point: measured(10.0 + point[0]))
    assert search.run().best == (1,)
    later = itertools.cycle([10.0, 9.9, 10.2, 9.8, 10.1])
    decide(search, lambda _: measured(next(later)))
    assert search.result.best == (0,)
    assert "surely" in search.result.why


def test_a_surely_faster_point_wins_by_the_starts_made_to_decide() -> None:
    search = Search(grid((2,)), Goal(), lambda point: measured(10.0 + 9 * point[0]), gain=0.02)
    search.run()
    later = itertools.cycle([1.0, 0.99, 1.01])
    decide(search, lambda point: measured((10.0 + 2 * point[0]) * next(later)))
    assert search.result.best == (1,)
    gain = search.result.gains[1,]
    assert gain.mean == pytest.approx(0.2, abs=0.05)  # and not the 0.9 that the search saw
    assert gain.low > 0.02


def test_a_point_that_fails_when_it_is_measured_again_does_not_win() -> None:
    search = Search(grid((2,)), Goal(), lambda point: measured(10.0 + 9 * point[0]))
    search.run()
    decide(search, lambda point: Outcome("failed", why="died") if point[0] else measured(10.0))
    assert search.result.best == (0,)
    assert search.result.dropped == {(1,): "died"}


def test_a_failure_of_todays_flags_may_be_chance_and_limits_nothing() -> None:
    made = space({"-ub": ["512", "1024"]}, ("x", "-ub", "512"))
    first = iter([Outcome("host", why="killed"), measured(10.0)])
    found = Search(
        made, Goal(), lambda point: next(first) if point == (0,) else measured(9.0)
    ).run()
    assert found.best == (0,)
    assert found.outcomes[1,].fate == "measured"


def test_only_starts_of_one_round_are_compared() -> None:
    """Days later the machine is 10 % faster, and a value that was not asked for before is not."""
    search = Search(grid((3,)), Goal(), lambda point: measured(10.0 + point[0] / 100), most=2)
    search.run()
    noise = itertools.cycle([0.01, -0.01, 0.0])
    decide(search, lambda _: measured(10.0 + next(noise)), "one")
    known = search.result.outcomes
    later = Search(grid((3,)), Goal(), lambda _: measured(11.0), gain=0.02, known=known)
    later.run()
    asked: list[Point] = []

    def again(point: Point) -> Outcome:
        asked.append(point)
        return measured(11.0 + next(noise))

    decide(later, again, "two")
    assert later.result.best == (0,)
    assert asked.count((2,)) == asked.count((0,)) == 3
    assert (1,) not in asked  # its own rounds are decided already


def test_the_surely_faster_of_two_wins_though_the_other_looks_better_and_wavers() -> None:
    search = Search(grid((3,)), Goal(), lambda point: measured(10.0 + 2 * point[0]), gain=0.02)
    search.run()
    wavers = itertools.cycle([9.0, 15.0, 9.5, 14.5])
    noise = itertools.cycle([0.01, -0.01, 0.0])
    decide(
        search,
        lambda p: measured(next(wavers) if p == (2,) else 10.0 + p[0] + next(noise)),
    )
    assert search.result.best == (1,)


def test_a_start_of_todays_flags_that_fails_is_made_again() -> None:
    search = Search(grid((2,)), Goal(), lambda point: measured(10.0 + 9 * point[0]), gain=0.02)
    search.run()
    fails = iter([True])

    def again(point: Point) -> Outcome:
        if point == (0,) and next(fails, False):
            return Outcome("failed", why="died")
        return measured(10.0 + 9 * point[0])

    decide(search, again)
    assert (search.result.best, search.result.dropped) == ((1,), {})


def test_where_todays_flags_fail_again_it_is_said_and_nothing_is_decided() -> None:
    search = Search(grid((2,)), Goal(), lambda point: measured(10.0 + 9 * point[0]), gain=0.02)
    search.run()
    decide(search, lambda p: measured(19.0) if p[0] else Outcome("failed", why="died"))
    assert (search.result.best, search.result.gains) == ((0,), {})
    assert "nothing is decided" in search.result.why


def test_todays_flags_that_take_too_much_are_compared_and_do_not_win() -> None:
    def ask(point: Point) -> Outcome:
        return Outcome("measured", decode=speed(9.0 - point[0]), vram=(10 - point[0]) * GIB)

    search = Search(grid((3,)), Goal(vram=9 * GIB), ask)
    search.run()
    assert search.point_count == 3
    decide(search, ask)
    assert search.result.best == (1,)
    assert search.result.gains[1,].mean == pytest.approx(-1 / 9)


def test_what_ended_the_search_is_still_said_where_nothing_is_faster() -> None:
    search = Search(grid((6, 6)), Goal(), lambda _: measured(10.0), most=2)
    search.run()
    decide(search, lambda _: measured(10.0))
    assert "2 points were measured" in search.result.why
    assert "nothing is surely faster" in search.result.why


def test_without_a_figure_the_fastest_that_serves_again_is_said() -> None:
    search = Search(
        grid((3,)), Goal(), lambda p: measured(9.0 + p[0]) if p[0] else Outcome("failed")
    )
    search.run()
    decide(search, lambda p: measured(9.0) if p == (1,) else Outcome("failed", why="died"))
    assert search.result.best == (1,)


def test_without_a_figure_of_todays_flags_nothing_is_compared() -> None:
    made = space({"-ub": ["512", "1024"]}, ("x", "-ub", "512"))
    search = Search(
        made, Goal(), lambda point: measured(9.0) if point[0] else Outcome("host", why="killed")
    )
    search.run()
    decide(search, lambda _: measured(9.0))
    assert (search.result.best, search.result.gains) == ((1,), {})
    assert "no figure" in search.result.why


def test_equal_combinations_hardly_ever_give_a_winner() -> None:
    """Where nothing is faster, starts differ by 2 % and samples by half a percent."""
    chance, false = random.Random(11), 0
    sizes, rounds = (4, 4, 3, 2), 200

    def ask(_: Point) -> Outcome:
        start = chance.gauss(10.0, 0.2)
        return Outcome("measured", decode=speed(*(chance.gauss(start, 0.05) for _ in range(5))))

    for _ in range(rounds):
        search = Search(grid(sizes), Goal(), ask, gain=0.02)
        search.run()
        decide(search, ask)
        false += search.result.best != (0, 0, 0, 0)
    assert false <= 0.05 * rounds


def test_an_interval_is_students_over_the_rounds() -> None:
    assert gain_of([11.0, 11.0], [10.0, 10.0]) is None
    gain = gain_of([11.0, 12.0, 13.0], [10.0, 10.0, 10.0])
    assert gain is not None
    logs = [math.log(1.1), math.log(1.2), math.log(1.3)]
    middle = sum(logs) / 3
    half = 4.303 * math.sqrt(sum((one - middle) ** 2 for one in logs) / 2 / 3)
    assert (gain.low, gain.high) == pytest.approx(
        (math.expm1(middle - half), math.expm1(middle + half))
    )
