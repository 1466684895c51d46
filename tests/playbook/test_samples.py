"""Verdicts by samples: the whole interval has to meet a threshold, or the whole has to miss it."""

from __future__ import annotations

import math
import statistics as stats
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.playbook.threshold import Threshold, parse_threshold
from console.playbook.verdict import Criterion, Evidence, Verdict, judge

SPREAD = (19.2, 19.6, 19.9, 20.1, 20.3, 20.5, 20.6)
RANK = {Verdict.NO_GO: 0, Verdict.HOLD: 1, Verdict.GO: 2}


def criterion(go: str = "", no_go: str = "", min_samples: int = 1) -> Criterion:
    parsed = [parse_threshold(text) if text else None for text in (go, no_go)]
    return Criterion("bench.tok_s", *parsed, min_samples)


def of(samples: tuple[float, ...], before: tuple[float, ...] = (), **more: Any) -> Evidence:
    """Evidence whose figures are the means of their samples."""
    base: dict[str, Any] = {}
    if before:
        base = {"baseline": stats.fmean(before), "baseline_n": len(before)}
    values = {"samples": samples, "baseline_samples": before, **base, **more}
    return Evidence(stats.fmean(samples), "tok/s", len(samples), **values)


def moved(by: float, samples: tuple[float, ...] = SPREAD) -> tuple[float, ...]:
    return tuple(one + by for one in samples)


@pytest.mark.parametrize(
    ("go", "no_go", "by", "verdict"),
    [
        (">= 20", "", 2.0, Verdict.GO),
        (">= 20", "", 0.0, Verdict.HOLD),
        (">= 20", "", -2.0, Verdict.NO_GO),
        ("", "< 20", 2.0, Verdict.GO),
        ("", "< 20", 0.0, Verdict.HOLD),
        ("", "< 20", -2.0, Verdict.NO_GO),
        # a grey zone from 10 to 20, as "8–12: evaluate"
        (">= 20", "< 10", 2.0, Verdict.GO),
        (">= 20", "< 10", 0.0, Verdict.HOLD),
        (">= 20", "< 10", -5.0, Verdict.HOLD),
        (">= 20", "< 10", -10.0, Verdict.HOLD),
        (">= 20", "< 10", -12.0, Verdict.NO_GO),
        # a lower figure is the better one
        ("< 20", "", -2.0, Verdict.GO),
        ("< 20", "", 0.0, Verdict.HOLD),
        ("< 20", "", 2.0, Verdict.NO_GO),
        ("== 20", "", 0.0, Verdict.HOLD),
        ("== 20", "", 2.0, Verdict.NO_GO),
    ],
)
def test_the_interval_decides(go: str, no_go: str, by: float, verdict: Verdict) -> None:
    assert judge(criterion(go, no_go), of(moved(by))).verdict is verdict


@pytest.mark.parametrize(("value", "verdict"), [(20.0, "GO"), (19.999, "NO-GO"), (20.001, "GO")])
def test_samples_that_agree_are_decided_as_a_point(value: float, verdict: str) -> None:
    assert judge(criterion(">= 20"), of((value,) * 9)).verdict == verdict


@pytest.mark.parametrize("value", [11.5, 23.0, 0.115, 1.15e-7])
def test_equal_samples_of_both_sides_are_decided_as_a_point(value: float) -> None:
    """The limit is a product and the ratio a quotient: they must not quarrel about a last digit."""
    base = (value / 1.15,) * 9
    limit = 1.15 * stats.fmean(base)
    found = judge(criterion(">= 1.15 x baseline"), of((value,) * 9, base)).verdict
    assert found is (Verdict.GO if value >= limit else Verdict.NO_GO)


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ((12.5, 3.0, 30.0), Verdict.HOLD),
        ((12.1, 12.5, 30.0), Verdict.GO),
        ((12.5, 12.0, 30.0), Verdict.HOLD),
        ((12.5, 30.0), Verdict.GO),
        ((12.0, 30.0), Verdict.HOLD),
        ((12.0, 11.0, 3.0), Verdict.NO_GO),
        ((12.0, 12.0, 12.0, 12.0), Verdict.NO_GO),
        ((12.5, 12.0, 3.0, 1.0), Verdict.HOLD),
        ((12.5,), Verdict.GO),
        ((12.0,), Verdict.NO_GO),
    ],
)
def test_few_samples_have_to_agree(samples: tuple[float, ...], verdict: Verdict) -> None:
    """Fewer runs never pass more easily: a mean of 15 is no GO against > 12 with a 3 in it."""
    assert judge(criterion("> 12"), of(samples)).verdict is verdict


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("value", "verdict"), [(19.999, Verdict.NO_GO), (20.0, Verdict.GO), (20.001, Verdict.GO)]
)
def test_few_samples_that_agree_are_decided_as_a_point(
    count: int, value: float, verdict: Verdict
) -> None:
    assert judge(criterion(">= 20"), of((value,) * count)).verdict is verdict


