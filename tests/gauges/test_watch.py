"""The reader as the console sees it: alive, hanging, dying, never answering."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from console.common.clock import Clock
from console.host.sample import GpuReport, GpuSample
from console.host.sampler import GpuWatch, parse
from tests.clock import FakeClock
from tests.testbed.nvml import RTX_5090, WORKSTATION, Nvml
from tests.waiting import until


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
    assert last is not None
    assert last.trouble == ""
    until(lambda: not process.is_running())


def test_a_reader_that_never_answers(make: Make) -> None:
    clock = FakeClock()
    watch = make(clock, "sleep", "600")
    watch.start()
    begun = clock.monotonic()
    assert watch.latest() is None
    clock.time += 12
    report = watch.latest()
    assert report is not None
    assert "NVML" in report.trouble
    assert report.at == begun


def test_three_fast_deaths_are_said(make: Make) -> None:
    clock = FakeClock()
    watch = make(clock, "sh", "-c", "exit 7")
    watch.start()
    until(lambda: "exit status 7" in words(watch))
    watch.close()
    assert clock.slept[:5] == [1.0, 2.0, 4.0, 8.0, 16.0][: len(clock.slept[:5])]
    assert max(clock.slept) <= 30.0


def test_a_reader_that_cannot_be_started(make: Make) -> None:
    watch = make(FakeClock(), "/nowhere/python")
    watch.start()
    until(lambda: "(No such file or directory)" in words(watch))


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


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"gpus": [{"no": 1}], "trouble": ""}'])
def test_a_line_that_is_not_whole_is_no_report(line: bytes) -> None:
    assert parse(line, 1.0) is None


def test_a_line_that_is() -> None:
    line = b'{"gpus": [{"uuid": "u", "index": 1, "name": "n"}], "trouble": "t"}'
    assert parse(line, 1.0) == GpuReport(1.0, (GpuSample("u", 1, "n"),), "t")
