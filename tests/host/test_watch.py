"""The reader as the console sees it: alive, hanging, dying, never answering."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from console.common.clock import Clock
from console.host import machine
from console.host.gpu.figures import GpuReport, GpuSample, parse
from console.host.machine import read_disk
from console.host.sample import Sample
from console.host.sampler import GpuWatch, Sampler
from tests.clock import FakeClock
from tests.testbed.nvml import RTX_5090, WORKSTATION, Nvml
from tests.waiting import some, until


def readers() -> list[psutil.Process]:
    """Gauge processes of this one; what other tests left to be reaped does not count."""
    return [child for child in psutil.Process().children() if _reads(child)]


def _reads(child: psutil.Process) -> bool:
    try:
        return any("console.host.gpu.child" in word for word in child.cmdline())
    except psutil.Error:
        return False


Make = Callable[..., GpuWatch]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[GpuWatch] = []

    def one(clock: Clock | None = None, *argv: str) -> GpuWatch:
        made.append(GpuWatch(0.05, clock, argv))
        return made[-1]

    yield one
    for watch in made:
        watch.close()
    until(lambda: not [t for t in threading.enumerate() if t.name == "gauge-gpu"])
    until(lambda: not readers())


@pytest.fixture
def script(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = nvml.write(tmp_path / "script")
    for name, value in nvml.env(path).items():
        monkeypatch.setenv(name, value)
    return path


def words(watch: GpuWatch) -> str:
    report = watch.latest()
    return report.trouble if report is not None else ""


def test_reports_arrive(make: Make, script: Path) -> None:
    watch = make()
    assert watch.latest() is None
    watch.start()
    report: GpuReport = until(lambda: (now := watch.latest()) is not None and now.gpus and now)
    assert [gpu.uuid for gpu in report.gpus] == [card.uuid for card in WORKSTATION]
    until(lambda: (now := watch.latest()) is not None and now.at > report.at)


def test_a_reader_that_hangs_leaves_its_last_report_and_can_be_closed(
    make: Make, script: Path, nvml: Nvml
) -> None:
    clock = FakeClock()
    watch = make(clock)
    watch.start()
    until(watch.latest)
    nvml.write(script, (RTX_5090,), hang={"all": 600})
    process = readers()[0]

    def behind() -> bool:
        clock.time += 10
        time.sleep(0.3)  # six ticks of a reader that answers
        report = watch.latest()
        return report is not None and report.at <= clock.time - 10

    until(behind)
    last = watch.latest()
    watch.close()
    assert some(last).trouble == ""
    until(lambda: not process.is_running())


def test_a_reader_that_died_is_started_anew(make: Make, tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "again = mark.exists()\n"
        "mark.touch()\n"
        "trouble = 'second' if again else 'first'\n"
        'print(\'{"gpus": [], "trouble": "%s"}\' % trouble, flush=True)\n'
        "again and sys.stdin.read()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    watch = make(FakeClock(), sys.executable, "-c", program)
    watch.start()
    until(lambda: words(watch) == "second")


def test_closing_twice_or_before_the_start_does_no_harm(make: Make) -> None:
    watch = make()
    watch.close()
    watch.close()
    assert watch.latest() is None


def test_a_line_that_is_not_whole_is_no_report() -> None:
    for line in (b"", b"{", b"[]", b'{"gpus": [{"no": 1}], "trouble": ""}'):
        assert parse(line, 1.0) is None
    line = b'{"gpus": [{"uuid": "u", "index": 1, "name": "n"}], "trouble": "t"}'
    assert parse(line, 1.0) == GpuReport(1.0, (GpuSample("u", 1, "n"),), "t")


# -- the sampler: it delivers whatever hangs, and leaves nothing behind ----------------------------

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
    whole = os.statvfs(tmp_path)
    assert sample.disks[1].total == whole.f_blocks * whole.f_frsize
    assert "\x1b" not in read_disk("/x\x1b]52;c;eA==\x07/\x1b[2J").path
    assert sample.memory is not None
    assert sample.gpu is None
    assert first(arrived, lambda s: s.memory is not None and s.memory.swap_in_rate is not None)
    assert arrived.get(timeout=60).at > sample.at


def test_the_first_sample_waits_for_nobody(start: Start) -> None:
    sample = start("/", gpu=True).get(timeout=60)
    assert sample.gpu is None
    assert sample.memory is not None


def test_gpus(start: Start, script: Path, nvml: Nvml) -> None:
    arrived = start(gpu=True)
    sample = first(arrived, lambda s: s.gpu is not None and len(s.gpu.gpus) > 0)
    assert [gpu.uuid for gpu in some(sample.gpu).gpus] == [card.uuid for card in WORKSTATION]
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
    Sampler(["/"], print).close()  # one that never started