@pytest.mark.parametrize(
    ("samples", "before", "verdict"),
    [
        ((15.0, 16.0, 17.0), (10.0, 9.0, 8.0), Verdict.GO),
        ((14.9, 16.0, 17.0), (10.0, 9.0, 8.0), Verdict.HOLD),
        ((15.0, 16.0, 17.0), (10.1, 9.0, 8.0), Verdict.HOLD),
        ((15.0, 16.0, 17.0), (10.0, 9.0, 8.0, 9.0, 9.0, 9.5), Verdict.GO),
        ((15.0, 16.0, 17.0), (10.1, 9.0, 8.0, 9.0, 9.0, 9.5), Verdict.HOLD),
        (moved(-4.0), (10.0, 9.0), Verdict.GO),
        (moved(-4.0), (10.0, 11.0), Verdict.HOLD),
        ((10.0, 11.0, 11.9), (10.0, 9.0, 8.0), Verdict.NO_GO),
        ((10.0, 11.0, 12.0), (10.0, 9.0, 8.0), Verdict.HOLD),
    ],
)
def test_few_samples_are_held_against_the_baselines_most_demanding_one(
    samples: tuple[float, ...], before: tuple[float, ...], verdict: Verdict
) -> None:
    assert judge(criterion(">= 1.5 x baseline"), of(samples, before)).verdict is verdict


@pytest.mark.parametrize("value", [11.5, 23.0, 0.115, 1.15e-7])
def test_few_samples_at_the_limit_are_compared_as_a_product(value: float) -> None:
    """As one figure is: a quotient may differ from the factor in its last digit."""
    most = value / 1.15
    wanted = Verdict.GO if value >= 1.15 * most else Verdict.HOLD
    samples = (value, value * 1.1, value * 1.2)
    assert judge(criterion(">= 1.15 x baseline"), of(samples, (most, most * 0.9))).verdict is wanted


def test_the_ratio_of_both_decides_against_the_baseline() -> None:
    """1.5 times on the average; the noise of both sides counts."""
    quiet = of(moved(-5.0), (10.0,) * 9)
    noisy = of(moved(-5.0), (7.0, 13.0, 8.0, 12.0, 9.0, 11.0))
    want = criterion(">= 1.4 x baseline")
    assert judge(want, quiet).verdict is Verdict.GO
    assert judge(want, noisy).verdict is Verdict.HOLD
    assert judge(criterion(">= 1.6 x baseline"), quiet).verdict is Verdict.NO_GO
    assert judge(criterion(">= 1.5 x baseline"), quiet).verdict is Verdict.HOLD


def test_few_samples_of_the_baseline_stand_as_their_point() -> None:
    assert judge(criterion(">= 1.4 x baseline"), of(moved(-5.0), (10.0,))).verdict is Verdict.GO
    assert judge(criterion(">= 1.5 x baseline"), of(moved(-5.0), (10.0,))).verdict is Verdict.HOLD


def test_min_samples_holds_for_the_baseline_too() -> None:
    found = judge(criterion(">= 1.4 x baseline", min_samples=5), of(moved(-5.0), (10.0,)))
    assert found.verdict is Verdict.HOLD
    assert "of the baseline 1 valid sample of the 5 needed" in found.why


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (of((*SPREAD[:6], math.nan)), "not a number"),
        (of((*SPREAD[:6], math.inf)), "not a number"),
        (Evidence(20.0, "tok/s", 9, samples=SPREAD), "is not the mean of its samples"),
        (Evidence(25.0, "tok/s", 7, samples=SPREAD), "is not the mean of its samples"),
        (of(moved(9.0), (10.0, 10.0, 10.0, math.nan, 10.0), baseline=10.0), "not a number"),
        (of(moved(9.0), (10.0, -1.0, 10.0, 10.0, 10.0)), "no ratio"),
        (of(moved(9.0), (10.0,) * 5, baseline=1.0), "baseline's figure is not the mean"),
    ],
)
def test_samples_that_do_not_explain_the_figure_hold(evidence: Evidence, words: str) -> None:
    """A figure and its samples come from one place: where they quarrel, neither is believed."""
    found = judge(criterion(">= 1.1 x baseline" if evidence.baseline else ">= 1"), evidence)
    assert found.verdict is Verdict.HOLD
    assert words in found.why


def test_the_baselines_samples_do_not_matter_to_an_absolute_threshold() -> None:
    evidence = of(moved(2.0), (10.0, math.nan, 10.0), baseline=10.0)
    assert judge(criterion(">= 20"), evidence).verdict is Verdict.GO


