"""The grammar of thresholds, and gates that can never fail or pass by what a metric can be."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.metrics import DRIFT_SAMPLES
from console.config.playbook.measuring_steps import MIN_SAMPLES, SoakStep
from console.config.playbook.threshold import THRESHOLD_FORM, Threshold, compatible, parse_threshold
from console.runner.executors.soak import LOOKS
from console.runner.executors.soak_monitor import FASTEST_S, SLOWEST_S
from tests.playbook.conftest import SERVICES, Book, steps_text

MEASURED = (
    "{id: b, benchmark: {service: cand, against: baseline}}",
    "{id: s, soak: {service: cand, duration: 1h}}",
    "{id: say, run: [x], outputs: {n: {pattern: '([0-9]+)', unit: count}}}",
    "{id: tg, run: [llama-bench, -o, json], figures: llama-bench}",
    "{id: sw, run: [llama-sweep-bench], figures: sweep-bench}",
    "{id: t, benchmark: {service: cand, runs: 2}}",
    "{id: m, soak: {service: cand, duration: 2s, every: 5s}}",
    "{id: o, soak: {service: cand, duration: 1m, every: 5s}}",
    "{id: f, soak: {service: cand, duration: 1m, every: 0s}}",
    "{id: z, soak: {service: cand, duration: 1h, max_errors: 0}}",
    "{id: fix, soak: {service: cand, duration: 1h, max_errors: 0, arrivals: fixed}}",
    "{id: three, soak: {service: cand, duration: 1h, max_errors: 3}}",
    "{id: size, run: [x], outputs: {gb: {pattern: '([0-9]+)', unit: GB}, "
    "growth: {pattern: '([0-9]+)', unit: GB}}}",
)  # fmt: skip
HEAD_OF_TWO = (
    "inputs: {runs: {type: int, required: true}, long: {type: duration, required: true}}\n"
    + SERVICES
)
ACCEPTED = [
    "b.error_rate, go: '<= 0 %'", "b.error_rate, go: '< 100 %'",
    "b.error_rate, go: '<= 2 x baseline'", "s.stability, go: '> 95 %'",
    "s.stability, go: '>= 100 %'", "s.tok_s_drift, go: '< 0'", "s.tok_s_drift, go: '<= 5 %'",
    "s.rss_growth, go: '<= 0 B'", "s.vram_growth, go: '< 20GiB'", "s.requests, go: '>= 600'",
    "gpu.peak_used, of: sum, go: '<= 117GB'", "gpu.peak_temperature, of: max, go: '< 90'",
    "host.pressure, go: '<= 10 %'", "host.pressure, go: '<= 10', no_go: '> 20 %'",
    "host.swap_in_rate, go: '< 400MiB/s'", "b.baseline.tok_s, go: '>= 9'",
    "b.tok_s, go: '>= 1.1 x baseline', min_samples: 12", "b.stall_s, go: '< 2s'",
    "tg.tg_tok_s, go: '>= 20', min_samples: 5", "tg.tg_tok_s, go: '>= 20'",
    "sw.tg_tok_s, go: '>= 20'", "t.tok_s, go: '>= 20', min_samples: 1",
    "t.tok_s, go: '>= 20', min_samples: 3", "m.stability, go: '>= 95 %', min_samples: 1",
    "m.restarts, go: '== 0', min_samples: 1", "o.observed_s, go: '>= 1min'",
    "o.requests, go: '>= 13'", "o.requests, go: '< 13'",
    "o.stability, go: '>= 95 %', min_samples: 13", "f.requests, go: '>= 100000'",
    "f.tok_s_drift, go: '<= 5 %'", "s.restarts, go: '< 0.5'", "s.errors, go: '< 1', no_go: '> 0'",
    "three.errors, go: '<= 2'", "three.stability, go: '> 95 %'", "fix.stability, go: '> 95 %'",
    "b.tok_s, go: '>= 20', no_go: '< 20'", "b.tok_s, go: '>= 20', no_go: '< 10'",
    "b.tok_s, no_go: '< 10'", "b.tok_s, go: '>= 1.1 x baseline', no_go: '< 1 x baseline'",
    "b.tok_s, go: '>= 1.1 x baseline', no_go: '< 10'", "s.errors, go: '== 0', no_go: '> 0'",
    "z.restarts, go: '== 0'", "size.growth, go: '<= 0GB'", "size.growth, go: '>= 0GB'",
]  # fmt: skip
TOGETHER = [
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '<= 20'}",
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, no_go: '> 30'}",
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, no_go: '== 25'}",
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.ttft_s, go: '< 2s'}",
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '< 1.2 x baseline'}",
    "{metric: s.errors, go: '> 0'}, {metric: s.errors, go: '< 2'}",
    "{metric: gpu.peak_used, of: max, go: '< 8GB'}, {metric: gpu.peak_used, of: sum, go: '> 9GB'}",
]


def gate(criteria: str) -> str:
    return f"{{id: g, gate: [{criteria}]}}"


def test_what_can_decide_is_accepted(book: Book) -> None:
    for criteria in [*(f"{{metric: {one}}}" for one in ACCEPTED), *TOGETHER]:
        assert book.steps(*MEASURED, gate(criteria))


def test_an_input_without_a_value_says_nothing_about_how_much_is_measured(book: Book) -> None:
    """A plan is shown all the same: the stand-in of a duration is no soak that is too short."""
    text = HEAD_OF_TWO + steps_text(
        "{id: b, benchmark: {service: cand, runs: '${{ inputs.runs }}'}}",
        "{id: s, soak: {service: cand, duration: '${{ inputs.long }}'}}",
        "{id: g, gate: [{metric: b.tok_s, go: '>= 20'}, {metric: s.requests, go: '>= 600'}]}",
    )
    assert book.load(text, planning=True)
    assert book.load(text, {"runs": "9", "long": "1h"})
    found = book.problems(text, {"runs": "2", "long": "1m"})
    assert len(found) == 2
    assert ("3 runs" in found[0], "13 fit" in found[1]) == (True, True)


@pytest.mark.parametrize(
    "written", ["100 %", "5 %", "'90'", "90.5.1 %", "0.9", "255", "true", "-90 %", "[90 %]", "''"]
)
def test_what_fills_no_context_is_refused_in_its_place(book: Book, written: str) -> None:
    soak = f"{{id: s, soak: {{service: cand, duration: 1h, context: {written}}}}}"
    (found,) = book.problems(SERVICES + steps_text(soak))
    assert re.match(r"\d+:\d+: ", found)
    assert "context" in found
    assert "like 90 %" in found


@pytest.mark.parametrize(
    ("written", "limits"),
    [("90 %", (7372, None)), ("12.5%", (1024, None)), ("7000", (7000, 7000))],
)
def test_a_share_of_the_servers_context_or_tokens(
    book: Book, written: str, limits: tuple[int, int | None]
) -> None:
    soak = f"{{id: s, soak: {{service: cand, duration: 1h, context: {written}}}}}"
    gate = "{id: g, gate: [{metric: s.context_peak, go: '>= 900'}]}"
    made = book.steps(soak, gate)
    asked = next(step.soak for _, step in made.steps() if step.soak is not None)
    assert (asked.limit(8192), asked.limit(None)) == limits


def test_a_soak_is_looked_at_as_often_as_is_reckoned_with() -> None:
    """The bound on looks is the executor's own rhythm, and a look at either end."""
    for duration in (2.0, 30.0, 60.0, 200.0, 3600.0, 86400.0):
        soak = SoakStep.model_validate({"service": "x", "duration": f"{duration:.0f}s"})
        every = min(SLOWEST_S, max(FASTEST_S, duration / LOOKS))
        assert soak.max_looks == int(duration / every) + 2
    assert MIN_SAMPLES["soak"] == 2 * DRIFT_SAMPLES


