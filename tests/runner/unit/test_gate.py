"""What a gate takes as evidence, and that no bad data of any kind makes a GO."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.config.playbook.steps import CriterionModel, Step
from console.config.playbook.verdict import Evidence, Verdict
from console.journal import events
from console.journal.fold import fold
from console.journal.run_view import RunView, StepMeasurement
from console.journal.state import Decision
from console.journal.store import event_of
from console.runner.executors.gate import decide, doubt, evidence
from tests.runner.unit.cases import CARDS, agreeing, figure, peaks, picture
from tests.runner.unit.conftest import MakePlan


def criterion(metric: str, go: str = "", no_go: str = "", **more: Any) -> CriterionModel:
    said = {key: text for key, text in (("go", go), ("no_go", no_go)) if text}
    return CriterionModel.model_validate({"metric": metric, **said, **more})


def one(view: RunView, wanted: CriterionModel, cards: tuple[str, ...] = ()) -> tuple[Verdict, str]:
    verdict, rows = decide(Step(id="g", gate=[wanted]), view, cards)
    return verdict, rows[0]["why"]


def test_a_figure_and_the_baselines() -> None:
    """What is made of them is in tests/playbook."""
    view = picture({
        "bench.tok_s": figure(20.0, "tok/s", 3, void=1, samples=[19.0, 20.0, 21.0]),
        "bench.baseline.tok_s": figure(10.0, "tok/s", 2, void=5, samples=[9.0, 11.0]),
    })  # fmt: skip
    assert evidence(view, criterion("bench.tok_s", ">= 1.1 x baseline")) == Evidence(
        20.0, "tok/s", 3, void=1, samples=(19.0, 20.0, 21.0),
        baseline=10.0, baseline_n=2, baseline_void=5, baseline_samples=(9.0, 11.0),
    )  # fmt: skip
    before = Evidence(10.0, "tok/s", 2, void=5, samples=(9.0, 11.0))
    assert evidence(view, criterion("bench.baseline.tok_s", ">= 9")) == before


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


def test_why_there_is_no_figure_is_told() -> None:
    none = figure(None, "B", 0, why="the server was started anew")
    for state, metric, why in (
        ("succeeded", "bench.ttft_s", "bench has no ttft_s"),
        ("succeeded", "bench.rss", "no usable figure, the server was started anew"),
        ("succeeded", "say.n", "no such step"),
        ("failed", "bench.tok_s", "step bench is failed"),
    ):
        view = picture({"bench.tok_s": agreeing(20.0, "tok/s"), "bench.rss": none}, bench=state)
        verdict, said = one(view, criterion(metric, "> 2"))
        assert (verdict, why in said) == (Verdict.HOLD, True)


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


@pytest.mark.parametrize(
    ("requests", "least", "verdict"),
    [(1, None, "HOLD"), (9, None, "HOLD"), (10, None, "GO"), (1, 1, "GO")],
)
def test_a_soak_needs_ten_requests_unless_it_is_said(
    requests: int, least: int | None, verdict: str
) -> None:
    """What is known by looks at the server too: it has to be under load meanwhile."""
    view = picture({
        "soak.requests": figure(requests, "count", requests),
        "soak.error_rate": figure(0.0, "ratio", requests),
        "soak.restarts": figure(0.0, "count", 600),
    })  # fmt: skip
    more: dict[str, Any] = {} if least is None else {"min_samples": least}
    for name in ("error_rate", "restarts"):
        assert one(view, criterion(f"soak.{name}", "<= 0.5", **more))[0] == verdict


def test_llama_bench_is_made_of_samples_and_what_is_captured_beside_it_is_not() -> None:
    rows = [{"id": "tg", "title": "tg", "phase": "p", "kind": "run"}]
    said = {"tg_tok_s": agreeing(30.0, "tok/s", 2), "layers": figure(61.0, "count", 1)}
    told: list[tuple[str, dict[str, Any]]] = [
        ("run.created", {"steps": rows}),
        ("metrics", {"scope": "tg", "metrics": said, "benchmark": {"source": "llama-bench"}}),
        ("step.state", {"state": "succeeded"}),
    ]
    view = fold(
        event_of(n, 1000.0 + n, kind, "tg", 1, data) for n, (kind, data) in enumerate(told, 1)
    )
    assert "2 valid samples; 3 needed" in one(view, criterion("tg.tg_tok_s", "> 12"))[1]
    assert one(view, criterion("tg.layers", "== 61"))[0] is Verdict.GO


def test_an_interval_that_was_worked_out_with_the_figure_decides() -> None:
    for low, high, verdict in ((0.01, 0.08, "HOLD"), (0.01, 0.04, "GO"), (None, 0.04, "HOLD")):
        drift = figure(0.03, "ratio", 20, low=low, high=high)
        view = picture({"soak.tok_s_drift": drift, "soak.requests": figure(720, "count", 720)})
        assert one(view, criterion("soak.tok_s_drift", "<= 5 %"))[0] == verdict


def test_peaks() -> None:
    for metric, of, value, unit in (
        ("gpu.peak_used", "sum", 100e9, "B"), ("gpu.peak_used", "max", 80e9, "B"),
        ("gpu.peak_temperature", "max", 80.0, "count"), ("host.peak_ram_used", None, 64e9, "B"),
        ("host.peak_swap_used", None, 0.0, "B"), ("host.swap_in_rate", None, 0.0, "B/s"),
        ("host.pressure", None, 0.5, "%"),
    ):  # fmt: skip
        wanted = criterion(metric, "<= 1 x baseline", of=of)
        assert evidence(picture({}, peaks(100e9)), wanted, CARDS) == Evidence(value, unit, 600)


def test_a_card_of_the_site_that_never_answered_is_named() -> None:
    view = picture({}, peaks(100e9))
    wanted = criterion("gpu.peak_used", "<= 117GB", of="sum")
    assert one(view, wanted, CARDS)[0] is Verdict.GO
    verdict, why = one(view, wanted, (*CARDS, "GPU-third"))
    assert (verdict, "GPU-third was not seen" in why) == (Verdict.HOLD, True)
    assert one(view, criterion("host.pressure", "<= 10 %"), ("GPU-third",))[0] is Verdict.GO


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


LOST = {"used": None, "why": {"used": "not read for 40 s"}, "seen": {"used": 80 * 2**30}}


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (None, ""), ({}, ""), (peaks(1e9, n=0), ""), (peaks(1e9, n=None), ""),
        (peaks(0, gpu={}, trouble="no NVIDIA driver\x1b[2J"), "no NVIDIA driver"),
        (peaks(100e9, gpu={CARDS[0]: LOST, CARDS[1]: {"used": 20e9}}),
         "GPU-96: not read for 40 s; 80.0 GiB was seen"),
    ],
)  # fmt: skip
def test_what_nobody_saw_of_the_machine_holds(machine: dict[str, Any] | None, words: str) -> None:
    wanted = criterion("gpu.peak_used", "<= 117GB", of="sum")
    verdict, why = one(picture({}, machine), wanted)
    assert (verdict, words in why, "\x1b" in why) == (Verdict.HOLD, True, False)


BENCH = "{id: bench, benchmark: {service: cand, against: baseline}}"


@pytest.mark.parametrize(
    ("rule", "verdict", "before", "after", "decision", "mark"),
    [
        ({"go": ">= 1.5 x baseline"}, "GO", 10.0, 10.2, Decision.GO, ""),
        ({"go": ">= 1.5 x baseline"}, "GO", 10.0, 12.0, Decision.GO, ""),  # moved, and still met
        ({"go": ">= 1.5 x baseline"}, "GO", 10.0, 40.0, Decision.HOLD, "DOUBTFUL"),
        ({"go": ">= 1.5 x baseline"}, "GO", 10.0, 5.0, Decision.HOLD, "DOUBTFUL"),  # either way
        ({"go": ">= 1.5 x baseline"}, "GO", 10.0, None, Decision.GO, ""),  # said elsewhere
        ({"go": ">= 15 tok/s"}, "GO", 10.0, 13.0, Decision.GO, ""),
        # nothing of the baseline is asked; but the machine was not the same, by more than the gate
        # has to spare
        ({"go": ">= 15 tok/s"}, "GO", 10.0, 20.0, Decision.HOLD, "DOUBTFUL"),
        ({"go": "<= 2.5 x baseline"}, "GO", 10.0, 5.0, Decision.HOLD, "DOUBTFUL"),
        ({"no_go": "< 1.5 x baseline"}, "GO", 10.0, 20.0, Decision.HOLD, "DOUBTFUL"),
        ({"go": ">= 3 x baseline"}, "NO-GO", 10.0, 11.0, Decision.NO_GO, ""),
        ({"go": ">= 3 x baseline"}, "NO-GO", 10.0, 5.0, Decision.NO_GO, "DOUBTFUL"),
        # in the grey zone it would be no GO either
        ({"go": ">= 5 x baseline", "no_go": "< 3 x baseline"}, "NO-GO", 10.0, 5.0, Decision.NO_GO,
         ""),
    ],
)  # fmt: skip
def test_a_baseline_that_moved_further_than_a_verdict_has_to_spare_makes_it_doubtful(
    plan: MakePlan, rule: dict[str, str], verdict: str, before: float, after: float | None,
    decision: Decision, mark: str,
) -> None:  # fmt: skip
    figures = {"bench.tok_s": 20.0, "bench.baseline.tok_s": before}
    view = picture({name: agreeing(value, "tok/s") for name, value in figures.items()})
    if after is not None:
        view.metrics["bench.baseline-after"] = {"tok_s": agreeing(after, "tok/s")}
    written = json.dumps({"metric": "bench.tok_s", **rule})
    gate = f"{{id: g, gate: [{written}], outcomes: {{go: migrate, no_go: stay}}}}"
    made = plan(BENCH, gate)
    assert str(decide(made.at("g").written, view)[0]) == verdict

    def record(body: events.Body, step: str = "") -> None:
        fold([event_of(1, 0.0, body.kind, step, 0, body.data())], view)

    record(events.Verdict(verdict=verdict, outcome="migrate", criteria=[]), "g")
    context: Any = SimpleNamespace(view=view, plan=made, record=record)
    doubt(context)
    assert (view.decision, view.mark) == (decision, mark)
    assert len(view.doubts) == bool(mark)


def test_a_count_is_no_faster_on_a_faster_machine(plan: MakePlan) -> None:
    view = picture({
        "bench.tok_s": agreeing(20.0, "tok/s"), "bench.baseline.tok_s": agreeing(10.0, "tok/s"),
        "bench.error_rate": figure(0.0, "ratio", 9),
    })  # fmt: skip
    view.metrics["bench.baseline-after"] = {"tok_s": agreeing(30.0, "tok/s")}
    made = plan(BENCH, "{id: g, gate: [{metric: bench.error_rate, go: '<= 1 %'}]}")
    recorded: list[events.Body] = []
    fold([event_of(1, 0.0, "verdict", "g", 0, {"verdict": "GO", "criteria": []})], view)
    context: Any = SimpleNamespace(
        view=view, plan=made, record=lambda body, _: recorded.append(body)
    )
    doubt(context)
    assert recorded == []


def test_a_gate_says_what_nobody_watched_and_what_was_discarded() -> None:
    """Others may have used the servers; a GO says so as well."""
    view = picture({
        "bench.tok_s": agreeing(20.0, "tok/s"), "bench.baseline.tok_s": agreeing(10.0, "tok/s"),
    })  # fmt: skip
    told = {"name": "cand", "known": True}, {"name": "baseline", "known": False}
    view.measured["bench"] = StepMeasurement(benchmark={"context": {"requests": list(told)}})
    verdict, why = one(view, criterion("bench.tok_s", ">= 1.5 x baseline"))
    assert verdict is Verdict.GO
    assert why.endswith("; whether others used baseline meanwhile is not known")
    few = picture({"bench.tok_s": figure(20.0, "tok/s", 1, void=4, samples=[20.0])})
    reason = "others used the server at the same time (2 requests)"
    few.measured["bench"] = StepMeasurement({"voids": [{"run": 1, "reason": reason}] * 4})
    verdict, why = one(few, criterion("bench.tok_s", ">= 15"))
    assert verdict is Verdict.HOLD
    assert why.endswith("(others used the server at the same time)")
