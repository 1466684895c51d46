"""What the gauges say, word for word: `make golden` writes it anew."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from console.host.gpu import nvml
from console.host.machine import DiskWatch, read_disk
from console.host.sample import DiskSample, GpuReport, MemorySample, Sample
from console.host.sampler import GpuWatch
from console.render.cells import plain
from console.render.gauges import gpu_rows, host_brief, one_row
from tests.clock import FakeClock
from tests.gauges.test_text import (
    FULL,
    GIB,
    GONE,
    MEMORY,
    PRO,
    SIGNS,
    SMALL,
    UNKNOWN,
    WIDE,
    cards,
    rows,
    sample,
)
from tests.waiting import until


def test_cards(snapshot: SnapshotAssertion) -> None:
    seen = {}
    for width in (40, 60, 80, 119, 120, 200):
        seen[width] = [*cards(width, PRO, SMALL), *cards(width, WIDE), *cards(width, PRO, now=20)]
        seen[width] += [line for gpu in UNKNOWN for line in cards(width, gpu)]
    reports = (None, GpuReport(0.0, (), "no NVIDIA driver"), GpuReport(0.0))
    seen[0] = [plain(gpu_rows(report, 80, 0.0, SIGNS, {})[0]) for report in reports]
    assert seen == snapshot


def test_rows_of_a_machine(snapshot: SnapshotAssertion) -> None:
    machines = {
        "whole": sample(PRO), "full": FULL, "old": Sample(0.0, MEMORY, (), GpuReport(-9.0, (PRO,))),
        "lacking": sample(memory=MemorySample(8 * GIB, GIB // 4, 4 * GIB, 0)),
        "no swap": sample(memory=MemorySample(8 * GIB, GIB, 0, 0, 0.0, 0.0)),
        "pressed": sample(memory=MemorySample(8 * GIB, GIB, GIB, GIB, 5e8, 2e8, 41.0, 20.0)),
        "no memory": sample(memory=None),
        "dead": Sample(0.0, MEMORY, (DiskSample("/mnt/nas", None, None, "no answer for 12 s"),)),
    }  # fmt: skip
    seen = {}
    for name, one in machines.items():
        seen[name] = [rows(one, width, 20.0, most) for width in (60, 80, 120) for most in (0, 3, 1)]
        brief = [plain(host_brief(one, 20.0, SIGNS, width)) for width in (30, 60)]
        seen[name].append([plain(one_row(one, 20.0, SIGNS)), *brief])
    seen["lost"] = [[plain(one_row(sample(PRO, GONE), 0.0, SIGNS))]]
    assert seen == snapshot


def test_what_a_driver_cannot_tell(snapshot: SnapshotAssertion) -> None:
    class Error(Exception):
        def __init__(self, value: int) -> None:
            super().__init__("in its own words")
            self.value = value

    said = {code: nvml.words(Error(code)) for code in (1, 3, 4, 9, 10, 12, 13, 15, 16, 18, 77, 999)}
    assert said == snapshot


def test_what_a_disk_cannot_tell(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    clock, release = FakeClock(), threading.Event()

    def hang(path: str) -> DiskSample:
        release.wait(60)
        watch.close()
        return DiskSample(path, 10, 5)

    watch = DiskWatch("/mnt/nas", clock, hang)
    said = [read_disk(path).why for path in (str(tmp_path / "gone"), "/proc", "a\0b")]
    watch.start()
    for seconds in (2, 10):
        clock.time += seconds
        said.append(watch.latest().why)
    release.set()
    watch.join(60)
    assert said == snapshot


def test_what_a_reader_cannot_tell(snapshot: SnapshotAssertion) -> None:
    said = []
    for argv in (("sleep", "600"), ("/nowhere/python",), ("sh", "-c", "exit 7")):
        clock = FakeClock()
        watch = GpuWatch(0.05, clock, argv)
        watch.start()
        clock.time += 12 * (argv[0] == "sleep")
        report = until(lambda watch=watch: watch.latest(), f"what is said of {argv}")
        said.append(re.sub(r"\d+ times", "… times", report.trouble))
        watch.close()
    assert said == snapshot
