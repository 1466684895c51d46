"""A new guard metric on a figure of the cards is a record and a row of the docs: no other place has
to know it."""

import re
from pathlib import Path

import pytest

from console.recovery.guard.metrics import METRICS
from tests.copied import ROOT, changed, copied_tree, python

METRICS_FILE, PAGE = "console/recovery/guard/metrics.py", "docs/reference/guards.md"
RECORD = """METRICS: dict[str, Metric] = {
    "gpu.load": Metric(
        "%", "GPU load", partial(_gpu, lambda gpu: gpu.utilisation and gpu.utilisation * 100),
        FAR_GRACE_S, before_run="once", most=100.0, of={"min": "of every card"}, short="load",
    ),
"""
ROW = "| `disk.free` | `below`"
BOOK = """
schema: omni.playbook/v1
name: trial
title: Trial
guards: [{metric: gpu.load, above: 90%, of: min, for: 2s}]
phases:
  - title: Trial
    steps: [{id: a, note: x}]
"""
SITE = """
schema: omni.site/v1
name: local
baseline: {process: {argv: [/bin/true]}, url: "http://127.0.0.1:8"}
"""
LOOK = """
from console.recovery.guard.config import Limit
from console.host.gpu.figures import GpuSample
from console.recovery.guard.observe.snapshot import GpuReading
from console.render.guard import nearest
from tests.guard.judging import Bench

limit = Limit("gpu.load", above=90.0, of="min")
bench = Bench(limit)
cards = tuple(GpuReading(GpuSample(uuid, 0, "x", utilisation=0.95), bench.at) for uuid in "ab")
print(bench.breached(0.1, cards=cards).reasons[0])
print(nearest((limit,)))
"""
HOLDS = ("tests/guard/test_defaults.py", "tests/playbook/test_guards.py")
"""Tests that look at every metric."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with one more guard metric, and its tests."""
    row = "| `gpu.load` | `above` | `90%`; `of: min` or a UUID |\n"
    places = {
        **changed(METRICS_FILE, "METRICS: dict[str, Metric] = {\n", RECORD),
        **changed(PAGE, ROW, row + ROW),
    }
    own = {"site.yaml": SITE, "trial.yaml": BOOK}
    return copied_tree(tmp_path_factory.mktemp("tree"), {**places, **own})


def test_a_playbook_can_have_a_limit_on_it_and_the_sentinel_acts(tree: Path) -> None:
    plan = python(tree, "-m", "console", "--site", "site.yaml", "plan", "trial.yaml")
    assert "GPU load of every card above 90 % for 2.00 s" in plan.stdout, plan.stderr
    schema = python(tree, "-m", "console", "schema", "--markdown").stdout
    assert "`gpu.load`" in schema
    looked = python(tree, "-c", LOOK)
    assert looked.stdout.splitlines() == [
        "GPU load (a) 95 % of the time, above 90 % of the time (default)",
        "['load above 90 %']",
    ], looked.stderr  # fmt: skip


def test_what_holds_for_every_metric_holds_for_it(tree: Path) -> None:
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *HOLDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contributing_names_these_places_and_no_other() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    row = next(row for row in rows if row.startswith("| a guard metric on a figure of the cards |"))
    assert re.findall(r"`([\w/]+/\w+\.\w+)`", row) == [METRICS_FILE, PAGE]
    assert "gpu.load" not in METRICS
