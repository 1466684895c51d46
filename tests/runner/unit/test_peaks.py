"""What the machine used at most: right where it is sure, None where something may be missed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.host import sampler
from console.host.gpu.figures import GpuReport, GpuSample
from console.host.gpu.nvml import LOST
from console.host.sample import MemorySample, Sample
from console.journal import events
from console.journal.fold import fold
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.journal.samples import gauge_lines
from console.journal.store import event_of
from console.runner.peaks import GAP_S, Peaks, differs, record
from tests.clock import FakeClock

GB = 10**9
BIG, SMALL = GpuSample("GPU-a", 0, "RTX PRO 6000"), GpuSample("GPU-b", 1, "RTX 5090")
MEMORY = MemorySample(400 * GB, 300 * GB, 10 * GB, 0, 0.0, 0.0, 0.0, 0.0)
NO_DRIVER = "no NVIDIA driver: libnvidia-ml.so.1 is not there"


class Watched:
    """Peaks on a clock of its own; a tick is a second and a look."""

    def __init__(self, path: Path, before: dict[str, Any] | None = None) -> None:
        self.clock = FakeClock()
        self.run = RunDir(path)
        self.step = "load"
        self.peaks = Peaks(self.run, lambda: self.step, self.clock, before)

    def tick(
        self, *used: float | None, ram: float = 100 * GB, seconds: float = 1.0, **more: Any
    ) -> Watched:
        """`used` of each card; None: the driver lists it as lost. `more`: `trouble`, memory."""
        self.clock.time += seconds
        at, trouble = self.clock.time, more.pop("trouble", "")
        gpus = tuple(
            replace(card, why=LOST) if size is None
            else replace(card, used_bytes=int(size), temperature_c=40.0 + size / GB)
            for card, size in zip((BIG, SMALL), used, strict=False)
        )  # fmt: skip
        memory = replace(MEMORY, available=int(MEMORY.total - ram), **more)
        self.peaks.take(Sample(at, memory, (), GpuReport(at, gpus, trouble)))
        return self

    def hung(self, seconds: int) -> None:
        """NVML hangs: the sampler goes on with its last report."""
        last = GpuReport(self.clock.time, (replace(BIG, used_bytes=1),))
        for _ in range(seconds):
            self.clock.time += 1
            self.peaks.take(Sample(self.clock.time, MEMORY, (), last))

    @property
    def gpu(self) -> Any:
        return self.peaks.figures()["gpu"]

    @property
    def host(self) -> Any:
        return self.peaks.figures()["host"]


@pytest.fixture
def bench(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_the_most_of_each_figure(bench: Watched) -> None:
    bench.tick(10 * GB, 5 * GB).tick(90 * GB, 4 * GB, ram=300 * GB).tick(20 * GB, 30 * GB)
    assert bench.gpu == {
        "GPU-a": {"used": 90 * GB, "temperature": 130.0},
        "GPU-b": {"used": 30 * GB, "temperature": 70.0},
    }
    bench.tick(0, 0, swap_used=7, swap_in_rate=3.5, pressure_some=12.0).tick(0, 0)
    assert bench.host == {
        "ram_used": 300 * GB, "swap_used": 7, "swap_in": 3.5, "pressure": 12.0,
    }  # fmt: skip
    assert bench.peaks.figures()["n"] == 5


def test_a_card_that_is_lost_in_between_is_not_sure_even_when_it_comes_back(bench: Watched) -> None:
    bench.tick(10 * GB, 1 * GB)
    for _ in range(int(GAP_S)):
        bench.tick(None, 1 * GB)
    assert bench.gpu["GPU-a"]["used"] == 10 * GB  # a short hole is none: looks are a second apart
    bench.tick(trouble=NO_DRIVER)
    for seconds, seen in ((11, 10), (12, 20)):
        card = bench.gpu["GPU-a"]
        assert (card["used"], card["seen"]["used"]) == (None, seen * GB)
        assert card["why"]["used"].startswith(f"not read for {seconds} s in a row")
        assert bench.gpu["GPU-b"] == {"used": 1 * GB, "temperature": 41.0}
        bench.tick(20 * GB, 1 * GB)


def test_a_card_that_was_never_read_is_none_with_its_reason(bench: Watched) -> None:
    bench.tick(None, 1 * GB)
    assert bench.gpu["GPU-a"] == {
        "used": None, "temperature": None, "seen": {},
        "why": dict.fromkeys(("used", "temperature"), f"not read yet: {LOST}"),
    }  # fmt: skip
    for _ in range(20):
        bench.tick(None, 1 * GB)
    assert bench.gpu["GPU-a"]["why"]["used"] == f"not read in 21 s: {LOST}"


def test_nvml_that_hangs_is_a_gap_and_an_old_report_is_no_look(bench: Watched) -> None:
    bench.tick(10 * GB).hung(5)
    assert bench.gpu["GPU-a"]["used"] == 10 * GB
    bench.hung(20)
    assert bench.gpu["GPU-a"]["used"] is None
    assert bench.host["ram_used"] == 100 * GB
    assert bench.tick(10 * GB).gpu["GPU-a"]["used"] is None


def test_a_resumed_run_keeps_what_was_seen_and_says_that_nobody_looked(bench: Watched) -> None:
    before = json.loads(json.dumps(bench.tick(90 * GB).peaks.figures()))
    again = Watched(bench.run.path, before).tick(10 * GB, 3 * GB)
    assert again.gpu["GPU-a"]["used"] is None
    assert again.gpu["GPU-a"]["seen"]["used"] == 90 * GB
    assert again.gpu["GPU-b"]["used"] is None
    assert "nobody looked" in again.host["why"]["ram_used"]
    assert again.peaks.figures()["n"] == 2
    third = Watched(bench.run.path, again.peaks.figures())
    assert third.gpu["GPU-a"]["seen"]["used"] == 90 * GB
    assert third.gpu["GPU-b"]["seen"]["used"] == 3 * GB


def test_what_is_worth_an_event() -> None:
    rows: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
        ({"host": {"ram_used": 1000}}, {"host": {"ram_used": 1010}}, False),
        ({"host": {"ram_used": 1000}}, {"host": {"ram_used": 1011}}, True),
        ({"host": {"swap_used": 0}}, {"host": {"swap_used": 4096}}, True),
        ({"gpu": {"a": {"used": None}}}, {"gpu": {"a": {"used": None, "why": {"x": "y"}}}}, False),
        ({"gpu": {}}, {"gpu": {"a": {"used": 5}}}, True),
        ({"n": 3, "at": 5.0, "trouble": "x"}, {"n": 9000, "trouble": "y"}, False),
    )
    assert [row for row in rows if differs(row[0], row[1]) is not row[2]] == []


def test_lines_of_the_file(bench: Watched) -> None:
    bench.tick(10 * GB, None, swap_used=7)
    bench.step = "bench"
    bench.hung(4)
    lines = gauge_lines(bench.run.gauges)
    assert lines[0] == {
        "at": bench.clock.time - 4, "step": "load", "gpu": {"GPU-a": 10 * GB}, "ram": 100 * GB,
        "swap": 7, "psi": 0.0,
    }  # fmt: skip
    assert (lines[-1]["step"], lines[-1]["gpu"]) == ("bench", {}), "an old report is none of now"


def test_memory_that_cannot_be_read_leaves_no_zero(bench: Watched) -> None:
    bench.clock.time += 1
    bench.peaks.take(Sample(bench.clock.time, None, (), None, "memory cannot be read: EIO"))
    assert bench.host["ram_used"] is None
    assert bench.host["why"]["ram_used"] == "not read yet: memory cannot be read: EIO"
    assert gauge_lines(bench.run.gauges) == [{"at": bench.clock.time, "step": "load", "gpu": {}}]


class Looked(threading.Event):
    """Not cancelled; while the clock waits, the bench looks."""

    def __init__(self, bench: Watched, used: float | None) -> None:
        super().__init__()
        self.bench, self.used, self.waits = bench, used, 0

    def is_set(self) -> bool:
        self.waits += 1
        if self.waits % 10 == 0:
            self.bench.tick(self.used)
        return super().is_set()


def test_a_gate_waits_for_a_look_of_its_own_time(bench: Watched) -> None:
    bench.tick(10 * GB)
    bench.clock.time += 0.5
    looked = Looked(bench, 90 * GB)
    bench.peaks.settle(looked)
    assert bench.gpu["GPU-a"]["used"] == 90 * GB
    assert looked.waits == 10


def test_a_gate_waits_for_a_silent_card_until_it_is_not_sure_and_no_longer(bench: Watched) -> None:
    bench.tick(10 * GB)
    begun = bench.clock.time = bench.clock.time + 0.5
    bench.peaks.settle(Looked(bench, None))
    assert GAP_S < bench.clock.time - begun < GAP_S + 2
    assert bench.gpu["GPU-a"]["used"] is None
    begun = bench.clock.time
    bench.peaks.settle(Looked(bench, None))
    assert bench.clock.time - begun < 2, "it is lost: nothing more to wait for"


def test_no_thread_left_is_no_error(bench: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was closed before it began never begins."""
    started: list[str] = []

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(sampler.Sampler, "start", lambda self: started.append("sampler"))
    bench.peaks.start()
    bench.peaks.close()
    bench.peaks._begin()
    assert (bench.peaks.figures()["n"], started) == (0, [])


