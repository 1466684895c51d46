"""Statistics of small sets, and of none."""

from __future__ import annotations

import json
import math
import random
import statistics as stats
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.bench.metrics import Sample
from console.bench.statistics import cv, describe, interval, mean, median, std, summarise
from tests.waiting import some

FLOATS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12)


def test_by_hand() -> None:
    values = [10.0, 11.0, 12.0, 15.0]
    assert (mean(values), median(values)) == (12.0, 11.5)
    assert std(values) == pytest.approx(stats.stdev(values))
    assert cv(values) == pytest.approx(stats.stdev(values) / 12)


def test_nothing_is_none() -> None:
    assert (mean([]), median([]), std([]), cv([]), std([1.0]), cv([0.0, 0.0])) == (None,) * 6


def test_the_headline_is_the_mean_for_tok_s_and_the_median_elsewhere() -> None:
    rate, first = (describe(name, [1.0, 2.0, 9.0]) for name in ("tok_s", "ttft_s"))
    assert (rate.value, rate.headline, first.value, first.headline) == (4.0, "mean", 2.0, "median")


@given(FLOATS)
def test_no_nan_leaks(values: list[float]) -> None:
    summary = describe("decode_tok_s", values)
    json.dumps(asdict(summary), allow_nan=False)
    assert summary.n == sum(map(math.isfinite, values))
    assert summary.n or summary.median is None


def test_void_runs_are_left_out() -> None:
    good = [Sample(tok_s=rate, ttft_s=0.5) for rate in (10.0, 12.0)]
    bad = [Sample(tok_s=999.0, void="cached"), Sample(void="reset", error="transport: reset")]
    metrics = summarise([*good, *bad, bad[0]])
    assert metrics["tok_s"].samples == [10.0, 12.0]
    assert metrics["error_rate"].value == pytest.approx(0.2)
    assert (metrics["runs"].value, metrics["runs"].n) == (2, 2)


def test_no_samples_at_all() -> None:
    metrics = summarise([])
    found = {name: (metric.value, metric.n) for name, metric in metrics.items()}
    assert found == {**dict.fromkeys(metrics, (None, 0)), "runs": (0.0, 0)}


# --- intervals -------------------------------------------------------------------------------

RATES = st.lists(st.floats(0.1, 1e4), min_size=5, max_size=30)


@settings(deadline=None, max_examples=25)
@given(RATES, st.sampled_from(["mean", "median"]))
def test_an_interval_lies_within_the_samples_and_is_the_same_again(
    values: list[float], headline: str
) -> None:
    found = some(interval(values, headline))
    assert min(values) <= found[0] <= found[1] <= max(values)
    assert interval(values, headline) == found


@pytest.mark.parametrize("headline", ["mean", "median"])
@pytest.mark.parametrize("value", [20.1, 1e-9, 7e11, 0.1])
def test_samples_that_agree_make_a_point(value: float, headline: str) -> None:
    """To the last digit: a rounding error must not make a range of it."""
    assert interval([value] * 9, headline) == (value, value)
    assert mean([value] * 9) == value


def test_few_samples_are_their_point() -> None:
    assert interval([1.0, 2.0, 3.0, 6.0], "mean") == (3.0, 3.0)
    assert interval([1.0, 2.0, 3.0, 6.0], "median") == (2.5, 2.5)
    assert interval([], "mean") is None


def test_more_samples_narrow_it() -> None:
    few = some(interval([19.0, 21.0] * 4, "mean"))
    many = some(interval([19.0, 21.0] * 100, "mean"))
    assert many[1] - many[0] < (few[1] - few[0]) / 3


def test_a_ratio() -> None:
    found = interval([20.0] * 9, "mean", [10.0] * 9)
    assert found == (2.0, 2.0)
    wide = some(interval([19.0, 20.0, 21.0] * 3, "mean", [9.0, 10.0, 11.0] * 3))
    assert 1.8 < wide[0] < 2.0 < wide[1] < 2.2
    assert interval([20.0] * 9, "mean", [10.0]) == (2.0, 2.0)
    assert interval([20.0] * 9, "mean", [0.0]) is None
    assert interval([20.0] * 9, "mean", []) is None
    assert interval([20.0] * 9, "mean", [10.0, -1.0, 10.0, 10.0, -90.0]) is None


def test_it_covers_about_as_often_as_it_says() -> None:
    """Of nine samples somewhat less than 95 %, as the percentile method is known to."""
    chance, hits = random.Random(5), 0
    for _ in range(100):
        found = some(interval([chance.gauss(20.0, 0.5) for _ in range(9)], "mean"))
        hits += found[0] <= 20.0 <= found[1]
    assert 82 <= hits <= 98
