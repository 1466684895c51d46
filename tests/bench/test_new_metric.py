"""A new metric is a record, its figure and a row of the docs: no other place has to know it."""

from pathlib import Path

import pytest

from console.bench import metrics
from tests.copied import ROOT, changed, copied_tree, python

PAGE = "docs/reference/metrics.md"
RECORD = """METRICS: dict[str, Metric] = {
    "itl_p99_s": Metric(
        "s", "time between two chunks, 99 of 100 are shorter", compared=6, evidence=True,
        label="itl", cure="a smaller batch",
    ),
"""
FIELD = "class Sample:", "class Sample:\n    itl_p99_s: float | None = None"
FIGURE = "    return Sample(\n", "    return Sample(\n        itl_p99_s=largest_gap(text),\n"
ROW = "| `ID.itl_p99_s` | time between two chunks |\n"
BOOK = """
schema: omni.playbook/v1
name: trial
title: Trial
services: {cand: {process: {argv: [/bin/true]}, url: "http://127.0.0.1:9"}}
phases:
  - title: Trial
    steps:
      - {id: up, service: {start: cand}}
      - {id: bench, benchmark: {service: cand, runs: 5}}
      - {id: go, gate: [{metric: bench.itl_p99_s, go: "< 20 ms"}]}
"""
SITE = """
schema: omni.site/v1
name: local
baseline: {process: {argv: [/bin/true]}, url: "http://127.0.0.1:8"}
"""
LOOK = """
from console.bench.sample import measure
from console.bench.statistics import summarise
from console.bench.sse import Event, Reply
from console.render.report import benchmarks, compare
from console.rehearsal.speed import target_speeds
from widgets.detail import EVIDENCE

from console.bench.sample import Sample
summary = summarise([Sample(itl_p99_s=0.01)] * 3)["itl_p99_s"]
print(summary.value, summary.unit, summary.headline)
print("itl_p99_s" in compare.BENCH, "itl_p99_s" in EVIDENCE)
print(benchmarks.ordered(benchmarks.METRICS, {"itl_p99_s": {}, "tok_s": {}}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with one more metric of a benchmark, and its tests."""
    sample = changed("console/bench/sample.py", *FIELD)["console/bench/sample.py"]
    return copied_tree(tmp_path_factory.mktemp("tree"), {
        **changed("console/bench/metrics.py", "METRICS: dict[str, Metric] = {\n", RECORD),
        "console/bench/sample.py": sample.replace(*FIGURE, 1),
        PAGE: (ROOT / PAGE).read_text("utf-8") + ROW,
        "site.yaml": SITE, "trial.yaml": BOOK,
    })  # fmt: skip


def test_a_gate_can_name_it_and_every_face_has_it(tree: Path) -> None:
    looked = python(tree, "-c", LOOK)
    assert looked.stdout.splitlines() == [
        "0.01 s median", "True True", "['itl_p99_s', 'tok_s']",
    ], looked.stderr  # fmt: skip
    plan = python(tree, "-m", "console", "--site", "site.yaml", "plan", "trial.yaml")
    assert "bench.itl_p99_s" in plan.stdout, plan.stdout + plan.stderr
    unknown = python(tree, "-m", "console", "--site", "site.yaml", "lint", "trial.yaml")
    assert unknown.returncode == 0, unknown.stdout + unknown.stderr


def test_what_holds_for_every_metric_holds_for_it(tree: Path) -> None:
    tests = "tests/bench/test_metric_table.py"
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_is_the_programs() -> None:
    assert "itl_p99_s" not in metrics.METRICS