class Runner:
    """As much of a run's Context as recording takes."""

    def __init__(self, peaks: Peaks) -> None:
        self.peaks, self.view = peaks, RunView()

    def record(self, body: events.Body, step: str, attempt: int) -> None:
        data = json.loads(json.dumps(body.data()))
        fold([event_of(self.view.seq + 1, 5.0, body.kind, step, attempt, data)], self.view)

    def ends(self, step: str, *, exact: bool = False) -> int:
        record(self, step, 1, exact=exact)  # type: ignore[arg-type]
        return self.view.seq


def test_steps_in_which_nothing_rose_leave_no_event(bench: Watched) -> None:
    runner = Runner(bench.peaks)
    assert runner.ends("first") == 0, "nobody has looked yet"
    bench.tick(90 * GB)
    bench.tick(90 * GB)
    assert [runner.ends(step) for step in ("a", "b", "c")] == [1, 1, 1]
    bench.tick(90.5 * GB)
    assert runner.ends("d") == 1
    assert runner.view.peaks.gpu["GPU-a"]["used"] == 90 * GB
    assert runner.ends("gate", exact=True) == 2, "a gate decides by the exact figure"
    assert runner.view.peaks.gpu["GPU-a"]["used"] == 90.5 * GB
    assert (runner.view.peaks.n, runner.view.peaks.at) == (3, 5.0)
    bench.tick(95 * GB)
    assert runner.ends("e") == 3
    bench.clock.time += 60
    assert runner.ends("f") == 4, "what is not sure any more is news"
    assert runner.view.peaks.gpu["GPU-a"]["used"] is None


