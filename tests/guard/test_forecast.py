"""Slopes, time to exhaustion, the prediction and stalls, computed from samples with their times as
plain values."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import GIB, NOTHING_PREDICTED, defaults
from console.recovery.guard.decide.forecast import Forecast, Stall
from console.recovery.guard.observe.snapshot import GpuMemory, Memory

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
    assert slopes.short == pytest.approx(5 * GB)
    assert slopes.medium == pytest.approx(5 * GB)
    assert slopes.smooth == pytest.approx(5 * GB)
    assert forecast.tte_s == pytest.approx((left - MACHINE.reserve) / (5 * GB))


def test_nothing_is_told_from_one_look() -> None:
    forecast = made()
    assert forecast.tte_s is None
    forecast.update(at(100, 200 * GB))
    assert forecast.tte_s is None
    assert forecast.slopes.short is None
    forecast.update(at(100.1, 100 * GB))
    assert forecast.tte_s is None


def test_what_does_not_fill_has_no_end() -> None:
    for rate in (0.0, -GB):
        forecast = made()
        fill(forecast, rate, 4, 300 * GB)
        assert forecast.tte_s == math.inf


def test_the_steepest_slope_counts_while_it_grows() -> None:
    forecast = made()
    left = fill(forecast, 0.5 * GB, 5, 300 * GB)
    fill(forecast, 6 * GB, 0.5, left, 105.0)
    assert forecast.rate == pytest.approx(6 * GB, rel=0.01)
    slopes = forecast.slopes
    assert slopes.short is not None
    assert slopes.medium is not None
    assert slopes.smooth is not None
    assert slopes.short > slopes.medium > slopes.smooth > 0


def test_a_pause_is_slower_and_then_an_end() -> None:
    forecast = made()
    left = fill(forecast, 4 * GB, 5, 300 * GB)
    fill(forecast, 0, 1, left, 105.0)
    assert 0 < forecast.rate < 4 * GB
    assert forecast.tte_s is not None
    assert forecast.tte_s < math.inf
    fill(forecast, 0, 3, left, 106.0)
    assert forecast.rate == 0
    assert forecast.tte_s == math.inf


def test_swapping_out_is_no_relief() -> None:
    forecast = made()
    for tick in range(100):
        forecast.update(at(100 + tick * 0.05, 10 * GB, tick * 0.05 * GB))
    assert forecast.rate == pytest.approx(GB)
    assert forecast.tte_s == 0.0


def test_below_the_reserve_only_growth_that_arrives_counts() -> None:
    for rate, end in ((0.5 * GB, 0.0), (0.02 * GB, math.inf)):
        forecast = made()
        fill(forecast, rate, 4, MACHINE.reserve)
        assert forecast.tte_s == end


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
    assert left == pytest.approx(42 * GB)
    assert forecast.on_course
    assert forecast.tte_s == math.inf
    fill(forecast, 6 * GB, 4.8, left, 143.0)  # past it by more than a tenth
    assert not forecast.on_course
    assert forecast.tte_s is not None
    assert forecast.tte_s < 1


@pytest.mark.parametrize("peak", [300 * GB, 293 * GB, 642 * GB])
def test_a_prediction_that_ends_badly_excuses_nothing(peak: int) -> None:
    forecast = made(peak)
    fill(forecast, 6 * GB, 4, 300 * GB)
    assert not forecast.on_course
    assert forecast.tte_s is not None
    assert forecast.tte_s < math.inf


def test_a_prediction_with_swap_excuses_nothing() -> None:
    forecast = Forecast(MACHINE, Envelope((Point("loaded", None, 100 * GB, swap=GB),)))
    forecast.start(at(99, 300 * GB))
    fill(forecast, GB, 4, 300 * GB)
    assert not forecast.on_course


def test_what_was_swapped_out_is_still_taken() -> None:
    forecast = made(260 * GB)
    forecast.update(at(100, 40 * GB))
    assert forecast.on_course
    forecast.update(at(100.05, 40 * GB, 60 * GB))
    assert not forecast.on_course


def test_what_is_outside_the_prediction_is_said() -> None:
    envelope = Envelope((Point("loaded", None, 100 * GB, vram=(("GPU-a", 20 * GIB),)),))
    forecast = Forecast(MACHINE, envelope)
    assert forecast.outside(at(99, 1), ()) is None
    card = GpuMemory("GPU-a", 99, 4 * GIB, 96 * GIB)
    forecast.start(at(99, 300 * GB), (card, GpuMemory("GPU-b", 99, GIB, 32 * GIB)))
    assert forecast.outside(at(100, 195 * GB), (card,)) is None
    more = (
        GpuMemory("GPU-a", 100, 30 * GIB, 96 * GIB),
        GpuMemory("GPU-b", 100, 30 * GIB, 32 * GIB),
    )
    found = forecast.outside(at(100, 150 * GB, 3 * GIB), more)
    assert found is not None
    assert [figure in found for figure in ("139.7 GiB", "3.0 GiB", "26.0 GiB")] == [True] * 3
    forecast.stop()
    assert forecast.outside(at(101, 1), more) is None


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


def shares(rows: Iterator[tuple[float, int]]) -> list[float | None]:
    stall, found = Stall(), []
    for t, total in rows:
        stall.update(t, total)
        found.append(stall.share)
    return found


def test_the_share_is_of_the_last_second() -> None:
    quiet = [(tick * 0.05, 0) for tick in range(40)]
    busy = [(2 + tick * 0.05, tick * 25_000) for tick in range(40)]  # half of the time
    found = shares(iter([*quiet, *busy]))
    assert found[:10] == [None] * 10
    assert found[39] == 0
    assert found[50] == pytest.approx(25, abs=2)
    assert found[-1] == pytest.approx(50)


def test_a_late_look_counts_what_was_waited_meanwhile() -> None:
    found = shares(iter([(0.0, 0), (1.0, 0), (6.0, 4_000_000)]))
    assert found[-1] == pytest.approx(80)


def test_totals_that_went_back_begin_anew() -> None:
    found = shares(iter([(0.0, 10**9), (1.0, 10**9), (2.0, 5), (3.0, 500_005)]))
    assert found[1] == 0
    assert found[2] is None
    assert found[3] == pytest.approx(50)


def test_no_totals_no_share() -> None:
    stall = Stall()
    stall.update(0, 0)
    stall.update(1, 10)
    stall.update(2, None)
    assert stall.share is None


def test_noise_on_a_plateau_is_no_load() -> None:
    forecast, noise = made(), random.Random(3)
    low = 0.0
    for tick in range(4000):
        forecast.update(at(100 + tick * 0.05, 120 * GB + noise.uniform(0, 0.5 * GB)))
        tte_s = forecast.tte_s
        low = min(low or math.inf, math.inf if tte_s is None else tte_s)
    assert low > 30
