"""Samples as rows of text: how wide, what is left out where room is short, and every word."""

import itertools
import re
import threading
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.host.gpu import nvml
from console.host.gpu.figures import GpuReport, GpuSample
from console.host.gpu.nvml import LOST, MIG, UNIFIED
from console.host.machine import DiskWatch, read_disk
from console.host.sample import (
    LIMITS,
    MIB,
    DiskSample,
    History,
    Level,
    MemorySample,
    Sample,
    disk_level,
    gpu_levels,
    memory_levels,
)
from console.host.sampler import GpuWatch
from console.render.cells import ASCII, Row, age_words, amount, cells, fitted, pair, plain, width_of
from console.render.gauges import all_rows, gpu_rows, host_brief, one_row, short_name
from tests.clock import FakeClock
from tests.waiting import until

GIB = 1024**3
SIGNS = ASCII
WIDTHS = (20, 40, 59, 60, 80, 99, 119, 120, 160, 200)
PRO = GpuSample(
    "GPU-a", 0, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    int(91.2 * GIB), int(95.6 * GIB), 0.87, 64, 412, 600,
)  # fmt: skip
SMALL = GpuSample("GPU-b", 1, "NVIDIA GeForce RTX 5090", 3 * GIB, 32 * GIB, 0.05, 91, 33, 575)
GONE = GpuSample("GPU-b", 1, "NVIDIA GeForce RTX 5090", why=LOST)
WIDE = GpuSample("", 12, "日本語" * 20, why="x" * 300)
MEMORY = MemorySample(377 * GIB, 354 * GIB, 207 * GIB, 0, 0.0, 0.0, 0.0, 0.0)
DISKS = (DiskSample("/", 1000 * GIB, 812 * GIB),)


def sample(*gpus: GpuSample, at: float = 0.0, memory: MemorySample | None = MEMORY) -> Sample:
    return Sample(at, memory, DISKS, GpuReport(at, gpus), "" if memory else "no meminfo")


def cards(width: int, *gpus: GpuSample, now: float = 0.0) -> list[str]:
    return [plain(row) for row in gpu_rows(GpuReport(0.0, gpus), width, now, SIGNS, History())]


def rows(one: Sample, width: int, now: float = 0.0, most: int = 0) -> list[str]:
    return [plain(row) for row in all_rows(one, width, now, SIGNS, History(), most)]


def tones(row: Row, word: str) -> set[str]:
    return {tone for text, tone in row if word in text}


def test_room_that_shrinks_takes_name_then_trend_then_watts() -> None:
    history = History()
    for second in range(90):
        history.add("busy", 1000.0 + second, 1.0, "GPU-a")

    def has(width: int) -> tuple[bool, bool, bool]:
        report = GpuReport(0.0, (PRO,))
        line = plain(gpu_rows(report, width, 0, SIGNS, history)[0])
        return "RTX" in line, line.endswith(SIGNS.levels[-2] * 5), "412/600 W" in line

    seen = [has(width) for width in range(100, 36, -1)]
    assert list(dict.fromkeys(seen)) == [
        (True, True, True), (False, True, True), (False, False, True), (False, False, False),
    ]  # fmt: skip
    assert has(80) == (True, True, True)
    assert has(60) == (False, False, True)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_row_is_wider_than_its_room(width: int) -> None:
    machines = ((PRO,), (PRO, SMALL), (PRO, GONE, SMALL), (WIDE,), ())
    for gpus, now, most in itertools.product(machines, (0.0, 90.0, 1e6), (0, 1, 2, 3)):
        drawn = all_rows(sample(*gpus), width, now, SIGNS, History(), most)
        assert max(width_of(row) for row in drawn) <= width
        assert len(drawn) <= most or not most


