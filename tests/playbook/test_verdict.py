"""Gate verdicts: what is not known is never GO, and better figures never get a worse verdict."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.config.playbook.decidable import never_fails, never_passes
from console.config.playbook.threshold import Threshold
from console.config.playbook.verdict import Criterion, Evidence, Verdict, combine, judge
from tests.playbook.conftest import RANK, criterion, tok_s

FIGURES = st.floats(-1e9, 1e9)
NO_NUMBER = st.sampled_from([None, math.nan, math.inf, -math.inf])
ABSOLUTE = st.builds(Threshold, st.sampled_from([">=", "<=", ">", "<", "=="]), FIGURES)
RELATIVE = st.builds(
    Threshold,
    st.sampled_from([">=", "<=", ">", "<", "=="]),
    st.floats(0.01, 100),
    relative=st.just(True),
)
THRESHOLDS = st.none() | ABSOLUTE | RELATIVE
CRITERIA = st.builds(Criterion, st.just("bench.tok_s"), THRESHOLDS, THRESHOLDS, st.integers(1, 20))


@given(CRITERIA, NO_NUMBER, st.integers(0, 50), st.none() | FIGURES)
def test_no_number_is_hold(
    what: Criterion, value: float | None, n: int, baseline: float | None
) -> None:
    assert judge(what, tok_s(value, n, baseline=baseline)).verdict is Verdict.HOLD


@given(CRITERIA, FIGURES, st.integers(1, 23), st.none() | FIGURES)
def test_too_few_samples_is_hold(
    what: Criterion, value: float, short: int, baseline: float | None
) -> None:
    evidence = tok_s(value, what.min_samples - short, baseline=baseline)
    assert judge(what, evidence).verdict is Verdict.HOLD


@given(RELATIVE, THRESHOLDS, FIGURES, st.booleans(), NO_NUMBER)
def test_a_relative_threshold_without_a_baseline_is_hold(
    relative: Threshold, other: Threshold | None, value: float, first: bool, base: float | None
) -> None:
    pair = (relative, other) if first else (other, relative)
    got = judge(Criterion("m", *pair), tok_s(value, baseline=base))
    assert got.verdict is Verdict.HOLD


@given(CRITERIA, FIGURES, st.text(min_size=1, max_size=20))
def test_evidence_with_an_obstacle_is_hold(what: Criterion, value: float, reason: str) -> None:
    assert judge(what, tok_s(value, 50, reason_missing=reason)).verdict is Verdict.HOLD


@given(
    st.sampled_from(["tok/s", "s", "count", "ratio", "%", "B", "B/s"]),
    CRITERIA,
    st.floats(-1e9, -1e-12),
)
def test_less_than_nothing_is_hold(unit: str, what: Criterion, value: float) -> None:
    """`vram.used -1e-09 GB` is below every limit, and a fault of whatever printed it."""
    for evidence in (
        Evidence(value, unit, 50, baseline=1.0),
        Evidence(1.0, unit, 2, baseline=1.0, samples=(value, 2.0 - value)),
        Evidence(1.0, unit, 50, baseline=value),
    ):
        relative = any(threshold.relative for threshold in what.thresholds)
        if relative or evidence.baseline == 1.0:
            assert judge(what, evidence).verdict is Verdict.HOLD


BELOW_ZERO = {
    ("soak.rss_growth", "B"): Verdict.GO, ("soak.tok_s_drift", "ratio"): Verdict.GO,
    ("soak.vram_growth", "B"): Verdict.GO, ("mem.slope", "B"): Verdict.GO,
    ("say.n", ""): Verdict.GO, ("vram.used", "B"): Verdict.HOLD,
    ("soak.growths_seen", "count"): Verdict.HOLD, ("say.n", "count"): Verdict.HOLD,
}  # fmt: skip


def test_a_change_may_be_below_zero() -> None:
    for (metric, unit), verdict in BELOW_ZERO.items():
        what = criterion("<= 1 GB" if unit == "B" else "<= 1", metric=metric)
        found = judge(what, Evidence(-0.5, unit, 1))
        assert found.verdict is verdict, metric
        assert ("impossible" in found.why) is (verdict is Verdict.HOLD)


@pytest.mark.parametrize(
    ("n", "void", "verdict"),
    [(1, 8, Verdict.HOLD), (4, 5, Verdict.HOLD), (5, 5, Verdict.GO), (5, 4, Verdict.GO)],
)
def test_more_void_than_valid_is_hold(n: int, void: int, verdict: Verdict) -> None:
    """Also where one sample was said to do, and on the baseline's side."""
    assert judge(criterion("> 12"), tok_s(30.0, n, void=void)).verdict is verdict
    against = tok_s(30.0, 9, baseline=10.0, baseline_n=n, baseline_void=void)
    assert judge(criterion("> 1.2 x baseline"), against).verdict is verdict
    assert judge(criterion("> 12"), against).verdict is Verdict.GO


