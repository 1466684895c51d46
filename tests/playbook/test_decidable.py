"""Gates that can never fail or never pass refuse to load, by what their metric can be at all."""

from __future__ import annotations

import pytest

from tests.playbook.book import Book

BENCH = "{id: b, benchmark: {service: cand, against: baseline}}"
SOAK = "{id: s, soak: {service: cand, duration: 1h}}"
SAY = "{id: say, run: [x], outputs: {n: {pattern: '([0-9]+)', unit: count}}}"
TG = "{id: tg, run: [llama-bench, -o, json], figures: llama-bench}"
SWEEP = "{id: sw, run: [llama-sweep-bench], figures: sweep-bench}"


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
        ("b.baseline.tok_s", {"go": ">= 1.1 x baseline"}, "nothing measures the baseline's"),
        ("s.tok_s", {"go": ">= 1.1 x baseline"}, "nothing measures the baseline's"),
    ],
)
def test_refused(book: Book, metric: str, keys: dict[str, object], words: str) -> None:
    (problem,) = book.step_problems(BENCH, SOAK, SAY, TG, SWEEP, gate(metric, **keys))
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
    ],
)
def test_accepted(book: Book, metric: str, keys: dict[str, object]) -> None:
    assert book.steps(BENCH, SOAK, SAY, TG, SWEEP, gate(metric, **keys))


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
