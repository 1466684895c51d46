"""Slopes, time to exhaustion, the prediction and stalls; and what of it is shown: steadily under
other people's work, and timely where it matters."""

import math
import random
from itertools import pairwise

import pytest

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import NOTHING_PREDICTED, defaults
from console.recovery.guard.decide.forecast import FAR_S, URGENT_S, Countdown, Forecast, Stall
from console.recovery.guard.observe.snapshot import Memory

GB = 10**9
TOTAL, SWAP = 377 * GB, 207 * GB
MACHINE = defaults(TOTAL, SWAP)


def at(t: float, available: float, swap: float = 0.0, total: int = TOTAL) -> Memory:
    return Memory(t, total, int(available), SWAP, int(swap), 0, 0)


def fill(
    forecast: Forecast, rate: float, seconds: float, available: float, start: float = 100.0
) -> float:
    """Sample every 50 ms while RAM fills at this many bytes a second; returns what is available
    then."""
    for tick in range(int(seconds / 0.05) + 1):
        forecast.update(at(start + tick * 0.05, available - rate * tick * 0.05))
    return available - rate * int(seconds / 0.05) * 0.05


def made(peak: int | None = None, available: float = 300 * GB) -> Forecast:
    envelope = Envelope((Point("loaded", None, peak),)) if peak is not None else NOTHING_PREDICTED
    forecast = Forecast(MACHINE, envelope)
    forecast.start(at(99.0, available))
    return forecast


def test_a_steady_load() -> None:
    forecast = made()
    left = fill(forecast, 5 * GB, 4, 300 * GB)
    slopes = forecast.slopes
    assert (slopes.short, slopes.medium, slopes.smooth) == (pytest.approx(5 * GB),) * 3
    assert forecast.tte_s == pytest.approx((left - MACHINE.reserve) / (5 * GB))


def test_nothing_is_told_from_one_look() -> None:
    shown = Shown()
    for _ in range(3):
        shown.see(GB)
        assert (shown.countdown.tte_s, shown.forecast.tte_s) == (None, None)
        assert shown.forecast.slopes.short is None


@pytest.mark.parametrize(
    ("rate", "available", "end"),
    [
        (0.0, 300 * GB, math.inf), (-GB, 300 * GB, math.inf), (0.5 * GB, MACHINE.reserve, 0.0),
        (0.02 * GB, MACHINE.reserve, math.inf),
    ],
)  # fmt: skip
def test_what_does_not_fill_has_no_end_and_below_the_reserve_only_growth_that_arrives_counts(
    rate: float, available: float, end: float
) -> None:
    forecast = made()
    fill(forecast, rate, 4, available)
    assert forecast.tte_s == end


def test_the_steepest_slope_counts_while_it_grows() -> None:
    forecast = made()
    left = fill(forecast, 0.5 * GB, 5, 300 * GB)
    fill(forecast, 6 * GB, 0.5, left, 105.0)
    assert forecast.rate == pytest.approx(6 * GB, rel=0.01)
    slopes = forecast.slopes
    assert (slopes.short or 0) > (slopes.medium or 0) > (slopes.smooth or 0) > 0


def test_a_pause_is_slower_and_then_an_end() -> None:
    forecast = made()
    left = fill(forecast, 4 * GB, 5, 300 * GB)
    fill(forecast, 0, 1, left, 105.0)
    assert 0 < forecast.rate < 4 * GB
    assert (forecast.tte_s or math.inf) < math.inf
    fill(forecast, 0, 3, left, 106.0)
    assert (forecast.rate, forecast.tte_s) == (0, math.inf)


def test_swapping_out_is_no_relief() -> None:
    forecast = made()
    for tick in range(100):
        forecast.update(at(100 + tick * 0.05, 10 * GB, tick * 0.05 * GB))
    assert forecast.rate == pytest.approx(GB)
    assert forecast.tte_s == 0.0


def test_the_same_look_again_changes_nothing() -> None:
    forecast = made()
    left = fill(forecast, 5 * GB, 4, 300 * GB)
    before = (forecast.slopes, forecast.tte_s)
    for _ in range(100):
        forecast.update(at(104.0, left))
    assert (forecast.slopes, forecast.tte_s) == before


@pytest.mark.parametrize("change", ["memory", "clock"])
def test_other_memory_or_another_clock_begins_anew(change: str) -> None:
    forecast = made()
    fill(forecast, 5 * GB, 4, 300 * GB)
    if change == "memory":
        forecast.update(at(104.05, 10 * GB, total=64 * GB))
    else:
        forecast.update(at(50.0, 10 * GB))
    assert forecast.slopes.short is None
    assert forecast.tte_s is None


def test_a_predicted_load_is_on_its_course() -> None:
    forecast = made(260 * GB)  # ends with 40 GB left
    left = fill(forecast, 6 * GB, 43, 300 * GB)
    assert (forecast.on_course, forecast.tte_s) == (True, math.inf)
    fill(forecast, 6 * GB, 4.8, left, 143.0)  # past it by more than a tenth
    assert not forecast.on_course
    assert forecast.tte_s is not None
    assert forecast.tte_s < 1


@pytest.mark.parametrize(("peak", "swap"), [(300, 0), (293, 0), (100, GB)])
def test_a_prediction_that_ends_badly_or_with_swap_excuses_nothing(peak: int, swap: int) -> None:
    forecast = Forecast(MACHINE, Envelope((Point("loaded", None, peak * GB, swap=swap),)))
    forecast.start(at(99, 300 * GB))
    fill(forecast, 6 * GB, 4, 300 * GB)
    assert not forecast.on_course
    assert (forecast.tte_s or math.inf) < math.inf