def test_a_soak_of_a_few_requests_is_hold() -> None:
    """However often somebody looked at its server meanwhile."""
    what = criterion("== 0", metric="soak.restarts", min_requests=10)
    for requests, verdict in ((None, Verdict.HOLD), (9, Verdict.HOLD), (10, Verdict.GO)):
        assert judge(what, Evidence(0.0, "count", 600, requests=requests)).verdict is verdict


RULES = {
    (">= 20", "", 20.0): Verdict.GO, (">= 20", "", 19.999): Verdict.NO_GO,
    (">= 20", "< 10", 15.0): Verdict.HOLD, (">= 20", "< 10", 10.0): Verdict.HOLD,
    (">= 20", "< 10", 9.9): Verdict.NO_GO, (">= 20", "< 10", 20.0): Verdict.GO,
    ("", "< 10", 10.0): Verdict.GO, ("", "< 10", 9.0): Verdict.NO_GO,
    (">= 12", "< 20", 15.0): Verdict.NO_GO,
}  # fmt: skip


def test_rules() -> None:
    found = {one: judge(criterion(*one[:2]), tok_s(one[2])).verdict for one in RULES}
    assert found == RULES


@given(
    go=st.floats(-1e6, 1e6),
    gap=st.floats(0, 1e6),
    figures=st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)),
    op=st.sampled_from([(">=", "<"), (">", "<="), (">=", "<=")]),
    both=st.booleans(),
)
def test_a_better_figure_never_gets_a_worse_verdict(
    go: float, gap: float, figures: tuple[float, float], op: tuple[str, str], both: bool
) -> None:
    no_go = Threshold(op[1], go - gap - 1) if both else None
    what = Criterion("m", Threshold(op[0], go), no_go)
    worse, better = sorted(figures)
    assert RANK[judge(what, tok_s(worse)).verdict] <= RANK[judge(what, tok_s(better)).verdict]


@given(st.floats(0.1, 10), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), st.floats(0.1, 1e6))
def test_a_better_baseline_never_helps(
    factor: float, baselines: tuple[float, float], value: float
) -> None:
    what = Criterion("m", Threshold(">=", factor, "", True))
    low, high = sorted(max(0.001, base) for base in baselines)
    first = judge(what, tok_s(value, baseline=low)).verdict
    assert RANK[judge(what, tok_s(value, baseline=high)).verdict] <= RANK[first]


@given(CRITERIA, FIGURES, st.integers(0, 30), st.none() | FIGURES)
def test_go_needs_every_condition(
    what: Criterion, value: float, n: int, baseline: float | None
) -> None:
    if judge(what, tok_s(value, n, baseline=baseline)).verdict is not Verdict.GO:
        return
    assert n >= max(1, what.min_samples)
    assert what.go is None or what.go.satisfied(value, baseline, "tok/s")
    assert what.no_go is None or not what.no_go.satisfied(value, baseline, "tok/s")


@given(st.lists(st.sampled_from(Verdict)))
def test_the_worst_decides(verdicts: list[Verdict]) -> None:
    expected = min(verdicts, key=RANK.__getitem__, default=Verdict.HOLD)
    assert combine(verdicts) is expected
    assert combine(iter(verdicts)) is expected


@given(ABSOLUTE, st.none() | ABSOLUTE, FIGURES)
def test_what_never_passes_never_does(go: Threshold, no_go: Threshold | None, value: float) -> None:
    what = Criterion("m", go, no_go)
    if never_passes(what) is None:
        assert not (no_go and go.satisfied(value) and no_go.satisfied(value))


@given(st.none() | ABSOLUTE, st.none() | ABSOLUTE, st.floats(0, 1e9))
def test_what_never_fails_never_does(
    go: Threshold | None, no_go: Threshold | None, value: float
) -> None:
    what = Criterion("m", go, no_go)
    if never_fails(what, "tok/s") and (go is None or no_go is None):
        assert judge(what, tok_s(value)).verdict is not Verdict.NO_GO
