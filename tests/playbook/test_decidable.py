"""Gates that can never fail or never pass refuse to load, by what their metric can be at all."""

from __future__ import annotations

from console.bench import statistics
from console.bench.soak import REQUEST_S
from console.config.playbook.measuring_steps import DRIFT_PART, DRIFT_SAMPLES, LEAST, SoakStep
from console.config.playbook.rules import SOAK_END_S
from console.runner.executors.soak import LOOKS
from console.runner.executors.soak_monitor import FASTEST_S, SLOWEST_S
from tests.playbook.book import SERVICES, Book, steps_text

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


def test_a_soak_is_looked_at_as_often_as_is_reckoned_with() -> None:
    """The bound on looks is the executor's own rhythm, and a look at either end."""
    for duration in (2.0, 30.0, 60.0, 200.0, 3600.0, 86400.0):
        soak = SoakStep.model_validate({"service": "x", "duration": f"{duration:.0f}s"})
        every = min(SLOWEST_S, max(FASTEST_S, duration / LOOKS))
        assert soak.most_looks == int(duration / every) + 2
    assert (DRIFT_PART, DRIFT_SAMPLES) == (statistics.DRIFT_PART, statistics.DRIFT_SAMPLES)
    assert LEAST["soak"] == 2 * DRIFT_SAMPLES
    assert SOAK_END_S == REQUEST_S


def test_more_runs_allow_more_samples(book: Book) -> None:
    bench = "{id: b, benchmark: {service: cand, runs: 9, max_runs: 30}}"
    assert book.steps(bench, gate("{metric: b.tok_s, go: '>= 20', min_samples: 30}"))
    (problem,) = book.step_problems(bench, gate("{metric: b.tok_s, go: '>= 20', min_samples: 31}"))
    assert "30 at most" in problem


def test_a_baseline_that_nobody_measures_has_no_figure(book: Book) -> None:
    bench = "{id: b, benchmark: {service: cand}}"
    (problem,) = book.step_problems(bench, gate("{metric: b.baseline.tok_s, go: '>= 9'}"))
    assert "'b.baseline.tok_s'" in problem
