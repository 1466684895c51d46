"""Gate verdicts: what is not known is never GO, better figures never get a worse verdict, and of
samples the whole interval has to meet a threshold, or the whole has to miss it."""

import math
import statistics as stats

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.config.playbook.decidable import never_fails, never_passes
from console.config.playbook.threshold import Threshold
from console.config.playbook.verdict import Criterion, Evidence, Verdict, combine, judge
from tests.playbook.conftest import RANK, SPREAD, criterion, moved, of, tok_s

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


# -- by samples --------------------------------------------------------------------------------


GO, HOLD, NO_GO = Verdict.GO, Verdict.HOLD, Verdict.NO_GO
DECIDED = {
    (">= 20", ""): {2.0: GO, 0.0: HOLD, -2.0: NO_GO},
    ("", "< 20"): {2.0: GO, 0.0: HOLD, -2.0: NO_GO},
    # a grey zone from 10 to 20, as "8–12: evaluate"
    (">= 20", "< 10"): {2.0: GO, 0.0: HOLD, -5.0: HOLD, -10.0: HOLD, -12.0: NO_GO},
    # a lower figure is the better one
    ("< 20", ""): {-2.0: GO, 0.0: HOLD, 2.0: NO_GO},
    ("== 20", ""): {0.0: HOLD, 2.0: NO_GO},
}


def test_the_interval_decides() -> None:
    for pair, wanted in DECIDED.items():
        found = {by: judge(criterion(*pair), of(moved(by))).verdict for by in wanted}
        assert found == wanted, pair


def test_samples_that_agree_are_decided_as_a_point() -> None:
    for count in (1, 2, 3, 4, 9):
        for value, verdict in {19.999: NO_GO, 20.0: GO, 20.001: GO}.items():
            found = judge(criterion(">= 20"), of((value,) * count)).verdict
            assert found is verdict, (value, count)


@pytest.mark.parametrize("value", [11.5, 23.0, 0.115, 1.15e-7])
def test_equal_samples_of_both_sides_are_decided_as_a_point(value: float) -> None:
    """The limit is a product and the ratio a quotient: they must not quarrel about a last digit."""
    base = (value / 1.15,) * 9
    limit = 1.15 * stats.fmean(base)
    found = judge(criterion(">= 1.15 x baseline"), of((value,) * 9, base)).verdict
    assert found is (GO if value >= limit else NO_GO)


FEW = {
    (12.5, 3.0, 30.0): HOLD, (12.1, 12.5, 30.0): GO, (12.5, 12.0, 30.0): HOLD, (12.5, 30.0): GO,
    (12.0, 30.0): HOLD, (12.0, 11.0, 3.0): NO_GO, (12.0, 12.0, 12.0, 12.0): NO_GO,
    (12.5, 12.0, 3.0, 1.0): HOLD, (12.5,): GO, (12.0,): NO_GO,
}  # fmt: skip
FEW_AGAINST = {
    ((15.0, 16.0, 17.0), (10.0, 9.0, 8.0)): GO, ((14.9, 16.0, 17.0), (10.0, 9.0, 8.0)): HOLD,
    ((15.0, 16.0, 17.0), (10.1, 9.0, 8.0)): HOLD,
    ((15.0, 16.0, 17.0), (10.0, 9.0, 8.0, 9.0, 9.0, 9.5)): GO,
    ((15.0, 16.0, 17.0), (10.1, 9.0, 8.0, 9.0, 9.0, 9.5)): HOLD,
    (moved(-4.0), (10.0, 9.0)): GO, (moved(-4.0), (10.0, 11.0)): HOLD,
    ((10.0, 11.0, 11.9), (10.0, 9.0, 8.0)): NO_GO, ((10.0, 11.0, 12.0), (10.0, 9.0, 8.0)): HOLD,
}  # fmt: skip


def test_few_samples_have_to_agree() -> None:
    """Fewer runs never pass more easily: a mean of 15 is no GO against > 12 with a 3 in it."""
    assert {few: judge(criterion("> 12"), of(few)).verdict for few in FEW} == FEW


def test_few_samples_are_held_against_the_baselines_most_demanding_one() -> None:
    what = criterion(">= 1.5 x baseline")
    assert {pair: judge(what, of(*pair)).verdict for pair in FEW_AGAINST} == FEW_AGAINST