def test_more_runs_allow_more_samples(book: Book) -> None:
    bench = "{id: b, benchmark: {service: cand, runs: 9, max_runs: 30}}"
    assert book.steps(bench, gate("{metric: b.tok_s, go: '>= 20', min_samples: 30}"))
    (problem,) = book.step_problems(bench, gate("{metric: b.tok_s, go: '>= 20', min_samples: 31}"))
    assert "30 at most" in problem


def test_a_baseline_that_nobody_measures_has_no_figure(book: Book) -> None:
    bench = "{id: b, benchmark: {service: cand}}"
    (problem,) = book.step_problems(bench, gate("{metric: b.baseline.tok_s, go: '>= 9'}"))
    assert "'b.baseline.tok_s'" in problem


ABSOLUTE = {
    ">= 20": (">=", 20.0, ""), ">=20 tok/s": (">=", 20.0, "tok/s"),
    "> 10.75tok/s": (">", 10.75, "tok/s"), "<= 117GB": ("<=", 117e9, "B"),
    "< 20GiB": ("<", 20 * 2**30, "B"), "< 5 kB": ("<", 5000.0, "B"), "< 64 MB": ("<", 64e6, "B"),
    "== 0": ("==", 0.0, ""), "<= 900 ms": ("<=", 0.9, "s"), "<= 1.5s": ("<=", 1.5, "s"),
    "< 15m": ("<", 900.0, "s"), "< 1 h": ("<", 3600.0, "s"), "< 7 %": ("<", 0.07, "ratio"),
    "< 400MiB/s": ("<", 400 * 2**20, "B/s"), "  >=   20   tok/s ": (">=", 20.0, "tok/s"),
    "> -1 GiB": (">", -(2**30), "B"),
}  # fmt: skip


