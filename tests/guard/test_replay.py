"""The incident, its variants and recorded loads, replayed with the sentinel's own policy."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.models.sizing.assessment import HOST_MARGIN, Verdict
from console.models.sizing.load_curve import Envelope
from console.recovery.guard.config import NOTHING_PREDICTED
from tests.guard.replay import replay, replay_memories
from tests.guard.replay_machine import (
    GB,
    SHAPES,
    TOTAL,
    Curve,
    Filling,
    conversion,
    incident,
    line,
    mapped,
    preflight,
    ramp,
    storm,
)
from tests.guard.replay_record import CURVES, HOUR_S, idle_hour, read
from tests.guard.replay_table import group_of, predicted

Shape = Callable[[float, float], Curve]
MAX_GO = TOTAL - HOST_MARGIN - 1e6
RECORDED = sorted(path.name for path in CURVES.glob("*.csv.gz"))
POINT_S = 90.0
"""The second at which F-022 was at 375 GB."""


@pytest.mark.parametrize(
    "envelope",
    [NOTHING_PREDICTED, preflight(incident())[1], predicted(350)],
    ids=["nothing predicted", "NO-GO", "TIGHT"],
)
def test_the_incident_is_warned_of_and_stopped(envelope: Envelope) -> None:
    found = replay(incident(), envelope)
    assert (found.warned_at or POINT_S) <= POINT_S - 30
    assert (found.acted_at or POINT_S) <= POINT_S - 10
    assert found.lowest > 20 * GB
    assert "RAM full in" in found.reason


@pytest.mark.parametrize("load", [200, 300, 340])
def test_a_prediction_by_mistake_delays_it_and_does_not_prevent_it(load: float) -> None:
    found = replay(incident(), predicted(load))
    assert (found.warned_at or POINT_S) <= POINT_S - 30
    assert (found.acted_at or POINT_S) < POINT_S
    assert found.lowest > 8 * GB


def test_the_conversion_is_stopped_before_swap_takes_over() -> None:
    found = replay(conversion(20.0))
    assert (found.acted_at or math.inf) < 32 * 20.0
    assert found.lowest > 35 * GB


def test_the_model_has_the_published_points() -> None:
    filling = Filling(incident())
    seen = {}
    for second in range(1, 91):
        filling.step(1.0)
        seen[second] = (filling.ram / GB, filling.memory().swap_used / GB)
    assert seen[60] == pytest.approx((319, 2.6), abs=0.1)
    assert seen[90] == pytest.approx((375, 8.0), abs=0.1)


def test_the_model_swaps_as_much_as_was_published() -> None:
    grows = line([(0, 319 * GB), (30, 380.4 * GB)])
    filling = Filling(Curve("the last 30 s", grows, 60, 381 * GB))
    for _ in range(300):
        filling.step(0.1)
    assert filling.ram / GB == pytest.approx(375, abs=0.3)
    assert filling.swapped / GB == pytest.approx(5.4, abs=0.3)


@settings(max_examples=12, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    rate=st.floats(1.0, 6.0),
    end=st.floats(0.6 * TOTAL, 1.4 * TOTAL),
    seed=st.integers(0, 99),
)
def test_the_family(shape: Shape, rate: float, end: float, seed: int) -> None:
    _holds(shape(rate * GB, end), seed)


@pytest.mark.parametrize("end", [MAX_GO, 1.003 * TOTAL, 1.4 * TOTAL])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_edges_of_the_family(shape: Shape, end: float) -> None:
    for rate in (2.0, 6.0):
        _holds(shape(rate * GB, end), 3)


@pytest.mark.parametrize("end", [MAX_GO, 1.003 * TOTAL])
def test_a_slow_load(end: float) -> None:
    """A load of 0.2 GB/s that starts high, because nothing happens on the way there."""
    start = 0.85 * TOTAL
    seconds = (end - start) / (0.2 * GB)

    def demand(t: float) -> float:
        return start + min(t, seconds) * 0.2 * GB

    curve = Curve("slow", demand, seconds + 10, end)
    verdict, _ = preflight(curve)
    found = replay(curve, predicted((end - start) / GB))
    assert (verdict is Verdict.GO) == (end == MAX_GO)
    assert (found.acted_at is not None) == curve.past


def _holds(curve: Curve, seed: int) -> None:
    verdict, envelope = preflight(curve)
    found = replay(curve, envelope, seed)
    group = group_of(curve, verdict)
    if group == "preflight says GO":
        assert found.acted_at is None, found
    if group == "past the machine":
        assert found.acted_at is not None
        assert found.lowest > 2 * GB  # before thrashing begins


def test_without_a_prediction_it_is_stopped_as_well() -> None:
    for shape in (ramp, storm):
        found = replay(shape(3 * GB, 1.02 * TOTAL))
        assert found.acted_at is not None
        assert found.lowest > 8 * GB


def test_page_cache_is_no_load() -> None:
    found = replay(mapped(6 * GB, 1.4 * TOTAL))
    assert (found.warned_at, found.acted_at) == (None, None)


def test_there_are_recordings() -> None:
    assert len(RECORDED) >= 12


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_load_is_let_alone(name: str) -> None:
    curve = read(CURVES / name)
    found = replay_memories(curve.memories(), curve.total, curve.swap_total)
    assert found.snapshots == len(curve.rows)
    assert found.acted_at is None, found


@pytest.mark.parametrize("name", RECORDED)
def test_on_a_smaller_machine_the_same_load_is_stopped(name: str) -> None:
    """The recordings can lead to a kill: they do once the RAM that they used is taken away."""
    curve = read(CURVES / name)
    less = (curve.lowest() - (1 << 30)) // 1024
    rows = [(row[0], row[1] - less, row[2], row[3], row[4]) for row in curve.rows]
    lowered = replace(curve, rows=tuple(rows))
    found = replay_memories(lowered.memories(), curve.total, curve.swap_total)
    assert found.acted_at is not None


def test_an_hour_of_idle() -> None:
    found = replay_memories(*idle_hour())
    assert found.snapshots > HOUR_S * 15
    assert found.acted_at is None
