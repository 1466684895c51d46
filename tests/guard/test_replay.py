"""The incident and its variants, replayed with the sentinel's own policy and time as a value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.models.sizing.assessment import HOST_MARGIN, Verdict
from console.models.sizing.load_curve import Envelope
from console.recovery.guard.config import NOTHING_PREDICTED
from tests.guard.replay import replay
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
from tests.guard.replay_others import others
from tests.guard.replay_table import beside, group_of, predicted

MOST_GO = TOTAL - HOST_MARGIN - 1e6
POINT_S = 90.0
"""The second at which F-022 was at 375 GB."""


@pytest.mark.parametrize(
    "envelope",
    [NOTHING_PREDICTED, preflight(incident())[1], predicted(350)],
    ids=["nothing predicted", "NO-GO", "TIGHT"],
)
def test_the_incident_is_warned_of_and_stopped(envelope: Envelope) -> None:
    found = replay(incident(), envelope)
    assert found.warned_at is not None
    assert found.acted_at is not None
    assert found.warned_at <= POINT_S - 30
    assert found.acted_at <= POINT_S - 10
    assert found.lowest > 20 * GB
    assert "RAM full in" in found.reason


def test_a_prediction_by_mistake_delays_it_and_does_not_prevent_it() -> None:
    for load in (200, 300, 340):
        envelope = predicted(load)
        found = replay(incident(), envelope)
        assert found.warned_at is not None
        assert found.acted_at is not None
        assert found.warned_at <= POINT_S - 30
        assert found.acted_at < POINT_S
        assert found.lowest > 8 * GB


def test_the_conversion_is_stopped_before_swap_takes_over() -> None:
    found = replay(conversion(20.0))
    assert found.acted_at is not None
    assert found.acted_at < 32 * 20.0
    assert found.lowest > 35 * GB


def test_the_usual_rules_come_too_late() -> None:
    rules = others(incident())
    late = [rules[name] for name in ("earlyoom TERM", "oomd swap", "oomd pressure")]
    assert all(at is not None and at > POINT_S + 30 for at in late)


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
def test_the_family(shape: object, rate: float, end: float, seed: int) -> None:
    assert callable(shape)
    _holds(shape(rate * GB, end), seed)


@pytest.mark.parametrize("end", [MOST_GO, 1.003 * TOTAL, 1.4 * TOTAL])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_edges_of_the_family(shape: object, end: float) -> None:
    assert callable(shape)
    for rate in (2.0, 6.0):
        _holds(shape(rate * GB, end), 3)


@pytest.mark.parametrize("end", [MOST_GO, 1.003 * TOTAL])
def test_a_slow_load(end: float) -> None:
    """A load of 0.2 GB/s that starts high, because nothing happens on the way there."""
    start = 0.85 * TOTAL
    seconds = (end - start) / (0.2 * GB)

    def demand(t: float) -> float:
        return start + min(t, seconds) * 0.2 * GB

    curve = Curve("slow", demand, seconds + 10, end)
    verdict, _ = preflight(curve)
    found = replay(curve, predicted((end - start) / GB))
    assert (verdict is Verdict.GO) == (end == MOST_GO)
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


def test_the_table_names_what_it_should() -> None:
    lines = list(beside([incident(), ramp(6 * GB, 1.05 * TOTAL)]))
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")
    assert lines[2].startswith("| F-022 |")
