"""The sampler: it delivers whatever hangs, and leaves nothing behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from console.host import machine
from console.host.sample import Sample, Trend
from console.host.sampler import Sampler
from tests.gauges.test_watch import readers
from tests.testbed.nvml import WORKSTATION, Nvml
from tests.waiting import until

Start = Callable[..., "SimpleQueue[Sample]"]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Sampler] = []

    def one(*paths: str, gpu: bool = False, **more: Any) -> SimpleQueue[Sample]:
        arrived: SimpleQueue[Sample] = SimpleQueue()
        made.append(Sampler(paths, arrived.put, 0.02, gpu=gpu, **more))
        made[-1].start()
        return arrived

    yield one
    for sampler in made:
        sampler.close()
    names = {"gauges", "gauge-gpu"}
    until(lambda: not {t.name for t in threading.enumerate()} & names, "the threads' end")
    until(lambda: not readers(), "the readers' end")


def first(arrived: SimpleQueue[Sample], wanted: Callable[[Sample], bool]) -> Sample:
    while not wanted(sample := arrived.get(timeout=60)):
        pass
    return sample


def test_memory_and_disks(start: Start, tmp_path: Path) -> None:
    arrived = start("/", str(tmp_path), "/")
    sample = first(arrived, lambda s: all(disk.free for disk in s.disks))
    assert [disk.path for disk in sample.disks] == ["/", str(tmp_path)]
    assert sample.memory is not None
    assert sample.gpu is None
    assert first(arrived, lambda s: s.memory is not None and s.memory.swap_in_rate is not None)
    assert arrived.get(timeout=60).at > sample.at


def test_the_first_sample_waits_for_nobody(start: Start) -> None:
    sample = start("/", gpu=True).get(timeout=60)
    assert sample.gpu is None
    assert sample.memory is not None


def test_gpus(start: Start, nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = nvml.write(tmp_path / "script")
    for name, value in nvml.env(script).items():
        monkeypatch.setenv(name, value)
    arrived = start(gpu=True)
    sample = first(arrived, lambda s: s.gpu is not None and len(s.gpu.gpus) > 0)
    assert sample.gpu is not None
    assert [gpu.uuid for gpu in sample.gpu.gpus] == [card.uuid for card in WORKSTATION]
    nvml.write(script, hang={"all": 600})
    # the rest goes on while NVML hangs, and the report shows its age
    late = first(arrived, lambda s: s.gpu is not None and s.at - s.gpu.at > 0.5)
    assert late.memory is not None


def test_a_mount_that_hangs_stops_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    real, release = os.statvfs, threading.Event()

    def hang(path: str) -> os.statvfs_result:
        if path == "/dead":
            release.wait(60)
        return real(path)

    monkeypatch.setattr(os, "statvfs", hang)
    monkeypatch.setattr(machine, "SILENT_S", 0.3)
    try:
        arrived = start("/", "/dead")
        silent = first(arrived, lambda s: s.disks[1].why.startswith("no answer "))
        assert silent.memory is not None
        assert first(arrived, lambda s: s.disks[0].free is not None).disks[1].free is None
    finally:
        release.set()


def test_no_memory_figures_are_words(start: Start, tmp_path: Path) -> None:
    sample = start(root=tmp_path).get(timeout=60)
    assert sample.memory is None
    assert sample.memory_why


def test_closing_from_within_and_twice() -> None:
    seen: list[Sample] = []

    def deliver(sample: Sample) -> None:
        seen.append(sample)
        sampler.close()
        done.set()

    done = threading.Event()
    sampler = Sampler([], deliver, 0.01, gpu=False)
    sampler.start()
    assert done.wait(60)
    sampler.close()
    assert len(seen) == 1


def test_closing_before_the_start() -> None:
    Sampler(["/"], print).close()


def test_a_trend_is_bounded_and_stands_still_until_a_span_is_full() -> None:
    trend = Trend(12)
    assert trend.averages(4) == [None] * 4
    for value in (0.0, 1.0, 0.5):
        trend.add(value)
    assert trend.averages(4) == [None, None, None, 0.5]
    trend.add(0.2)
    assert trend.averages(4) == [None, None, 0.5, 0.2]
    trend.add(0.4)
    assert trend.averages(4)[:3] == [None, None, 0.5]
    trend.add(None)
    assert trend.averages(4)[3] == pytest.approx(0.3)
    for _ in range(100):
        trend.add(None)
    assert len(trend.values) == 12
    assert trend.averages(4) == [None] * 4
    assert trend.averages(0) == []
