"""A shift of the speed is told where noise does not explain it, and its beginning is known."""

import json

import pytest

from console.bench.statistics import interval
from console.watch.speed import LEARN, SUSTAINED, Figure, Shift, Speed
from tests.watching.conftest import RATE, Noise

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def speed(declared: float | None = None, tolerance: float = 0.10) -> Speed:
    return Speed(tolerance, declared, None, interval)


def fed(
    into: Speed, noise: Noise, hours: tuple[float, float], level: float = RATE
) -> list[tuple[float, Shift]]:
    """Shifts told, with their times, of a figure a minute from the first hour to the second."""
    told = []
    for minute in range(int(hours[0] * 60), int(hours[1] * 60)):
        at = minute * MINUTE
        if (shift := into.add(Figure(at, noise(at, level)))) is not None:
            told.append((at, shift))
    return told


@pytest.mark.parametrize("spread", [0.004, 0.015, 0.04])
@pytest.mark.parametrize("seed", range(4))
def test_a_week_of_noise_gives_no_word(seed: int, spread: float) -> None:
    assert fed(speed(), Noise(seed, spread, daily=0.03), (0, 7 * 24)) == []


@pytest.mark.parametrize("factor", [0.34, 0.5, 0.8, 0.92])
def test_a_lasting_slowdown_is_told_once_with_its_beginning(factor: float) -> None:
    into, noise = speed(), Noise(5)
    assert fed(into, noise, (0, 40)) == []
    (at, shift), *more = fed(into, noise, (40, 72), RATE * factor)
    assert more == []
    assert shift.slower
    assert abs(shift.since - 40 * HOUR) <= 5 * MINUTE
    assert at - 40 * HOUR <= 2 * SUSTAINED * MINUTE
    assert shift.after / shift.before == pytest.approx(factor, abs=0.05)
    assert into.slow_since == shift.since


def test_what_is_over_before_it_lasts_is_no_word_and_what_comes_back_is_one() -> None:
    into, noise = speed(), Noise(3)
    told = fed(into, noise, (0, 30))
    told += fed(into, noise, (30, 30 + 15 / 60), RATE / 2)
    told += fed(into, noise, (30 + 15 / 60, 40))
    assert told == [], "a build of a quarter of an hour"
    [(_, slower)] = fed(into, noise, (40, 60), RATE / 2)
    [(_, back)] = fed(into, noise, (60, 80))
    assert (slower.slower, slower.back) == (True, False)
    assert (back.slower, back.back) == (False, True)
    assert abs(back.since - 60 * HOUR) <= 5 * MINUTE
    assert into.slow_since == 0


def test_what_is_within_half_the_tolerance_is_not_told() -> None:
    into, noise = speed(tolerance=0.30), Noise(1)
    assert fed(into, noise, (0, 30)) == []
    assert fed(into, noise, (30, 80), RATE * 0.88) == []


@pytest.mark.full
def test_a_slow_drift_is_told_because_the_window_stays_as_it_is() -> None:
    into, noise = speed(), Noise(2, daily=0.0)
    assert fed(into, noise, (0, 30)) == []
    told = []
    for day in range(1, 14):
        told += fed(into, noise, (30 + 24 * (day - 1), 30 + 24 * day), RATE * (1 - 0.01 * day))
    assert told
    assert told[0][1].slower


def test_a_faster_level_becomes_the_usual_one() -> None:
    into, noise = speed(), Noise(4)
    fed(into, noise, (0, 30))
    [(_, faster)] = fed(into, noise, (30, 60), RATE * 1.3)
    assert (faster.slower, faster.back, into.slow_since) == (False, False, 0)
    [(_, slower)] = fed(into, noise, (60, 90))
    assert slower.slower
    assert into.slow_since > 0


def test_one_that_is_slow_already_is_told_by_the_reference_of_the_site() -> None:
    into = speed(declared=RATE * 2)
    [(at, shift)] = fed(into, Noise(6), (0, 24))
    assert at == (LEARN - 1) * MINUTE
    assert (shift.slower, shift.before, shift.good) == (True, RATE * 2, None)
    assert fed(speed(declared=RATE * 1.05), Noise(6), (0, 24)) == []


def test_what_is_saved_goes_on_as_if_nothing_had_happened() -> None:
    whole, parts = speed(declared=10.0), speed(declared=10.0)
    noise, same = Noise(7), Noise(7)
    expected = fed(whole, noise, (0, 20)) + fed(whole, noise, (20, 30), RATE / 2)
    told = []
    for hour in range(30):
        told += fed(parts, same, (hour, hour + 1), RATE if hour < 20 else RATE / 2)
        saved = json.loads(json.dumps(parts.to_json()))
        parts = Speed(0.10, 10.0, saved, interval)
    assert told == expected
    assert len(told) == 1


def test_another_reference_in_the_site_file_begins_anew() -> None:
    into = speed(declared=10.0)
    fed(into, Noise(8), (0, 10))
    again = Speed(0.10, 8.0, into.to_json(), interval)
    assert (into.lacking, again.lacking, again.accepted) == (0, LEARN, None)


def test_gauges_are_compared_before_and_after() -> None:
    into, noise = speed(), Noise(9)
    told = []
    for minute in range(60 * 30):
        at, slow = minute * MINUTE, minute >= 60 * 20
        figure = Figure(
            at, noise(at, RATE / 2 if slow else RATE), {"SM clock": 900 if slow else 2400}
        )
        told += [shift for shift in [into.add(figure)] if shift is not None]
    [shift] = told
    assert shift.gauges == (("SM clock", 2400, 900),)
