"""Statistics of small sets, and of none."""

from __future__ import annotations

import json
import math
import statistics as stats
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.benchmark.metrics import Sample
from console.benchmark.statistics import cv, describe, mean, median, std, summarise

FLOATS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12)


def test_by_hand() -> None:
    values = [10.0, 11.0, 12.0, 15.0]
    assert (mean(values), median(values)) == (12.0, 11.5)
    assert std(values) == pytest.approx(stats.stdev(values))
    assert cv(values) == pytest.approx(stats.stdev(values) / 12)


def test_nothing_is_none() -> None:
    assert (mean([]), median([]), std([]), cv([]), std([1.0]), cv([0.0, 0.0])) == (None,) * 6


def test_the_headline_is_the_mean_for_tok_s_and_the_median_elsewhere() -> None:
    values = [1.0, 2.0, 9.0]
    assert (describe("tok_s", values).value, describe("ttft_s", values).value) == (4.0, 2.0)
    assert (describe("tok_s", values).headline, describe("ttft_s", values).headline) == (
        "mean",
        "median",
    )


@given(FLOATS)
def test_no_nan_leaks(values: list[float]) -> None:
    summary = describe("decode_tok_s", values)
    json.dumps(asdict(summary), allow_nan=False)
    assert summary.n == sum(map(math.isfinite, values))
    assert summary.n or summary.median is None


def test_void_runs_are_left_out_and_counted_by_reason() -> None:
    good = [Sample(tok_s=rate, ttft_s=0.5) for rate in (10.0, 12.0)]
    bad = [Sample(tok_s=999.0, void="cached"), Sample(void="reset", error="transport: reset")]
    summary = summarise([*good, *bad, bad[0]])
    assert summary.metrics["tok_s"].samples == [10.0, 12.0]
    assert summary.metrics["error_rate"].value == pytest.approx(0.2)
    assert summary.metrics["runs"].value == 2
    assert (summary.valid, summary.void, summary.voids) == (2, 3, {"cached": 2, "reset": 1})


def test_no_samples_at_all() -> None:
    metrics = summarise([]).metrics
    assert {name: metrics[name].value for name in metrics} == {
        **dict.fromkeys(metrics, None),
        "runs": 0.0,
    }
    assert all(metric.n == 0 for metric in metrics.values())
