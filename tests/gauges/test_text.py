"""Samples as rows of text: what is said, how wide, and what is left out where room is short."""

from __future__ import annotations

import itertools

import pytest

from console.host.gpu.nvml import LOST, MIG, UNIFIED
from console.host.sample import DiskSample, GpuReport, GpuSample, MemorySample, Sample, Trend
from console.render.cells import ASCII, Row, age_words, amount, cells, fitted, pair, plain, width_of
from console.render.gauges import all_rows, gpu_rows, host_rows, short_name

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
    return [plain(row) for row in gpu_rows(GpuReport(0.0, gpus), width, now, SIGNS, {})]


def rows(one: Sample, width: int, now: float = 0.0, most: int = 0) -> list[str]:
    return [plain(row) for row in all_rows(one, width, now, SIGNS, {}, most)]


def tones(row: Row, word: str) -> set[str]:
    return {tone for text, tone in row if word in text}


def test_room_that_shrinks_takes_name_then_trend_then_watts() -> None:
    trend = Trend()
    for _ in range(60):
        trend.add(1.0)

    def has(width: int) -> tuple[bool, bool, bool]:
        report = GpuReport(0.0, (PRO,))
        line = plain(gpu_rows(report, width, 0, SIGNS, {"GPU-a": trend})[0])
        return "RTX" in line, line.endswith(SIGNS.levels[-1] * 5), "412/600 W" in line

    seen = [has(width) for width in range(100, 36, -1)]
    assert list(dict.fromkeys(seen)) == [
        (True, True, True), (False, True, True), (False, False, True), (False, False, False),
    ]  # fmt: skip
    assert has(80) == (True, True, True)
    assert has(60) == (False, False, True)


def test_two_cards_share_a_row_from_120_columns_on() -> None:
    assert [len(cards(width, PRO, SMALL)) for width in (119, 120)] == [2, 1]
    assert [len(cards(120, *[PRO] * n)) for n in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert cards(120, PRO, SMALL)[0].index("GPU1") == 61


@pytest.mark.parametrize("width", WIDTHS)
def test_no_row_is_wider_than_its_room(width: int) -> None:
    machines = ((PRO,), (PRO, SMALL), (PRO, GONE, SMALL), (WIDE,), ())
    for gpus, now, most in itertools.product(machines, (0.0, 90.0, 1e6), (0, 1, 2, 3)):
        drawn = all_rows(sample(*gpus), width, now, SIGNS, {}, most)
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
    (row,) = gpu_rows(GpuReport(0.0, (SMALL,)), 80, 0, SIGNS, {})
    assert "91 C!!" in plain(row)
    assert tones(row, "91 C") == {"bad"}
    (row,) = gpu_rows(GpuReport(0.0, (PRO,)), 80, 0, SIGNS, {})
    assert "GiB! " in plain(row)
    assert tones(row, "91.2") == {"warn"}
    calm = GpuSample("u", 0, "n", GIB, 96 * GIB, 0.1, 40, 30, 600)
    (row,) = gpu_rows(GpuReport(0.0, (calm,)), 80, 0, SIGNS, {})
    assert "!" not in plain(row)


UNKNOWN = [
    GONE,
    GpuSample("u", 0, "B200", GIB, 96 * GIB, None, 40, 100, 600, MIG),
    GpuSample("u", 0, "GB10", None, None, 0.5, 40, 10, None, UNIFIED),
    GpuSample("u", 0, "X", 1, 2 * GIB, None, None, 10),
    GpuSample("u", 0, "X", 1, 2 * GIB, 0.5, 40, None, 600),
    GpuSample("u", 0, "X"),
]


def test_unknown_is_words_and_never_zero() -> None:
    """Which words is held by the test of words."""
    for gpu, width in itertools.product(UNKNOWN, (60, 80, 200)):
        (line,) = cards(width, gpu)
        assert " 0 %" not in line
        assert " 0 W" not in line


def test_a_lost_card_leaves_the_row_of_the_other() -> None:
    first, second = cards(80, PRO, GONE)
    assert first == cards(80, PRO)[0]
    assert second.startswith("GPU1 RTX 5090")


def test_age_of_each_half() -> None:
    assert [age_words(0.0, now) for now in (3.0, 12.2, 600.0)] == ["", "stale 12 s", "stale 10 min"]
    old_gpu = Sample(20.0, MEMORY, DISKS, GpuReport(8.0, (PRO,)))
    gpu, *host = rows(old_gpu, 80, 20.0)
    assert gpu.endswith(" stale 12 s")
    assert "stale" not in "".join(host)
    old = rows(sample(PRO), 80, 20.0)
    assert [line.endswith("stale 20 s") for line in old] == [True, True, False]
    (row,) = gpu_rows(GpuReport(0.0, (SMALL,)), 80, 20.0, SIGNS, {})
    assert tones(row, "91 C") == {"dim"}


def test_the_host_at_each_width() -> None:
    assert [len(host_rows(sample(), width, 0, SIGNS)) for width in (60, 80, 120)] == [2, 2, 1]
    narrow = [plain(row) for row in host_rows(sample(), 60, 0, SIGNS)]
    assert narrow[1].split()[:3] == ["SWAP", "in", "0"]


FULL = Sample(
    0.0, MEMORY, (*DISKS, DiskSample("/srv/models/hub", 4000 * GIB, 100 * GIB)),
    GpuReport(0.0, (PRO, SMALL)),
)  # fmt: skip


def test_fewer_rows_say_less_and_keep_what_is_worst() -> None:
    assert [len(rows(FULL, 80, 0.0, most)) for most in (0, 5, 4, 3, 2, 1)] == [5, 5, 3, 3, 2, 1]
    assert rows(FULL, 80, 0.0, 3)[2].startswith("DISK ~/models/hub 100 GiB")


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