@pytest.mark.parametrize("width", WIDTHS)
def test_height_and_places_follow_from_no_figure(width: int) -> None:
    low = sample(
        GpuSample("GPU-a", 0, "RTX", 0, 96 * GIB, 0.0, 3, 9, 600),
        memory=MemorySample(377 * GIB, 377 * GIB, 207 * GIB, 0, 0.0, 0.0, 0.0, 0.0),
    )
    high = sample(
        GpuSample("GPU-a", 0, "RTX", 96 * GIB, 96 * GIB, 1.0, 100, 600, 600),
        memory=MemorySample(377 * GIB, 0, 207 * GIB, 207 * GIB, 1e9, 9.9e8, 100.0, 100.0),
    )
    few, many = rows(low, width), rows(high, width)
    assert len(few) == len(many)
    for word in ("SWAP", "PSI", "DISK", "out"):
        assert [line.find(word) for line in few] == [line.find(word) for line in many]


def test_marks_are_legible_without_colour() -> None:
    (row,) = gpu_rows(GpuReport(0.0, (SMALL,)), 80, 0, SIGNS, History())
    assert "91 C!!" in plain(row)
    assert tones(row, "91 C") == {"bad"}
    (row,) = gpu_rows(GpuReport(0.0, (PRO,)), 80, 0, SIGNS, History())
    assert "GiB! " in plain(row)
    assert tones(row, "91.2") == {"warn"}
    calm = GpuSample("u", 0, "n", GIB, 96 * GIB, 0.1, 40, 30, 600)
    (row,) = gpu_rows(GpuReport(0.0, (calm,)), 80, 0, SIGNS, History())
    assert "!" not in plain(row)


UNKNOWN = [
    GONE,
    GpuSample("u", 0, "B200", GIB, 96 * GIB, None, 40, 100, 600, MIG),
    GpuSample("u", 0, "GB10", None, None, 0.5, 40, 10, None, UNIFIED),
    GpuSample("u", 0, "X", 1, 2 * GIB, None, None, 10),
    GpuSample("u", 0, "X", 1, 2 * GIB, 0.5, 40, None, 600),
    GpuSample("u", 0, "X"),
]


def test_age_of_each_half() -> None:
    assert [age_words(0.0, now) for now in (3.0, 12.2, 600.0)] == ["", "stale 12 s", "stale 10 min"]
    old_gpu = Sample(20.0, MEMORY, DISKS, GpuReport(8.0, (PRO,)))
    gpu, *host = rows(old_gpu, 80, 20.0)
    assert gpu.endswith(" stale 12 s")
    assert "stale" not in "".join(host)
    old = rows(sample(PRO), 80, 20.0)
    assert [line.endswith("stale 20 s") for line in old] == [True, True, False]
    (row,) = gpu_rows(GpuReport(0.0, (SMALL,)), 80, 20.0, SIGNS, History())
    assert tones(row, "91 C") == {"dim"}


FULL = Sample(
    0.0, MEMORY, (*DISKS, DiskSample("/srv/models/hub", 4000 * GIB, 100 * GIB)),
    GpuReport(0.0, (PRO, SMALL)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (1023 * 1024, "1.0 MiB"),
     (int(9.4 * GIB), "9.4 GiB"), (812 * GIB, "812 GiB"), (5000 * 1024**4, "5000 TiB")],
)  # fmt: skip
def test_amounts_are_short(count: int, text: str) -> None:
    assert amount(count) == text
    assert len(amount(count)) <= 8


