"""The forecast that is shown is steady under other people's work, and timely where it matters."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from console.recovery.guard.config import NOTHING_PREDICTED, defaults
from console.recovery.guard.decide.forecast import FAR_S, URGENT_S, Countdown, Forecast
from console.recovery.guard.observe.snapshot import Memory

GB = 10**9
TOTAL = 377 * GB
MACHINE = defaults(TOTAL, 0)


class Shown:
    def __init__(self) -> None:
        self.forecast, self.countdown = Forecast(MACHINE, NOTHING_PREDICTED), Countdown()
        self.at, self.rows = 0.0, list[tuple[float, float | None, float | None]]()

    def see(self, available: float) -> None:
        memory = Memory(self.at, TOTAL, int(available), 0, 0, 0, 0)
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
        (tte, raw, (320 * GB - at * GB - MACHINE.reserve) / GB)
        for at, tte, raw in shown.rows if at > 12
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
    at, tte, raw = shown.rows[-1]
    assert raw is not None
    assert raw < URGENT_S
    assert (at, tte) == (pytest.approx(1.45), raw)
    assert shown.countdown.rate == shown.forecast.rate


def test_nothing_is_told_from_one_look() -> None:
    shown = Shown()
    shown.see(GB)
    assert shown.countdown.tte_s is None


def test_a_load_that_stops_is_soon_not_shown() -> None:
    shown = Shown()
    for tick in range(200):
        shown.see(200 * GB - tick * 0.05 * GB)
    assert shown.countdown.tte_s == pytest.approx(185, rel=0.1)
    for _ in range(1200):
        shown.see(190 * GB)
    assert shown.countdown.tte_s == math.inf
