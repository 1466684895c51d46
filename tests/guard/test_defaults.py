"""The levels scale with the machine; each metric can be read, and has a row on the page."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.host.gpu.figures import GpuSample
from console.models.sizing import assessment
from console.recovery.guard.config import GIB, MARGIN, Defaults, Limit, defaults
from console.recovery.guard.metrics import METRICS, PUBLIC, reader
from console.recovery.guard.observe.snapshot import Disk, GpuReading, Load, Memory, Snapshot, Swap
from tests.guard.judging import SWAP, TOTAL, Bench

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "guards.md"
GPU = GpuSample("GPU-a", 0, "x", 1, 2, 0.5, 60.0, 300.0, 600.0)
SIZES = (4, 8, 16, 24, 64, 128, 384, 2048)


def kills(found: Defaults, metric: str) -> list[Limit]:
    return [one for one in found.limits if one.metric == metric and one.act == "kill"]


def test_the_margin_is_preflights() -> None:
    assert MARGIN == assessment.HOST_MARGIN


@given(total=st.integers(1 * GIB, 8192 * GIB), swap=st.integers(0, 1024 * GIB))
def test_every_machine(total: int, swap: int) -> None:
    found = defaults(total, swap)
    assert 0 < found.floor < found.kept <= found.reserve < total // 4
    assert found.kept <= MARGIN, "what preflight calls GO must be let end"
    if total >= 16 * GIB:
        assert found.floor >= 2 * GIB
    assert found.floor <= total // 8
    (floor,) = kills(found, "host.ram_available")
    assert floor.below == found.floor
    assert bool(kills(found, "host.swap_growth")) == bool(swap)
    for limit in found.limits:
        assert Limit.from_json(limit.to_json()) == limit
        assert limit.source == "default"


@pytest.mark.parametrize("gib", SIZES)
def test_each_warning_comes_before_its_kill(gib: int) -> None:
    found = defaults(gib * GIB, gib * GIB)
    for metric in ("host.ram_available", "host.time_to_full"):
        (kill,) = kills(found, metric)
        warn = next(one for one in found.limits if one.metric == metric and one.act == "warn")
        assert (warn.below or 0) > (kill.below or 0)
        assert (warn.scarce or gib * GIB) >= kill.scarce


def test_swap_growth_can_be_reached() -> None:
    for total, swap in ((384, 207), (24, 1), (4, 64)):
        (limit,) = kills(defaults(total * GIB, swap * GIB), "host.swap_growth")
        assert 0 < (limit.above or 0) <= swap * GIB / 2


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_read(metric: str) -> None:
    bench = Bench()
    bench.go(2.0, swap=GIB)
    at = bench.at
    memory = Memory(at, TOTAL, 100 * GIB, SWAP, GIB, 0, 0, bound=GIB)
    metrics = bench.policy.metrics
    metrics.take(Snapshot(
        at, memory, Swap(at, 1.0, 2.0), cards=(GpuReading(GPU, at),),
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
