"""Gate verdicts: what is not known is never GO, and better figures never get a worse verdict."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from console.playbook.decidable import check_criterion, never_fails, never_passes
from console.playbook.threshold import Threshold, parse_threshold
from console.playbook.verdict import Criterion, Evidence, Verdict, combine, judge

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
RANK = {Verdict.NO_GO: 0, Verdict.HOLD: 1, Verdict.GO: 2}


def criterion(go: str = "", no_go: str = "", min_samples: int = 1) -> Criterion:
    return Criterion(
        "bench.tok_s",
        parse_threshold(go) if go else None,
        parse_threshold(no_go) if no_go else None,
        min_samples,
    )


def tok_s(value: float | None, n: int = 9, **values: object) -> Evidence:
    return Evidence(value, "tok/s", n, **values)  # type: ignore[arg-type]


# --- what is not known -----------------------------------------------------------------------


@given(CRITERIA, NO_NUMBER, st.integers(0, 50), st.none() | FIGURES)
def test_no_number_is_hold(
    what: Criterion, value: float | None, n: int, baseline: float | None
) -> None:
    assert judge(what, tok_s(value, n, baseline=baseline)).verdict is Verdict.HOLD


@given(CRITERIA, FIGURES, st.integers(-3, 50), st.none() | FIGURES)
def test_too_few_samples_is_hold(
    what: Criterion, value: float, n: int, baseline: float | None
) -> None:
    assume(n < what.min_samples)
    assert judge(what, tok_s(value, n, baseline=baseline)).verdict is Verdict.HOLD


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


@given(FIGURES)
def test_a_criterion_without_thresholds_is_hold(value: float) -> None:
    assert judge(Criterion("m"), tok_s(value)).verdict is Verdict.HOLD


def test_another_unit_is_hold() -> None:
    assert judge(criterion(">= 10 s"), tok_s(20.0)).verdict is Verdict.HOLD
    assert judge(criterion("<= 10"), Evidence(5.0, "B", 9)).verdict is Verdict.HOLD


@pytest.mark.parametrize("unit", ["tok/s", "s", "count", "ratio", "%", "B", "B/s"])
@given(CRITERIA, st.floats(-1e9, -1e-12))
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


@pytest.mark.parametrize(
    ("metric", "unit", "verdict"),
    [
        ("soak.rss_growth", "B", Verdict.GO),
        ("soak.tok_s_drift", "ratio", Verdict.GO),
        ("soak.vram_growth", "B", Verdict.GO),
        ("mem.slope", "B", Verdict.GO),
        ("say.n", "", Verdict.GO),
        ("vram.used", "B", Verdict.HOLD),
        ("soak.growths_seen", "count", Verdict.HOLD),
        ("say.n", "count", Verdict.HOLD),
    ],
)
def test_a_change_may_be_below_zero(metric: str, unit: str, verdict: Verdict) -> None:
    limit = parse_threshold("<= 1 GB" if unit == "B" else "<= 1")
    found = judge(Criterion(metric, limit), Evidence(-0.5, unit, 1))
    assert found.verdict is verdict
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
    what = Criterion("soak.restarts", parse_threshold("== 0"), min_requests=10)
    for requests, verdict in ((None, Verdict.HOLD), (9, Verdict.HOLD), (10, Verdict.GO)):
        found = judge(what, Evidence(0.0, "count", 600, requests=requests))
        assert found.verdict is verdict
    assert "0 requests in the soak, 10 needed" in judge(what, Evidence(0.0, "count", 600)).why


# --- the rules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("go", "no_go", "value", "verdict"),
    [
        (">= 20", "", 20.0, Verdict.GO),
        (">= 20", "", 19.999, Verdict.NO_GO),
        (">= 20", "< 10", 15.0, Verdict.HOLD),
        (">= 20", "< 10", 10.0, Verdict.HOLD),
        (">= 20", "< 10", 9.9, Verdict.NO_GO),
        (">= 20", "< 10", 20.0, Verdict.GO),
        ("", "< 10", 10.0, Verdict.GO),
        ("", "< 10", 9.0, Verdict.NO_GO),
        (">= 12", "< 20", 15.0, Verdict.NO_GO),
    ],
)
def test_rules(go: str, no_go: str, value: float, verdict: Verdict) -> None:
    assert judge(criterion(go, no_go), tok_s(value)).verdict is verdict


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


# --- all together ----------------------------------------------------------------------------


@given(st.lists(st.sampled_from(Verdict)))
def test_the_worst_decides(verdicts: list[Verdict]) -> None:
    expected = min(verdicts, key=RANK.__getitem__, default=Verdict.HOLD)
    assert combine(verdicts) is expected
    assert combine(iter(verdicts)) is expected


def test_no_criteria_is_hold() -> None:
    assert combine([]) is Verdict.HOLD


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "evidence", "why"),
    [
        (
            criterion(">= 20"),
            tok_s(18.7),
            "bench.tok_s 18.7 tok/s misses >= 20 tok/s by 1.3 tok/s (9 valid samples)",
        ),
        (
            criterion(">= 20"),
            tok_s(21.0, void=1),
            "bench.tok_s 21 tok/s meets >= 20 tok/s (9 valid samples, 1 void left out)",
        ),
        (
            criterion(">= 20", "< 10"),
            tok_s(15.0),
            "bench.tok_s 15 tok/s misses >= 20 tok/s by 5 tok/s, but is not NO-GO < 10 tok/s: "
            "grey zone (9 valid samples)",
        ),
        (
            criterion(">= 20", min_samples=5),
            tok_s(21.0, 1, void=8),
            "bench.tok_s: 1 valid sample of the 5 needed, 8 void left out",
        ),
        (
            criterion(">= 20"),
            tok_s(None, 0, void=9),
            "bench.tok_s: no figure was measured (0 valid samples, 9 void left out)",
        ),
        (
            criterion(">= 1.15 x baseline"),
            tok_s(20.0, baseline=10.0),
            "bench.tok_s 20 tok/s meets >= 1.15 x baseline (11.5 tok/s, baseline 10 tok/s) "
            "(9 valid samples)",
        ),
        (
            criterion(">= 1.15 x baseline"),
            tok_s(20.0),
            "bench.tok_s: >= 1.15 x baseline needs a baseline, and none was measured",
        ),
        (
            Criterion("gpu.peak_used", parse_threshold("<= 117GB"), of="sum"),
            Evidence(118e9, "B", 1),
            "gpu.peak_used (sum) 118 GB misses <= 117GB by 1 GB (1 valid sample)",
        ),
        (
            Criterion("bench.ttft_s", parse_threshold("<= 900ms")),
            Evidence(0.9001, "s", 9),
            "bench.ttft_s 900.1 ms misses <= 900ms by 0.1 ms (9 valid samples)",
        ),
        (
            criterion(">= 20"),
            tok_s(21.0, 4, void=5),
            "bench.tok_s: more void than valid runs, 5 void and 4 valid",
        ),
        (
            criterion("> 1.2 x baseline"),
            tok_s(21.0, baseline=10.0, baseline_n=1, baseline_void=8),
            "bench.tok_s: of the baseline more void than valid runs, 8 void and 1 valid",
        ),
        (
            Criterion("soak.tok_s", parse_threshold("> 5")),
            tok_s(21.0, 4, void=5, requests=9),
            "soak.tok_s: more void than valid requests, 5 void and 4 valid",
        ),
        (
            Criterion("vram.used", parse_threshold("<= 128GB")),
            Evidence(-1.0, "B", 1),
            "vram.used: -1 B is impossible: it cannot be below zero",
        ),
        (
            Criterion("soak.restarts", parse_threshold("== 0")),
            Evidence(1.0, "count", 720),
            "soak.restarts 1 restart, asked for == 0 (720 valid samples)",
        ),
        (
            Criterion("soak.critical_lines", parse_threshold("== 0")),
            Evidence(0.0, "count", 720),
            "soak.critical_lines 0 critical lines, as asked for: == 0 (720 valid samples)",
        ),
        (
            Criterion("soak.errors", None, parse_threshold("> 5")),
            Evidence(7.0, "count", 720),
            "soak.errors 7 errors, NO-GO by > 5 (720 valid samples)",
        ),
        (
            Criterion("soak.errors", None, parse_threshold("> 5")),
            Evidence(1.0, "count", 720),
            "soak.errors 1 error, clear of NO-GO > 5 (720 valid samples)",
        ),
        (
            Criterion("soak.errors", parse_threshold("== 0"), parse_threshold("> 5")),
            Evidence(2.0, "count", 720),
            "soak.errors 2 errors, asked for == 0, but is not NO-GO > 5: grey zone "
            "(720 valid samples)",
        ),
        (
            Criterion("gpu.peak_temperature", parse_threshold("< 85"), of="max"),
            Evidence(91.0, "count", 600),
            "gpu.peak_temperature (max) 91 °C, asked for < 85 (600 valid samples)",
        ),
        (
            criterion(">= 20"),
            tok_s(1.0, reason_missing="stale\x1b[2J\nsince 12:00"),
            "bench.tok_s: no usable figure, stale since 12:00",
        ),
    ],
)
def test_words(what: Criterion, evidence: Evidence, why: str) -> None:
    assert judge(what, evidence).why == why


# --- load time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("go", "no_go", "words"),
    [
        (">= 12", "< 20", "overlap"),
        (">= 20", "> 30", "overlap"),
        ("<= 10", "<= 10", "overlap"),
        ("== 20", ">= 20", "overlap"),
        (">= 1.1 x baseline", "< 1.2 x baseline", "overlap"),
        ("< 0", "", "never be met"),
        ("== -1", "", "never be met"),
        (">= 0", "", "decides nothing"),
        ("", ">= 0", "GO is impossible"),
        ("", "< 0", "never be met"),
        (">= 20", "< 0", "never be met"),
        ("", "== -5", "never be met"),
        ("", "", "neither"),
        (">= 10 s", "", "a duration"),
    ],
)
def test_criteria_that_cannot_decide_are_refused(go: str, no_go: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_criterion(criterion(go, no_go), "tok/s")


@pytest.mark.parametrize(
    ("go", "no_go", "unit"),
    [
        (">= 20", "", "tok/s"),
        (">= 20", "< 20", "tok/s"),
        (">= 20", "< 10", "tok/s"),
        ("", "< 10", "tok/s"),
        ("<= 0", "", "ratio"),
        ("== 0", "", "count"),
        ("== 0", "> 0", "count"),
        (">= 1.1 x baseline", "< 1 x baseline", "tok/s"),
        (">= 1.1 x baseline", "< 10", "tok/s"),
    ],
)
def test_criteria_that_can_decide_are_accepted(go: str, no_go: str, unit: str) -> None:
    check_criterion(criterion(go, no_go), unit)


def test_fewer_than_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="min_samples"):
        check_criterion(criterion(">= 20", min_samples=0), "tok/s")


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