def test_what_is_read() -> None:
    expected = {text: Threshold(*parts) for text, parts in ABSOLUTE.items()}
    assert {text: parse_threshold(text) for text in ABSOLUTE} == expected
    for text in (">= 1.15 x baseline", ">=1.15x baseline", ">= 1.15 × baseline"):
        assert parse_threshold(text) == Threshold(">=", 1.15, "", True)


NO_FORM = [
    "", "20", ">=", ">= ", "=> 20", "= 20", "!= 20", ">> 20", ">= twenty", ">= nan", ">= inf",
    ">= 1e3", ">= 20 tok", ">= 20 parsecs", ">= 20 tok/s extra", ">= 20 gb", ">= 1,000",
    ">= 20 tok/s x baseline", ">= baseline", ">= 1.1 x", ">= 1.1 x base", ">= .5", ">= +5",
    ">= ٢٠", ">= 20 tok/s\n>= 30", ">= " + "9" * 400, "< " + "9" * 300 + "GiB", ">= 20 /s",
    ">= 20 ms/s", ">= - 5", ">= 0 x baseline", ">= -1 x baseline", ">= 5 tok/s/s",
]  # fmt: skip


def test_wrong_forms_say_the_expected_one() -> None:
    for text in NO_FORM:
        with pytest.raises(ValueError, match="like >="):
            parse_threshold(text)


def test_the_form_in_the_error_is_the_grammar() -> None:
    examples = THRESHOLD_FORM.partition("like ")[2].replace(" or ", ", ").split(", ")
    assert len([parse_threshold(example) for example in examples]) == 3


@given(st.text(max_size=40))
def test_any_text_parses_or_is_a_value_error(text: str) -> None:
    try:
        threshold = parse_threshold(text)
    except ValueError:
        return
    assert math.isfinite(threshold.value)


FITS = {
    (">= 10 s", "tok/s"): False, (">= 10 tok/s", "s"): False, (">= 10 GB", "tok/s"): False,
    (">= 10", "tok/s"): True, (">= 0.1", "ratio"): True, ("== 0", "count"): True,
    ("== 0", ""): True, ("<= 900", "s"): False, ("<= 117", "B"): False, ("<= 117", "B/s"): False,
    ("== 0", "B"): False, ("<= 117GB", "B"): True, ("<= 117GB", "B/s"): False,
    ("<= 900ms", "s"): True, ("<= 1%", "ratio"): True, ("<= 90%", "%"): True, ("<= 90", "%"): True,
    ("<= 1%", "count"): False, ("<= 1 tok/s", ""): False, (">= 1.1 x baseline", "s"): True,
    (">= 1.1 x baseline", "B"): True,
}  # fmt: skip


MET: dict[tuple[Any, ...], bool] = {
    (">= 20", 20.0): True, ("> 20", 20.0): False, ("<= 20", 20.0): True, ("< 20", 20.0): False,
    ("== 20", 20.0): True, ("== 20", 20.1): False, (">= 7%", 0.07): True, ("<= 900ms", 0.9): True,
    (">= 20", None): False, (">= 20", math.nan): False, ("< 20", math.nan): False,
    (">= 20", math.inf): False, ("< 20", -math.inf): False, ("<= 90%", 85.0, None, "%"): True,
    ("<= 90%", 95.0, None, "%"): False, (">= 1.15 x baseline", 12.6, 10.9): True,
    (">= 1.15 x baseline", 12.5, 10.9): False, ("<= 1 x baseline", 0.0, 0.0): True,
    ("<= 1 x baseline", 0.1, 0.0): False,
}  # fmt: skip


def test_units_go_together() -> None:
    wrong = {one: compatible(parse_threshold(one[0]), one[1]) for one in FITS}
    assert {one: said is None for one, said in wrong.items()} == FITS
    assert [one for one, said in wrong.items() if said and one[0] not in said] == []


def test_satisfied() -> None:
    assert {one: parse_threshold(one[0]).satisfied(*one[1:]) for one in MET} == MET


def test_no_usable_baseline_never_satisfies() -> None:
    threshold = parse_threshold(">= 1.1 x baseline")
    for baseline in (None, math.nan, math.inf, -1.0, 0.0):
        assert threshold.limit(baseline) is None
        assert not threshold.satisfied(1e9, baseline)
