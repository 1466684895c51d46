"""Verdicts by samples: the whole interval has to meet a threshold, or the whole has to miss it."""

from __future__ import annotations

import math
import statistics as stats

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.config.playbook.threshold import Threshold
from console.config.playbook.verdict import Criterion, Evidence, Verdict, judge
from tests.playbook.conftest import RANK, SPREAD, criterion, moved, of, tok_s

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