def test_what_was_swapped_out_is_still_taken() -> None:
    forecast = made(260 * GB)
    forecast.update(at(100, 40 * GB))
    assert forecast.on_course
    forecast.update(at(100.05, 40 * GB, 60 * GB))
    assert not forecast.on_course


def test_hours_of_looks_are_not_kept() -> None:
    forecast, stall = made(), Stall()
    rings = (forecast._short.points, forecast._medium.points, stall._ring.points)
    most = [0, 0, 0]
    t = 100.0
    for tick in range(50_000):
        t += 0.02 if tick % 3 else 0.001
        forecast.update(at(t, 300 * GB))
        stall.update(t, tick)
        most = [max(size, len(ring)) for size, ring in zip(most, rings, strict=True)]
    assert max(most) <= 3.0 / 0.015 + 2


def shares(rows: list[tuple[float, int | None]]) -> list[float | None]:
    stall, found = Stall(), []
    for t, total in rows:
        stall.update(t, total)
        found.append(stall.share)
    return found


def test_the_share_is_of_the_last_second() -> None:
    rows: list[tuple[float, int | None]] = [(tick * 0.05, 0) for tick in range(40)]
    rows += [(2 + tick * 0.05, tick * 25_000) for tick in range(40)]  # half of the time
    found = shares(rows)
    assert found[:10] == [None] * 10
    assert found[39] == 0
    assert found[50] == pytest.approx(25, abs=2)
    assert found[-1] == pytest.approx(50)


def test_a_late_look_counts_what_was_waited_meanwhile() -> None:
    assert shares([(0.0, 0), (1.0, 0), (6.0, 4_000_000)])[-1] == pytest.approx(80)


def test_totals_that_went_back_begin_anew_and_none_are_no_share() -> None:
    rows = [(0.0, 10**9), (1.0, 10**9), (2.0, 5), (3.0, 500_005), (4.0, None)]
    assert shares(rows)[1:] == [0, None, pytest.approx(50), None]


def test_noise_on_a_plateau_is_no_load() -> None:
    forecast, noise = made(), random.Random(3)
    low = 0.0
    for tick in range(4000):
        forecast.update(at(100 + tick * 0.05, 120 * GB + noise.uniform(0, 0.5 * GB)))
        tte_s = forecast.tte_s
        low = min(low or math.inf, math.inf if tte_s is None else tte_s)
    assert low > 30


class Shown:
    def __init__(self) -> None:
        self.forecast, self.countdown = Forecast(MACHINE, NOTHING_PREDICTED), Countdown()
        self.at, self.rows = 0.0, list[tuple[float, float | None, float | None]]()

    def see(self, available: float) -> None:
        memory = at(self.at, available)
        self.forecast.update(memory)
        self.countdown.update(memory, self.forecast)
        self.rows.append((self.at, self.countdown.tte_s, self.forecast.tte_s))
        self.at += 0.05


def test_gusts_of_others_are_not_shown() -> None:
    shown, rng = Shown(), random.Random(1)
    available = 200.0 * GB
    for tick in range(2400):
        if tick % 40 == 0:
            available = 200 * GB + rng.uniform(-1, 1) * GB  # a build takes and frees memory
        shown.see(available)
    decided = [raw for _, _, raw in shown.rows if raw is not None and raw < FAR_S]
    assert len(decided) > 200, "the forecast itself jumps"
    assert [tte for _, tte, _ in shown.rows[20:] if tte != math.inf] == []


def test_a_load_beside_gusts_is_shown_steadily() -> None:
    shown, rng = Shown(), random.Random(2)
    gust = 0.0
    for tick in range(800):
        if tick % 10 == 0:
            gust = rng.uniform(-0.2, 0.2) * GB
        shown.see(320 * GB - tick * 0.05 * GB + gust)
    reached = [
        (tte, raw, (320 * GB - seen * GB - MACHINE.reserve) / GB)
        for seen, tte, raw in shown.rows if seen > 12
    ]  # fmt: skip
    assert all(tte is not None and abs(tte / true - 1) < 0.25 for tte, _, true in reached)
    assert any(raw is not None and abs(raw / true - 1) > 0.35 for _, raw, true in reached)
    steps = [abs(b[0] - a[0]) for a, b in pairwise(reached) if a[0] and b[0]]
    assert max(steps) < 4, "the judged one jumps by a hundred"


def test_what_is_urgent_is_shown_as_it_is_judged() -> None:
    shown = Shown()
    left = 60 * GB
    for tick in range(30):
        shown.see(left + MACHINE.reserve - tick * 0.05 * 10 * GB)
    seen, tte, raw = shown.rows[-1]
    assert raw is not None
    assert raw < URGENT_S
    assert (seen, tte) == (pytest.approx(1.45), raw)
    assert shown.countdown.rate == shown.forecast.rate


def test_a_load_that_stops_is_soon_not_shown() -> None:
    shown = Shown()
    for tick in range(200):
        shown.see(200 * GB - tick * 0.05 * GB)
    assert shown.countdown.tte_s == pytest.approx(185, rel=0.1)
    for _ in range(1200):
        shown.see(190 * GB)
    assert shown.countdown.tte_s == math.inf
