"""The operator's own decision tables, written as gates: each threshold at, just below and just
above its limit. What is no figure holds whatever the gate: test_gate has it."""

import math
from typing import Any

import pytest

from console.config.playbook.load import load_playbook
from console.config.playbook.steps import Step
from console.config.playbook.verdict import Verdict
from console.runner.executors.gate import decide, outcome_name
from tests.runner.unit.cases import CARDS, agreeing, figure, peaks, picture

GO, NO_GO, HOLD = Verdict.GO, Verdict.NO_GO, Verdict.HOLD
GB = 1e9
HEAD = """\
schema: omni.playbook/v1
name: seeds
title: The operator's decision tables
services: {cand: {process: {argv: [serve]}, url: "http://127.0.0.1:8001"}}
phases:
  - title: Trial
    steps:
      - {id: bench, benchmark: {service: cand, runs: 9}}
      - {id: soak, soak: {service: cand, duration: 1h, every: 5s}}
      - {id: tg, run: [llama-bench, -o, json], figures: llama-bench}
      - {id: image, run: [docker, image, inspect], outputs: {size: {pattern: "([0-9]+)", unit: B}}}
      - id: decide
"""
SEEDS = {
    "lazarus": """\
        gate:
          - {metric: bench.tok_s, go: "> 12 tok/s", no_go: "< 10 tok/s", min_samples: 3}
          - {metric: bench.ttft_s, go: "< 2s", min_samples: 3}
          - {metric: soak.stability, go: "> 95 %", min_samples: 100}
          - {metric: gpu.peak_used, of: sum, no_go: "> 128GB"}
""",
    "evaluation": """\
        gate:
          - {metric: bench.tok_s, go: "> 12 tok/s", no_go: "< 8 tok/s", min_samples: 3}
          - {metric: soak.errors, go: "== 0", min_samples: 100}
        outcomes: {go: migrate, hold: evaluate, no_go: retain}
""",
    "phase 2": """\
        gate:
          - {metric: tg.tg_tok_s, go: ">= 20 tok/s", min_samples: 3}
          - {metric: tg.pp_tok_s, go: ">= 100 tok/s", min_samples: 3}
          - {metric: gpu.peak_used, of: sum, go: "<= 117GB"}
          - {metric: soak.errors, go: "== 0", min_samples: 100}
          - {metric: soak.restarts, go: "== 0", min_samples: 100}
          - {metric: soak.critical_lines, go: "== 0", min_samples: 100}
          - {metric: soak.rss_growth, go: "< 20GB", min_samples: 100}
          - {metric: image.size, go: "< 10GB"}
        outcomes: {go: cutover, no_go: retain}
""",
}
OUTCOMES = {
    "evaluation": {GO: "migrate", HOLD: "evaluate", NO_GO: "retain"},
    "phase 2": {GO: "cutover", NO_GO: "retain"},
}
GOOD = {
    "bench.tok_s": (30.0, "tok/s"),
    "bench.ttft_s": (1.2, "s"),
    "soak.stability": (1.0, "ratio"),
    "soak.errors": (0.0, "count"),
    "soak.restarts": (0.0, "count"),
    "soak.critical_lines": (0.0, "count"),
    "soak.rss_growth": (-1e6, "B"),
    "tg.tg_tok_s": (25.0, "tok/s"),
    "tg.pp_tok_s": (130.0, "tok/s"),
    "image.size": (8 * GB, "B"),
}
LIMITS = [
    ("lazarus", "bench.tok_s", 12.0, (HOLD, HOLD, GO)),
    ("lazarus", "bench.tok_s", 10.0, (NO_GO, HOLD, HOLD)),
    ("lazarus", "bench.ttft_s", 2.0, (GO, NO_GO, NO_GO)),
    ("lazarus", "soak.stability", 0.95, (NO_GO, NO_GO, GO)),
    ("lazarus", "gpu.peak_used", 128 * GB, (GO, GO, NO_GO)),
    ("evaluation", "bench.tok_s", 12.0, (HOLD, HOLD, GO)),
    ("evaluation", "bench.tok_s", 8.0, (NO_GO, HOLD, HOLD)),
    ("evaluation", "soak.errors", 0.0, (HOLD, GO, NO_GO)),
    ("phase 2", "tg.tg_tok_s", 20.0, (NO_GO, GO, GO)),
    ("phase 2", "tg.pp_tok_s", 100.0, (NO_GO, GO, GO)),
    ("phase 2", "gpu.peak_used", 117 * GB, (GO, GO, NO_GO)),
    ("phase 2", "soak.errors", 0.0, (HOLD, GO, NO_GO)),
    ("phase 2", "soak.restarts", 0.0, (HOLD, GO, NO_GO)),
    ("phase 2", "soak.critical_lines", 0.0, (HOLD, GO, NO_GO)),
    ("phase 2", "soak.rss_growth", 20 * GB, (GO, NO_GO, NO_GO)),
    ("phase 2", "image.size", 10 * GB, (GO, NO_GO, NO_GO)),
]
"""Seed, metric, limit; and what the whole gate says with all others good, just below, at and just
above the limit, by the smallest step a float knows."""


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Step]:
    """Each seed's gate, through the loader that refuses gates which decide nothing."""
    path, found = tmp_path_factory.mktemp("seed") / "book.yaml", {}
    for name, text in SEEDS.items():
        path.write_text(HEAD + text)
        found[name] = [step for _, step in load_playbook(path).steps()][-1]
    return found


def good(**changed: Any) -> dict[str, dict[str, Any]]:
    counts = {"soak": 720, "image": 1}
    return {
        name: figure(value, unit, counts.get(name.split(".")[0], 9))
        for name, (value, unit) in GOOD.items()
    } | changed


def judged(
    step: Step, metrics: dict[str, dict[str, Any]], used: float = 100 * GB
) -> tuple[Verdict, str]:
    machine = peaks(0)
    machine["gpu"] = {CARDS[0]: {"used": used}, CARDS[1]: {"used": 0.0}}
    verdict, _ = decide(step, picture(metrics, machine), CARDS)
    return verdict, outcome_name(step, verdict)


@pytest.mark.parametrize(("seed", "metric", "limit", "verdicts"), LIMITS)
def test_thresholds(
    gates: dict[str, Step], seed: str, metric: str, limit: float, verdicts: tuple[Verdict, ...]
) -> None:
    around = (math.nextafter(limit, -math.inf), limit, math.nextafter(limit, math.inf))
    for value, verdict in zip(around, verdicts, strict=True):
        given = good()
        if metric in given:
            given[metric]["value"] = value
        used = value if metric == "gpu.peak_used" else 100 * GB
        outcome = OUTCOMES.get(seed, {}).get(verdict, "")
        assert judged(gates[seed], given, used) == (verdict, outcome), value


def test_the_worst_decides_the_named_outcome(gates: dict[str, Step]) -> None:
    """10 tok/s alone would be `evaluate`; an unstable engine is `retain` all the same."""
    grey = good(**{"bench.tok_s": figure(10.0, "tok/s")})
    assert judged(gates["evaluation"], grey) == (HOLD, "evaluate")
    unstable = grey | {"soak.errors": figure(3.0, "count", 720)}
    assert judged(gates["evaluation"], unstable) == (NO_GO, "retain")


def test_what_really_happened(gates: dict[str, Step]) -> None:
    """Phase 2 as it was measured: 6.1 tok/s where 20 were hoped for."""
    measured = good(**{"tg.tg_tok_s": agreeing(6.1, "tok/s", 5)})
    assert judged(gates["phase 2"], measured) == (NO_GO, "retain")
