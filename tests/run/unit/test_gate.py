"""What a gate takes as evidence, and that no bad data of any kind makes a GO."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.config.playbook.steps import CriterionModel, Step
from console.config.playbook.verdict import Verdict
from console.journal.run_view import RunView, fold
from console.journal.store import Event
from console.runner.executors.gate import decide, evidence
from tests.run.unit.figures import CARDS, agreeing, figure, peaks, picture


def criterion(metric: str, go: str = "", no_go: str = "", **more: Any) -> CriterionModel:
    said = {key: text for key, text in (("go", go), ("no_go", no_go)) if text}
    return CriterionModel.model_validate({"metric": metric, **said, **more})


def gate(*criteria: CriterionModel) -> Step:
    return Step(id="g", gate=list(criteria))


def one(view: RunView, wanted: CriterionModel, cards: tuple[str, ...] = ()) -> tuple[Verdict, str]:
    verdict, rows = decide(gate(wanted), view, cards)
    return verdict, rows[0]["why"]


# --- figures of steps ------------------------------------------------------------------------


def test_a_figure_and_the_baselines() -> None:
    view = picture({
        "bench.tok_s": figure(20.0, "tok/s", 3, void=1, samples=[19.0, 20.0, 21.0]),
        "bench.baseline.tok_s": figure(10.0, "tok/s", 2, samples=[9.0, 11.0]),
    })  # fmt: skip
    found = evidence(view, criterion("bench.tok_s", ">= 1.1 x baseline"))
    assert (found.value, found.unit, found.n, found.void) == (20.0, "tok/s", 3, 1)
    assert (found.baseline, found.baseline_n) == (10.0, 2)
    assert (found.samples, found.baseline_samples) == ((19.0, 20.0, 21.0), (9.0, 11.0))
    before = evidence(view, criterion("bench.baseline.tok_s", ">= 9"))
    assert (before.value, before.n, before.baseline, before.samples) == (10.0, 2, None, (9.0, 11.0))


@pytest.mark.parametrize("state", ["failed", "skipped", "cancelled", "in_doubt", "running", ""])
def test_a_baseline_that_was_not_measured_to_its_end_is_none(state: str) -> None:
    """Half of its runs are there, and look like a figure."""
    figures = {"bench.tok_s": agreeing(20.0, "tok/s")}
    figures["bench.baseline.tok_s"] = agreeing(10.0, "tok/s")
    assert one(picture(figures), criterion("bench.tok_s", ">= 1.1 x baseline"))[0] is Verdict.GO
    view = picture(figures, baseline=state)
    assert one(view, criterion("bench.tok_s", ">= 1.1 x baseline"))[0] is Verdict.HOLD
    assert one(view, criterion("bench.baseline.tok_s", ">= 9"))[0] is Verdict.HOLD
    assert one(view, criterion("bench.tok_s", ">= 15"))[0] is Verdict.GO


@pytest.mark.parametrize(
    ("state", "metric", "why"),
    [
        ("succeeded", "bench.ttft_s", "bench has no ttft_s"),
        ("succeeded", "bench.rss", "no usable figure, the server was started anew"),
        ("succeeded", "say.n", "no such step"),
        ("failed", "bench.tok_s", "step bench is failed"),
    ],
)
def test_why_there_is_no_figure_is_told(state: str, metric: str, why: str) -> None:
    none = figure(None, "B", 0, why="the server was started anew")
    view = picture({"bench.tok_s": agreeing(20.0, "tok/s"), "bench.rss": none}, bench=state)
    verdict, said = one(view, criterion(metric, "> 2"))
    assert (verdict, why in said) == (Verdict.HOLD, True)


# --- how many samples are enough -------------------------------------------------------------


def test_most_runs_void_is_no_go_for_a_benchmark() -> None:
    """Eight of nine were void; the one that is left looks like a figure."""
    left = picture({"bench.tok_s": figure(30.0, "tok/s", 1, void=8, samples=[30.0])})
    for least, said in ((3, "of the 3 needed"), (1, "8 void and 1 valid")):
        verdict, why = one(left, criterion("bench.tok_s", "> 12", min_samples=least))
        assert (verdict, said in why) == (Verdict.HOLD, True)
    assert one(left, criterion("bench.tok_s", "> 12")) == one(
        left, criterion("bench.tok_s", "> 12", min_samples=3)
    )


@pytest.mark.parametrize(
    ("n", "least", "verdict"),
    [(1, None, "HOLD"), (2, None, "HOLD"), (3, None, "GO"), (1, 1, "GO"), (3, 4, "HOLD")],
)
def test_a_benchmark_needs_three_runs_unless_it_is_said(
    n: int, least: int | None, verdict: str
) -> None:
    more: dict[str, Any] = {} if least is None else {"min_samples": least}
    view = picture({
        "bench.tok_s": agreeing(30.0, "tok/s", n), "tg.tg_tok_s": agreeing(30.0, "tok/s", n),
        "bench.baseline.tok_s": agreeing(10.0, "tok/s", n),
    })  # fmt: skip
    assert one(view, criterion("bench.tok_s", "> 12", **more))[0] == verdict
    assert one(view, criterion("bench.baseline.tok_s", "> 9", **more))[0] == verdict
    few = picture({
        "bench.tok_s": agreeing(30.0, "tok/s"), "bench.baseline.tok_s": agreeing(10.0, "tok/s", n),
    })  # fmt: skip
    assert one(few, criterion("bench.tok_s", "> 2 x baseline", **more))[0] == verdict
    assert one(few, criterion("bench.tok_s", "> 12", **more))[0] is Verdict.GO


def test_void_runs_of_the_baseline_count_on_its_side() -> None:
    view = picture({
        "bench.tok_s": agreeing(30.0, "tok/s"),
        "bench.baseline.tok_s": figure(10.0, "tok/s", 4, void=5, samples=[10.0] * 4),
    })  # fmt: skip
    verdict, why = one(view, criterion("bench.tok_s", "> 2 x baseline"))
    assert (verdict, "of the baseline" in why) == (Verdict.HOLD, True)


@pytest.mark.parametrize("name", ["stability", "restarts", "rss_peak", "requests"])
@pytest.mark.parametrize(
    ("requests", "least", "verdict"),
    [(1, None, "HOLD"), (9, None, "HOLD"), (10, None, "GO"), (1, 1, "GO")],
)
def test_a_soak_needs_ten_requests_unless_it_is_said(
    name: str, requests: int, least: int | None, verdict: str
) -> None:
    """What is known by looks at the server too: it has to be under load meanwhile."""
    units = {"restarts": "count", "rss_peak": "B", "requests": "count"}
    view = picture({
        "soak.requests": figure(requests, "count", requests),
        f"soak.{name}": figure(0.0, units.get(name, "ratio"),
                               600 if name in ("restarts", "rss_peak") else requests),
    })  # fmt: skip
    more: dict[str, Any] = {} if least is None else {"min_samples": least}
    limit = "<= 9 GB" if name == "rss_peak" else "<= 0.5"
    wanted = criterion(f"soak.{name}", limit, **more)
    assert one(view, wanted)[0] == verdict


def test_llama_bench_is_made_of_samples_and_what_is_captured_beside_it_is_not() -> None:
    rows = [{"id": "tg", "title": "tg", "phase": "p", "kind": "run"}]
    said = {"tg_tok_s": agreeing(30.0, "tok/s", 2), "layers": figure(61.0, "count", 1)}
    told: list[tuple[str, dict[str, Any]]] = [
        ("run.created", {"steps": rows}),
        ("metrics", {"scope": "tg", "metrics": said, "benchmark": {"source": "llama-bench"}}),
        ("step.state", {"state": "succeeded"}),
    ]
    view = fold(Event(n, 1000.0 + n, kind, "tg", 1, data) for n, (kind, data) in enumerate(told, 1))
    assert one(view, criterion("tg.tg_tok_s", "> 12"))[1].endswith(
        "2 valid samples of the 3 needed"
    )
    assert one(view, criterion("tg.layers", "== 61"))[0] is Verdict.GO


def test_an_interval_that_was_worked_out_with_the_figure_decides() -> None:
    drift = figure(0.03, "ratio", 20, low=0.01, high=0.08)
    requests = figure(720, "count", 720)
    wanted = criterion("soak.tok_s_drift", "<= 5 %")
    view = picture({"soak.tok_s_drift": drift, "soak.requests": requests})
    assert "1 % to 8 %" in one(view, wanted)[1]
    sure = picture({"soak.tok_s_drift": {**drift, "high": 0.04}, "soak.requests": requests})
    assert one(sure, wanted)[0] is Verdict.GO
    broken = picture({"soak.tok_s_drift": {**drift, "low": None}, "soak.requests": requests})
    assert one(broken, wanted)[0] is Verdict.HOLD


# --- figures of the machine ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "more", "value", "unit"),
    [
        ("gpu.peak_used", {"of": "sum"}, 100e9, "B"),
        ("gpu.peak_used", {"of": "max"}, 80e9, "B"),
        ("gpu.peak_temperature", {"of": "max"}, 80.0, "count"),
        ("host.peak_ram_used", {}, 64e9, "B"),
        ("host.peak_swap_used", {}, 0.0, "B"),
        ("host.swap_in_rate", {}, 0.0, "B/s"),
        ("host.pressure", {}, 0.5, "%"),
    ],
)
def test_peaks(metric: str, more: dict[str, str], value: float, unit: str) -> None:
    wanted = criterion(metric, "<= 1 x baseline", **more)
    found = evidence(picture({}, peaks(100e9)), wanted, CARDS)
    assert (found.value, found.unit, found.n, found.reason_missing) == (value, unit, 600, "")


def test_a_card_of_the_site_that_never_answered_is_named() -> None:
    view = picture({}, peaks(100e9))
    wanted = criterion("gpu.peak_used", "<= 117GB", of="sum")
    assert one(view, wanted, CARDS)[0] is Verdict.GO
    verdict, why = one(view, wanted, (*CARDS, "GPU-third"))
    assert (verdict, "GPU-third was not seen" in why) == (Verdict.HOLD, True)
    assert one(view, criterion("host.pressure", "<= 10 %"), ("GPU-third",))[0] is Verdict.GO


# --- no path from bad data to GO -------------------------------------------------------------

ODD = st.sampled_from([None, math.nan, math.inf, -math.inf, "20", True, [], {}, 10**400])
GOOD_VALUE = st.floats(1.0, 1e6)
COUNT = st.integers(1, 50)


@st.composite
def bad_figures(draw: st.DrawFn) -> dict[str, Any] | None:
    """Figures that are none, in each of the ways they can come to be; None: there are none."""
    value, n = draw(GOOD_VALUE), draw(COUNT)
    samples = [value] * n
    return draw(
        st.sampled_from([
            None,
            figure(draw(ODD), "tok/s", n),  # type: ignore[arg-type]
            figure(value, "tok/s", 0),
            figure(value, "tok/s", draw(st.sampled_from([-1, None, math.nan, "9"]))),  # type: ignore[arg-type]
            figure(None, "tok/s", 0, void=n),
            figure(value, "B", n),
            {},
            {"value": value, "unit": "tok/s"},
            figure(value, "tok/s", n, samples=[*samples[:-1], draw(ODD)]),
            figure(value, "tok/s", n + 1, samples=samples),
            figure(value * 2, "tok/s", n, samples=samples),
        ])
    )  # fmt: skip


OPS = st.sampled_from([">=", ">", "<", "<=", "=="])
ABSOLUTE = st.builds(lambda op, value: f"{op} {value:.6f} tok/s", OPS, st.floats(0.001, 1e7))
FACTOR = st.builds(lambda op, value: f"{op} {value:.6f} x baseline", OPS, st.floats(0.01, 1e3))
PAIRS = st.tuples(st.none() | ABSOLUTE | FACTOR, st.none() | ABSOLUTE | FACTOR).filter(any)


@settings(deadline=None)
@given(bad_figures(), PAIRS, st.integers(1, 5))
def test_bad_figures_are_never_go(
    figures: dict[str, Any] | None, pair: tuple[str | None, str | None], least: int
) -> None:
    given_figures = {"bench.baseline.tok_s": agreeing(10.0, "tok/s")}
    if figures is not None:
        given_figures["bench.tok_s"] = figures
    view = picture(given_figures, bench="succeeded")
    wanted = criterion("bench.tok_s", pair[0] or "", pair[1] or "", min_samples=least)
    assert one(view, wanted)[0] is Verdict.HOLD


@settings(deadline=None)
@given(bad_figures(), FACTOR, st.booleans())
def test_bad_figures_of_the_baseline_are_never_go(
    figures: dict[str, Any] | None, factor: str, first: bool
) -> None:
    given_figures = {"bench.tok_s": agreeing(20.0, "tok/s")}
    if figures is not None and figures.get("unit") != "B":
        given_figures["bench.baseline.tok_s"] = figures
    view = picture(given_figures, baseline="succeeded")
    assert one(view, criterion("bench.tok_s", **{"go" if first else "no_go": factor}))[0] is (
        Verdict.HOLD
    )


@settings(deadline=None)
@given(
    st.sampled_from(["failed", "skipped", "cancelled", "in_doubt", "running", "retry_wait", ""]),
    GOOD_VALUE, COUNT, PAIRS,
)  # fmt: skip
def test_figures_of_a_step_that_did_not_succeed_are_never_go(
    state: str, value: float, n: int, pair: tuple[str | None, str | None]
) -> None:
    figures = {"bench.tok_s": agreeing(value, "tok/s", n)}
    figures["bench.baseline.tok_s"] = agreeing(10.0, "tok/s", n)
    view = picture(figures, bench=state)
    assert one(view, criterion("bench.tok_s", pair[0] or "", pair[1] or ""))[0] is Verdict.HOLD


@settings(deadline=None)
@given(
    st.sampled_from(CARDS),
    st.sampled_from([{}, {"used": None}, {"used": math.nan}, {"used": math.inf}, {"used": -1.0},
                     {"used": "9"}, {"used": None, "seen": {"used": 1.0}}]),
    st.sampled_from(["sum", "max"]), st.booleans(), ABSOLUTE,
)  # fmt: skip
def test_a_card_without_a_figure_is_never_go(
    card: str, figures: dict[str, Any], of: str, first: bool, text: str
) -> None:
    machine = peaks(100e9)
    machine["gpu"][card] = figures
    wanted = criterion(
        "gpu.peak_used", of=of, **{"go" if first else "no_go": text.replace(" tok/s", "GB")}
    )
    assert one(picture({}, machine), wanted)[0] is Verdict.HOLD


@settings(deadline=None)
@given(st.lists(st.sampled_from(["good", "bad"]), min_size=1, max_size=4))
def test_one_bad_figure_among_good_ones_is_never_go(kinds: list[str]) -> None:
    figures = {
        f"bench.m{n}": figure(20.0 if kind == "good" else None, "tok/s")
        for n, kind in enumerate(kinds)
    }
    step = gate(*(criterion(name, ">= 10") for name in figures))
    verdict, rows = decide(step, picture(figures))
    assert verdict is (Verdict.HOLD if "bad" in kinds else Verdict.GO)
    assert len(rows) == len(kinds)


LOST = {
    "used": None,
    "temperature": None,
    "why": {"used": "not read for 40 s in a row: lost"},
    "seen": {"used": 80 * 2**30},
}


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (None, ""),
        ({}, ""),
        (peaks(1e9, n=0), ""),
        (peaks(1e9, n=None), ""),
        (peaks(0, gpu={}, trouble="no NVIDIA driver\x1b[2J"), "no NVIDIA driver"),
        (
            peaks(100e9, gpu={CARDS[0]: LOST, CARDS[1]: {"used": 20e9}}),
            "GPU-96: not read for 40 s in a row: lost; 80.0 GiB was seen",
        ),
    ],
)
def test_what_nobody_saw_of_the_machine_holds(machine: dict[str, Any] | None, words: str) -> None:
    wanted = criterion("gpu.peak_used", "<= 117GB", of="sum")
    verdict, why = one(picture({}, machine), wanted)
    assert (verdict, words in why, "\x1b" in why) == (Verdict.HOLD, True, False)