@pytest.mark.parametrize(
    ("what", "evidence", "why"),
    [
        (
            criterion(">= 20"), of(SPREAD),
            "bench.tok_s 20.03 tok/s: the samples do not decide, 19.66 to 20.34 tok/s around "
            ">= 20 tok/s (7 valid samples)",
        ),
        (
            criterion(">= 20"), of(moved(2.0)),
            "bench.tok_s 22.03 tok/s (21.66 to 22.34 tok/s) meets >= 20 tok/s (7 valid samples)",
        ),
        (
            criterion(">= 20", "< 10"), of(moved(-5.0)),
            "bench.tok_s 15.03 tok/s (14.66 to 15.34 tok/s) misses >= 20 tok/s by 4.971 tok/s, "
            "but is not NO-GO < 10 tok/s: grey zone (7 valid samples)",
        ),
        (
            criterion(">= 1.5 x baseline"), of(moved(-5.0), (10.0,) * 9),
            "bench.tok_s 15.03 tok/s: the samples do not decide, 1.466 to 1.534 x baseline around "
            ">= 1.5 x baseline (15 tok/s, baseline 10 tok/s) (7 valid samples)",
        ),
        (
            criterion("> 12"), of((12.5, 3.0, 30.0)),
            "bench.tok_s 15.17 tok/s: fewer than 5 samples have to agree, and do not, 3 to 30 "
            "tok/s around > 12 tok/s (3 valid samples)",
        ),
        (
            criterion("> 12"), of((12.5, 13.0, 30.0)),
            "bench.tok_s 18.5 tok/s (12.5 to 30 tok/s) meets > 12 tok/s (3 valid samples)",
        ),
        (
            criterion(">= 20"), of((20.0,) * 9),
            "bench.tok_s 20 tok/s meets >= 20 tok/s (9 valid samples)",
        ),
        (
            criterion(">= 20"), of((20.00001, 19.99999) * 4),
            "bench.tok_s 20 tok/s: the samples do not decide, 19.9999925 to 20.0000075 tok/s "
            "around >= 20 tok/s (8 valid samples)",
        ),
        (
            Criterion("bench.ttft_s", parse_threshold("< 900ms")),
            Evidence(0.9, "s", 5, samples=(0.7, 0.8, 0.9, 1.1, 1.2), headline="median"),
            "bench.ttft_s 900 ms: the samples do not decide, 700 ms to 1.20 s around < 900ms "
            "(5 valid samples)",
        ),
    ],
)  # fmt: skip
def test_words(what: Criterion, evidence: Evidence, why: str) -> None:
    assert judge(what, evidence).why == why


@pytest.mark.parametrize(
    ("between", "verdict"),
    [
        ((0.01, 0.04), Verdict.GO),
        ((0.01, 0.06), Verdict.HOLD),
        ((0.031, 0.04), Verdict.HOLD),
        ((math.nan, 0.04), Verdict.HOLD),
        ((0.01, math.inf), Verdict.HOLD),
        (None, Verdict.GO),
    ],
)
def test_an_interval_that_came_with_the_figure_decides(
    between: tuple[float, float] | None, verdict: Verdict
) -> None:
    """What has no samples of its own, as the drift of a soak; it has to hold the figure too."""
    evidence = Evidence(0.03, "ratio", 20, between=between)
    wanted = Criterion("soak.tok_s_drift", parse_threshold("<= 5 %"))
    assert judge(wanted, evidence).verdict is verdict


SAMPLES = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=12).map(tuple)
THRESHOLD = st.builds(Threshold, st.sampled_from([">=", ">", "<", "<="]), st.floats(1.0, 1e4))
FACTOR = st.builds(
    Threshold, st.sampled_from([">=", ">", "<", "<="]), st.floats(0.1, 10), relative=st.just(True)
)
CRITERIA = st.builds(
    Criterion, st.just("m"), st.none() | THRESHOLD | FACTOR, st.none() | THRESHOLD | FACTOR
)


@settings(deadline=None, max_examples=60)
@given(CRITERIA, SAMPLES, SAMPLES)
def test_samples_never_turn_a_no_into_a_go(
    what: Criterion, samples: tuple[float, ...], base: tuple[float, ...]
) -> None:
    """They only ever ask for more: a verdict by samples is the point's, or HOLD."""
    full = of(samples, base)
    point = Evidence(full.value, "tok/s", full.n, baseline=full.baseline)
    assert judge(what, full).verdict in (judge(what, point).verdict, Verdict.HOLD)


@settings(deadline=None, max_examples=60)
@given(CRITERIA, st.lists(st.floats(1.0, 1e4), min_size=2, max_size=4).map(tuple))
def test_few_samples_pass_only_where_each_one_would(
    what: Criterion, samples: tuple[float, ...]
) -> None:
    found = judge(what, of(samples, (10.0,))).verdict
    alone = {judge(what, of((one,), (10.0,))).verdict for one in samples}
    assert found is Verdict.HOLD or alone == {found}


@settings(deadline=None, max_examples=60)
@given(THRESHOLD, SAMPLES, st.floats(0.0, 1e4))
def test_better_samples_never_get_a_worse_verdict(
    go: Threshold, samples: tuple[float, ...], by: float
) -> None:
    worse, better = of(samples), of(moved(by, samples))
    if go.op in ("<", "<="):
        worse, better = better, worse
    ranks = [RANK[judge(Criterion("m", go), one).verdict] for one in (worse, better)]
    assert ranks[0] <= ranks[1]
