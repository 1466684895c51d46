"""The curves of the machine: spans that stand still until they are full, and what was recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.host.gpu.figures import GpuReport, GpuSample
from console.host.sample import (
    PRESSURE,
    RAM,
    SPAN_S,
    SPANS,
    History,
    MemorySample,
    Sample,
)
from console.journal.samples import Gauge

T = 1_000_000.0
"""The beginning of a span, Unix seconds."""


def sample(used: int, at: float = 0.0, busy: float | None = 0.5) -> Sample:
    card = GpuSample("GPU-a", 0, "RTX", used, 100, busy)
    return Sample(at, MemorySample(100, 100 - used, 0, 0), (), GpuReport(at, (card,)))


def test_a_curve_stands_still_until_a_span_is_full() -> None:
    history = History()
    assert history.curve(RAM, 3) == [None, None, None]
    span = int(SPAN_S)
    for second in range(2 * span + 1):
        history.take(sample(10 * (second // span)), T + second)
        full = second // span
        known = [one is not None for one in history.curve(RAM, 3)]
        assert known == [False] * (2 - full) + [True] * (1 + full)
    assert history.curve(RAM, 3) == [0, 10, 20]
    assert history.curve(RAM, 0) == []
    assert history.curve("unknown", 2) == [None, None]


def test_what_is_not_known_is_a_gap_and_no_zero() -> None:
    history = History()
    history.take(sample(10), T)
    history.take(sample(30), T + 3 * SPAN_S)
    assert history.curve(RAM, 4) == [10, None, None, 30]
    history.take(sample(10, 1.0, busy=None), T + 4 * SPAN_S)
    assert history.curve("busy", 1, "GPU-a") == [None]
    assert history.curve(PRESSURE, 2) == [None, None]
    assert history.curve("gpu", 1, "GPU-b") == [None]


def test_a_report_of_the_cards_counts_once() -> None:
    history = History()
    history.take(sample(10, at=5.0), T)
    late = Sample(6.0, None, (), sample(90, at=5.0).gpu)
    history.take(late, T + 1)
    assert history.curve("gpu", 1, "GPU-a") == [10]


def test_what_a_run_recorded_comes_before_what_was_sampled_since() -> None:
    history = History()
    history.take(sample(70), T + 2 * SPAN_S)
    before = [
        Gauge(T + n, "up", {"gpu": {"GPU-a": 20.0}}, 30.0, None, 1.5) for n in range(int(SPAN_S))
    ]
    newer = Gauge(T + 2 * SPAN_S + 1, "up", {}, 90.0, None)
    history.load([*before, newer])
    assert history.curve(RAM, 3)[:2] == [30.0, None]
    assert history.curve(RAM, 3)[2] == pytest.approx(80.0)
    assert history.curve("gpu", 3, "GPU-a") == [20.0, None, 70]
    assert history.curve(PRESSURE, 3) == [1.5, None, None]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e12)), max_size=400))
def test_no_series_grows_without_end(values: list[tuple[float, float]]) -> None:
    history = History()
    for at, value in values:
        history.add(RAM, at, value)
    curve = [one for one in history.curve(RAM, 10 * SPANS) if one is not None]
    assert len(curve) <= SPANS
    assert not curve or 0 <= min(curve) <= max(curve) <= 1e12