def test_pairs_of_one_total_are_equally_wide() -> None:
    for total in (GIB // 2, 8 * GIB, 96 * GIB, 377 * GIB, 2000 * GIB):
        assert len({len(pair(int(total * part), total)) for part in (0, 0.001, 0.09, 0.5, 1)}) == 1


def test_names_are_cut_at_words() -> None:
    assert short_name(PRO.name, 13) == "RTX PRO 6000 "
    assert short_name(SMALL.name, 8) == "RTX 5090"
    assert short_name("Superlongname9000", 8) == "Superlo~"


def test_cells_of_wide_characters() -> None:
    assert (cells("日本"), cells("é"), cells("█")) == (4, 1, 1)
    assert fitted("日本語", 4) == "日~ "
    assert fitted("abc", 0) == ""


# -- word for word: `make golden` writes it anew --------------------------------------------------


def test_cards(snapshot: SnapshotAssertion) -> None:
    seen = {}
    for width in (40, 60, 80, 119, 120, 200):
        seen[width] = [*cards(width, PRO, SMALL), *cards(width, WIDE), *cards(width, PRO, now=20)]
        seen[width] += [line for gpu in UNKNOWN for line in cards(width, gpu)]
    reports = (None, GpuReport(0.0, (), "no NVIDIA driver"), GpuReport(0.0))
    seen[0] = [plain(gpu_rows(report, 80, 0.0, SIGNS, History())[0]) for report in reports]
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
    found = [read_disk(path) for path in (str(tmp_path / "gone"), "/proc", "a\0b")]
    watch.start()
    for seconds in (2, 10):
        clock.time += seconds
        found.append(watch.latest())
    release.set()
    watch.join(60)
    assert watch.latest() == DiskSample("/mnt/nas", 10, 5)
    assert {(disk.total, disk.free) for disk in found} == {(None, None)}
    assert [disk.why for disk in found] == snapshot


def test_what_a_reader_cannot_tell(snapshot: SnapshotAssertion) -> None:
    said = []
    for argv in (("sleep", "600"), ("/nowhere/python",), ("sh", "-c", "exit 7")):
        clock = FakeClock()
        begun = clock.monotonic()
        watch = GpuWatch(0.05, clock, argv)
        watch.start()
        if hangs := argv[0] == "sleep":
            assert watch.latest() is None
            clock.time += 12
        report = until(lambda watch=watch: watch.latest(), f"what is said of {argv}")
        said.append(re.sub(r"\d+ times", "… times", report.trouble))
        watch.close()
        if hangs:
            assert report.at == begun
        else:
            assert clock.slept[:3] == [1.0, 2.0, 4.0][: len(clock.slept)]
            assert max(clock.slept) <= 30.0
    assert said == snapshot


# -- thresholds, and what a level means ------------------------------------------------------------

OK, WARN, CRITICAL, NOT_KNOWN = Level.OK, Level.WARN, Level.CRITICAL, Level.UNKNOWN


FIGURES: dict[str, tuple[float, float, float]] = {
    "vram": (0.899, 0.90, 0.97), "ram": (0.10, 0.099, 0.049), "swap": (0.49, 0.50, 0.90),
    "swap_in": (100 * MIB, 101 * MIB, 401 * MIB), "pressure": (10, 10.1, 40.1),
    "temperature": (82.9, 83, 90), "disk": (0.10, 0.099, 0.029),
}  # fmt: skip
"""What is fine, what worries and what is bad."""


def test_every_threshold() -> None:
    for gauge, limits in LIMITS.items():
        found = [limits.level(one) for one in (*FIGURES[gauge], None)]
        assert found == [OK, WARN, CRITICAL, NOT_KNOWN], gauge


def test_of_samples() -> None:
    gpu = GpuSample("u", 0, "n", used_bytes=98, total_bytes=100, temperature_c=84)
    assert gpu_levels(gpu) == {"vram": CRITICAL, "temperature": WARN}
    assert set(gpu_levels(GpuSample("u", 0, "n")).values()) == {NOT_KNOWN}
    memory = MemorySample(100, 4, 0, 0, pressure_some=11.0)
    assert memory_levels(memory) == {
        "ram": CRITICAL, "swap": NOT_KNOWN, "swap_in": NOT_KNOWN, "pressure": WARN,
    }  # fmt: skip
    assert disk_level(DiskSample("/", 100, 9)) is WARN
    assert disk_level(DiskSample("/", None, None, "gone")) is NOT_KNOWN
