"""What holds for every metric that a gate can name."""

import dataclasses
import re
from pathlib import Path

import pytest

from console.bench import metrics
from console.bench.metrics import Metric, metric_of
from console.bench.sample import Sample

TABLES = {
    "bench": metrics.GATED, "out": metrics.OUTPUT_METRICS, "soak": metrics.SOAK_METRICS,
    "kld": metrics.QUALITY_METRICS, "tasks": metrics.TASK_METRICS, "same": metrics.CONTRACT_METRICS,
    "tune": metrics.TUNE_METRICS,
}  # fmt: skip
UNITS = {"s", "B", "B/s", "tok/s", "ratio", "count", "%", ""}
EVERY = [(f"{step}.{name}", metric) for step, table in TABLES.items()
         for name, metric in table.items()]  # fmt: skip
EVERY += metrics.GAUGE_METRICS.items()


@pytest.mark.parametrize(("name", "metric"), EVERY)
def test_every_metric_is_found_by_its_name_and_stands_in_the_docs(
    name: str, metric: Metric
) -> None:
    found = metric_of(name)
    assert found is not None
    assert (found.unit, found.generates, found.cure) == (metric.unit, metric.generates, metric.cure)
    assert metric.unit in UNITS
    assert metric.low < metric.high
    page = Path("docs/reference/metrics.md").read_text("utf-8")
    short = name if name in metrics.GAUGE_METRICS else name.partition(".")[2]
    assert re.search(rf"`(ID\.)?{re.escape(short)}`", page), f"{short} has no row"


def test_the_figures_of_one_request_are_fields_of_a_sample() -> None:
    fields = {field.name for field in dataclasses.fields(Sample)}
    assert set(metrics.PER_SAMPLE) <= fields
    assert metric_of("step.figure_of_a_command") is None
    assert metric_of("bench.baseline.tok_s") is metrics.METRICS["tok_s"]