@pytest.mark.parametrize("value", [11.5, 23.0, 0.115, 1.15e-7])
def test_few_samples_at_the_limit_are_compared_as_a_product(value: float) -> None:
    """As one figure is: a quotient may differ from the factor in its last digit."""
    most = value / 1.15
    wanted = GO if value >= 1.15 * most else HOLD
    samples = (value, value * 1.1, value * 1.2)
    assert judge(criterion(">= 1.15 x baseline"), of(samples, (most, most * 0.9))).verdict is wanted


def test_the_ratio_of_both_decides_against_the_baseline() -> None:
    """1.5 times on the average; the noise of both sides counts."""
    quiet = of(moved(-5.0), (10.0,) * 9)
    noisy = of(moved(-5.0), (7.0, 13.0, 8.0, 12.0, 9.0, 11.0))
    want = criterion(">= 1.4 x baseline")
    assert judge(want, quiet).verdict is GO
    assert judge(want, noisy).verdict is HOLD
    assert judge(criterion(">= 1.6 x baseline"), quiet).verdict is NO_GO
    assert judge(criterion(">= 1.5 x baseline"), quiet).verdict is HOLD


def test_few_samples_of_the_baseline_stand_as_their_point() -> None:
    assert judge(criterion(">= 1.4 x baseline"), of(moved(-5.0), (10.0,))).verdict is GO
    assert judge(criterion(">= 1.5 x baseline"), of(moved(-5.0), (10.0,))).verdict is HOLD


QUARREL = [
    of((*SPREAD[:6], math.nan)), of((*SPREAD[:6], math.inf)), tok_s(20.0, 9, samples=SPREAD),
    tok_s(25.0, 7, samples=SPREAD),
    of(moved(9.0), (10.0, 10.0, 10.0, math.nan, 10.0), baseline=10.0),
    of(moved(9.0), (10.0, -1.0, 10.0, 10.0, 10.0)), of(moved(9.0), (10.0,) * 5, baseline=1.0),
]  # fmt: skip


def test_samples_that_do_not_explain_the_figure_hold() -> None:
    """A figure and its samples come from one place: where they quarrel, neither is believed."""
    for evidence in QUARREL:
        what = criterion(">= 1.1 x baseline" if evidence.baseline else ">= 1")
        assert judge(what, evidence).verdict is HOLD, evidence


def test_the_baselines_samples_do_not_matter_to_an_absolute_threshold() -> None:
    evidence = of(moved(2.0), (10.0, math.nan, 10.0), baseline=10.0)
    assert judge(criterion(">= 20"), evidence).verdict is GO


BETWEEN = {
    (0.01, 0.04): GO, (0.01, 0.06): HOLD, (0.031, 0.04): HOLD, (math.nan, 0.04): HOLD,
    (0.01, math.inf): HOLD, None: GO,
}  # fmt: skip


def test_an_interval_that_came_with_the_figure_decides() -> None:
    """What has no samples of its own, as the drift of a soak; it has to hold the figure too."""
    what = criterion("<= 5 %", metric="soak.tok_s_drift")
    found = {b: judge(what, Evidence(0.03, "ratio", 20, between=b)).verdict for b in BETWEEN}
    assert found == BETWEEN


SAMPLES = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=12).map(tuple)
THRESHOLD = st.builds(Threshold, st.sampled_from([">=", ">", "<", "<="]), st.floats(1.0, 1e4))
FACTOR = st.builds(
    Threshold, st.sampled_from([">=", ">", "<", "<="]), st.floats(0.1, 10), relative=st.just(True)
)
SAMPLED = st.builds(
    Criterion, st.just("m"), st.none() | THRESHOLD | FACTOR, st.none() | THRESHOLD | FACTOR
)


@settings(deadline=None, max_examples=60)
@given(SAMPLED, SAMPLES, SAMPLES)
def test_samples_never_turn_a_no_into_a_go(
    what: Criterion, samples: tuple[float, ...], base: tuple[float, ...]
) -> None:
    """They only ever ask for more: a verdict by samples is the point's, or HOLD."""
    full = of(samples, base)
    point = Evidence(full.value, "tok/s", full.n, baseline=full.baseline)
    assert judge(what, full).verdict in (judge(what, point).verdict, Verdict.HOLD)


@settings(deadline=None, max_examples=60)
@given(SAMPLED, st.lists(st.floats(1.0, 1e4), min_size=2, max_size=4).map(tuple))
def test_few_samples_pass_only_where_each_one_would(
    what: Criterion, samples: tuple[float, ...]
) -> None:
    found = judge(what, of(samples, (10.0,))).verdict
    alone = {judge(what, of((one,), (10.0,))).verdict for one in samples}
    assert found is HOLD or alone == {found}


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