def test_what_nobody_looked_at_is_not_sure(bench: Watched) -> None:
    found = bench.peaks.figures()
    assert (found["gpu"], found["n"], found["host"]["ram_used"]) == ({}, 0, None)
    assert (found["host"]["why"]["ram_used"], found["host"]["seen"]) == ("not read yet", {})
    found = bench.tick(trouble=NO_DRIVER).peaks.figures()
    assert (found["gpu"], found["trouble"]) == ({}, NO_DRIVER)
    assert found["host"]["ram_used"] == 100 * GB
    for _ in range(14):
        bench.tick(trouble=NO_DRIVER, pressure_some=None)
    assert list(bench.host["why"]) == ["pressure"], "a kernel without it costs that figure alone"
    late = bench.tick(10 * GB).gpu["GPU-a"]
    assert (late["used"], late["seen"]["used"]) == (None, 10 * GB)
    assert late["why"]["used"] == "not read in 16 s"
    assert Watched(bench.run.path, {}).tick(1 * GB).gpu["GPU-a"]["used"] is None, "it died early"


def test_a_runner_that_stood_still_saw_nothing(bench: Watched) -> None:
    bench.tick(10 * GB).tick(10 * GB, seconds=60)
    assert bench.host["why"]["ram_used"] == "not read for 60 s in a row"
    assert (bench.gpu["GPU-a"]["used"], bench.host["ram_used"]) == (None, None)
    cancelled = threading.Event()
    cancelled.set()
    begun = bench.clock.time = bench.clock.time + 1
    bench.peaks.settle(cancelled)
    assert bench.clock.time == begun, "who is cancelled does not wait for a look"
