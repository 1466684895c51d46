"""The record of each metric is whole: it can be read, and the operators' page has its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from console.recovery.guard.config import GIB, Limit
from console.recovery.guard.metrics import METRICS, PUBLIC, reader
from console.recovery.guard.observe.snapshot import Disk, GpuMemory, Load, Memory, Snapshot, Swap
from tests.guard.judging import SWAP, TOTAL, Bench

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "guards.md"


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_read(metric: str) -> None:
    bench = Bench()
    bench.go(2.0, swap=GIB)
    at = bench.at
    memory = Memory(at, TOTAL, 100 * GIB, SWAP, GIB, 0, 0, bound=GIB)
    metrics = bench.policy.metrics
    metrics.take(Snapshot(
        at, memory, Swap(at, 1.0, 2.0), cards=(GpuMemory("GPU-a", at, 1, 2),),
        disks=(Disk("/a", at, 5),), loads=(Load("a", "container", at, 5, oom=1, restarts=1),),
        beat_at=at,
    ))  # fmt: skip
    read, grace_s = reader(Limit(metric, above=1.0), -1)
    reading = read(metrics)
    assert reading is not None
    assert reading.value is not None, reading.why
    assert (reading.at, grace_s > 0) == (at, True)
    now = METRICS[metric].now
    assert now is None or now(metrics, memory) == reading.value


def test_the_page_has_every_metric_with_its_side() -> None:
    sides: dict[str, str] = {}
    for row in re.findall(r"^\| (`\w+\.\w.*?) \| (.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE):
        names, bad = (re.findall(r"`([\w.]+)`", cell) for cell in row)
        sides |= zip(names, bad * len(names) if len(bad) == 1 else bad, strict=True)
    low = {name: "below" if METRICS[name].low else "above" for name in PUBLIC}
    assert sides == low
