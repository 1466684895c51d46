"""Gates that can never fail or never pass refuse to load, by what their metric can be at all."""

from __future__ import annotations

import pytest

from console.benchmark import soak_trend
from console.benchmark.soak_ask import REQUEST_S
from console.playbook.measuring import DRIFT_PART, DRIFT_SAMPLES, LEAST, SoakStep
from console.playbook.rules import SOAK_END_S
from console.run.executors.soak import LOOKS
from console.run.soak_watch import FASTEST_S, SLOWEST_S
from tests.playbook.book import SERVICES, Book, steps_text

BENCH = "{id: b, benchmark: {service: cand, against: baseline}}"
SOAK = "{id: s, soak: {service: cand, duration: 1h}}"
SAY = "{id: say, run: [x], outputs: {n: {pattern: '([0-9]+)', unit: count}}}"
TG = "{id: tg, run: [llama-bench, -o, json], figures: llama-bench}"
STEPS = (
    BENCH, SOAK, SAY, TG, "{id: sw, run: [llama-sweep-bench], figures: sweep-bench}",
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


def gate(metric: str, **keys: object) -> str:
    said = "".join(
        f", {key}: '{text}'" if isinstance(text, str) and key != "of" else f", {key}: {text}"
        for key, text in keys.items()
    )
    return f"{{id: g, gate: [{{metric: {metric}{said}}}]}}"


@pytest.mark.parametrize(
    ("metric", "keys", "words"),
    [
        ("b.error_rate", {"go": "<= 100 %"}, "always met"),
        ("b.error_rate", {"go": "<= 1"}, "always met"),
        ("b.error_rate", {"no_go": "> 100 %"}, "can never be met"),
        ("b.error_rate", {"go": "> 1"}, "can never be met"),
        ("s.stability", {"go": "> 100 %"}, "can never be met"),
        ("s.stability", {"go": ">= 0 %"}, "always met"),
        ("s.stability", {"go": ">= 95 %", "no_go": "<= 100 %"}, "GO is impossible"),
        ("s.tok_s_drift", {"go": "<= 1"}, "always met"),
        ("s.tok_s_drift", {"no_go": "> 1"}, "can never be met"),
        ("s.rss_peak", {"go": ">= 0 B"}, "always met"),
        ("s.rss_peak", {"go": "< 0 B"}, "can never be met"),
        ("gpu.peak_used", {"of": "sum", "go": ">= 0 B"}, "always met"),
        ("host.pressure", {"go": "<= 100 %"}, "always met"),
        ("host.pressure", {"go": "<= 100"}, "always met"),
        ("host.pressure", {"no_go": "> 101"}, "can never be met"),
        ("host.pressure", {"go": "<= 10 %", "no_go": "> 5"}, "overlap"),
        ("b.baseline.tok_s", {"go": ">= 0"}, "always met"),
        ("b.tok_s", {"go": ">= 20", "min_samples": 13}, "there are 12 at most"),
        ("b.baseline.tok_s", {"go": ">= 20", "min_samples": 13}, "there are 12 at most"),
        ("say.n", {"go": "== 0", "min_samples": 2}, "there are 1 at most"),
        ("sw.tg_tok_s", {"go": ">= 20", "min_samples": 2}, "there are 1 at most"),
        ("tg.tg_tok_s", {"go": ">= 0"}, "always met"),
        ("tg.tg_tok_s", {"go": ">= 20 s"}, "a duration"),
        ("gpu.peak_temperature", {"of": "sum", "go": "< 90"}, "temperatures are not added up"),
        ("gpu.peak_used", {"go": "< 90GB"}, "of every card"),
        ("host.peak_ram_used", {"of": "max", "go": "< 90GB"}, "belongs to metrics of the cards"),
        (
            "t.tok_s",
            {"go": ">= 20"},
            "t.tok_s needs 3 runs unless min_samples is given, and runs: 2 "
            "gives 2; expected runs: 3 or more, or min_samples: 2",
        ),
        ("t.error_rate", {"go": "<= 0 %"}, "needs 3 runs"),
        ("t.tok_s", {"go": ">= 20", "min_samples": 4}, "there are 3 at most"),
        (
            "m.stability",
            {"go": ">= 95 %"},
            "m.stability needs 10 requests unless min_samples is given, and 1 fit in 2.00 s; "
            "expected a longer soak, a shorter every, or min_samples: 1",
        ),
        ("m.restarts", {"go": "== 0"}, "needs 10 requests"),
        ("m.rss_peak", {"go": "< 20GiB"}, "needs 10 requests"),
        ("m.restarts", {"go": "== 0", "min_samples": 100}, "there are 4 at most"),
        ("o.observed_s", {"go": ">= 2h"}, "can never be met (hint: the soak lasts 1 min 00 s)"),
        ("o.observed_s", {"no_go": "> 2h"}, "can never be met"),
        ("o.requests", {"go": ">= 1000"}, "can never be met (hint: 13 fit in 1 min 00 s)"),
        ("o.requests", {"go": "> 13"}, "can never be met"),
        ("o.requests", {"go": "< 13.5"}, "always met"),
        ("o.errors", {"no_go": "> 13"}, "can never be met"),
        ("o.stability", {"go": ">= 95 %", "min_samples": 14}, "there are 13 at most"),
        ("o.restarts", {"go": "== 0", "min_samples": 63}, "there are 62 at most"),
        ("o.tok_s_drift", {"go": "<= 5 %"}, "its first and its last sixth hold 6"),
        ("o.tok_s_drift", {"go": "<= 5 %", "min_samples": 1}, "there are 0 at most"),
        ("s.restarts", {"go": "== 0.5"}, "can never be met"),
        ("s.restarts", {"no_go": "== 0.5"}, "can never be met"),
        ("s.restarts", {"go": "> -0.5"}, "always met"),
        ("s.errors", {"go": "< 0.5", "no_go": "< 1"}, "overlap"),
        (
            "z.errors",
            {"go": "<= 5"},
            "always met, so the gate decides nothing (hint: above "
            "max_errors: 0 the soak itself fails)",
        ),
        ("z.errors", {"go": "== 0"}, "always met"),
        ("z.errors", {"no_go": "> 0"}, "can never be met"),
        ("z.stability", {"go": "> 95 %"}, "always met"),
        ("z.error_rate", {"go": "< 5 %"}, "always met"),
        ("three.errors", {"go": "<= 3"}, "always met"),
        ("three.errors", {"no_go": ">= 4"}, "can never be met"),
        ("size.gb", {"go": ">= 0GB"}, "always met"),
        ("size.gb", {"no_go": "< 0GB"}, "can never be met"),
        ("b.baseline.tok_s", {"go": ">= 1.1 x baseline"}, "nothing measures the baseline's"),
        ("s.tok_s", {"go": ">= 1.1 x baseline"}, "nothing measures the baseline's"),
    ],
)
def test_refused(book: Book, metric: str, keys: dict[str, object], words: str) -> None:
    (problem,) = book.step_problems(*STEPS, gate(metric, **keys))
    assert words in problem


@pytest.mark.parametrize(
    ("metric", "keys"),
    [
        ("b.error_rate", {"go": "<= 0 %"}),
        ("b.error_rate", {"go": "< 100 %"}),
        ("b.error_rate", {"go": "<= 2 x baseline"}),
        ("s.stability", {"go": "> 95 %"}),
        ("s.stability", {"go": ">= 100 %"}),
        ("s.tok_s_drift", {"go": "< 0"}),
        ("s.tok_s_drift", {"go": "<= 5 %"}),
        ("s.rss_growth", {"go": "<= 0 B"}),
        ("s.vram_growth", {"go": "< 20GiB"}),
        ("s.requests", {"go": ">= 600"}),
        ("gpu.peak_used", {"of": "sum", "go": "<= 117GB"}),
        ("gpu.peak_temperature", {"of": "max", "go": "< 90"}),
        ("host.pressure", {"go": "<= 10 %"}),
        ("host.pressure", {"go": "<= 10", "no_go": "> 20 %"}),
        ("host.swap_in_rate", {"go": "< 400MiB/s"}),
        ("b.baseline.tok_s", {"go": ">= 9"}),
        ("b.tok_s", {"go": ">= 1.1 x baseline", "min_samples": 12}),
        ("b.stall_s", {"go": "< 2s"}),
        ("tg.tg_tok_s", {"go": ">= 20", "min_samples": 5}),
        ("tg.tg_tok_s", {"go": ">= 20"}),
        ("sw.tg_tok_s", {"go": ">= 20"}),
        ("t.tok_s", {"go": ">= 20", "min_samples": 1}),
        ("t.tok_s", {"go": ">= 20", "min_samples": 3}),
        ("m.stability", {"go": ">= 95 %", "min_samples": 1}),
        ("m.restarts", {"go": "== 0", "min_samples": 1}),
        ("o.observed_s", {"go": ">= 1min"}),
        ("o.requests", {"go": ">= 13"}),
        ("o.requests", {"go": "< 13"}),
        ("o.stability", {"go": ">= 95 %", "min_samples": 13}),
        ("f.requests", {"go": ">= 100000"}),
        ("f.tok_s_drift", {"go": "<= 5 %"}),
        ("s.restarts", {"go": "< 0.5"}),
        ("s.errors", {"go": "< 1", "no_go": "> 0"}),
        ("three.errors", {"go": "<= 2"}),
        ("three.stability", {"go": "> 95 %"}),
        ("fix.stability", {"go": "> 95 %"}),
        ("z.restarts", {"go": "== 0"}),
        ("size.growth", {"go": "<= 0GB"}),
        ("size.growth", {"go": ">= 0GB"}),
    ],
)
def test_accepted(book: Book, metric: str, keys: dict[str, object]) -> None:
    assert book.steps(*STEPS, gate(metric, **keys))


@pytest.mark.parametrize(
    ("criteria", "words"),
    [
        ("{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '< 15'}",
         "no figure of b.tok_s meets both go >= 20 and go < 15, so GO is impossible"),
        ("{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '< 20'}", "meets both"),
        ("{metric: b.tok_s, go: '> 20'}, {metric: b.tok_s, go: '== 20'}", "meets both"),
        ("{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, no_go: '>= 15'}", "meets both"),
        ("{metric: b.tok_s, no_go: '< 20'}, {metric: b.tok_s, no_go: '> 15'}", "meets both"),
        ("{metric: b.tok_s, go: '> 5'}, {metric: b.tok_s, go: '> 20'}, "
         "{metric: b.tok_s, go: '<= 15'}", "both go > 20 and go <= 15"),
        ("{metric: b.tok_s, go: '>= 1.5 x baseline'}, {metric: b.tok_s, go: '< 1.2 x baseline'}",
         "meets both"),
        ("{metric: s.errors, go: '> 0'}, {metric: s.errors, go: '< 1'}", "meets both"),
        ("{metric: gpu.peak_used, of: sum, go: '> 9GB'}, "
         "{metric: gpu.peak_used, of: sum, go: '< 8GB'}", "meets both"),
    ],
)  # fmt: skip
def test_criteria_that_no_figure_meets_together_are_refused(
    book: Book, criteria: str, words: str
) -> None:
    (problem,) = book.step_problems(BENCH, SOAK, f"{{id: g, gate: [{criteria}]}}")
    assert words in problem


@pytest.mark.parametrize(
    "criteria",
    [
        "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '<= 20'}",
        "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, no_go: '> 30'}",
        "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, no_go: '== 25'}",
        "{metric: b.tok_s, go: '>= 20'}, {metric: b.ttft_s, go: '< 2s'}",
        "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '< 1.2 x baseline'}",
        "{metric: s.errors, go: '> 0'}, {metric: s.errors, go: '< 2'}",
        "{metric: gpu.peak_used, of: max, go: '< 8GB'}, "
        "{metric: gpu.peak_used, of: sum, go: '> 9GB'}",
    ],
)
def test_criteria_that_a_figure_can_meet_together(book: Book, criteria: str) -> None:
    assert book.steps(BENCH, SOAK, f"{{id: g, gate: [{criteria}]}}")


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
    assert [line.split(": ", 1)[1].split(" unless")[0] for line in found] == [
        "b.tok_s needs 3 runs", "go >= 600 can never be met (hint: 13 fit in 1 min 00 s)",
    ]  # fmt: skip


def test_a_soak_is_looked_at_as_often_as_is_reckoned_with() -> None:
    """The bound on looks is the executor's own rhythm, and a look at either end."""
    for duration in (2.0, 30.0, 60.0, 200.0, 3600.0, 86400.0):
        soak = SoakStep.model_validate({"service": "x", "duration": f"{duration:.0f}s"})
        every = min(SLOWEST_S, max(FASTEST_S, duration / LOOKS))
        assert soak.most_looks == int(duration / every) + 2
    assert (DRIFT_PART, DRIFT_SAMPLES) == (soak_trend.DRIFT_PART, soak_trend.DRIFT_SAMPLES)
    assert LEAST["soak"] == 2 * DRIFT_SAMPLES
    assert SOAK_END_S == REQUEST_S


def test_more_runs_allow_more_samples(book: Book) -> None:
    bench = "{id: b, benchmark: {service: cand, runs: 9, max_runs: 30}}"
    assert book.steps(bench, gate("b.tok_s", go=">= 20", min_samples=30))
    (problem,) = book.step_problems(bench, gate("b.tok_s", go=">= 20", min_samples=31))
    assert "there are 30 at most" in problem


def test_a_baseline_that_nobody_measures_has_no_figure(book: Book) -> None:
    bench = "{id: b, benchmark: {service: cand}}"
    (problem,) = book.step_problems(bench, gate("b.baseline.tok_s", go=">= 9"))
    assert "nothing before this gate measures 'b.baseline.tok_s'" in problem


def test_a_figure_is_read_once(book: Book) -> None:
    twice = (
        "{id: tg, run: [x], figures: llama-bench, "
        "outputs: {tg_tok_s: {pattern: 'tg ([0-9]+)', unit: tok/s}}}"
    )
    (problem,) = book.step_problems(twice)
    assert "tg_tok_s is what figures reads already" in problem
