"""The fast look, on made-up trees and on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host.memory import MemoryReader
from console.recovery.guard.observe.memory import FastReader, field
from console.recovery.guard.observe.snapshot import Memory
from tests.guard.conftest import put

GIB = 1 << 30
MEMINFO = """MemTotal:       377000000 kB
MemFree:        11111111 kB
MemAvailable:   354000000 kB
Buffers:          123456 kB
SwapCached:            7 kB
SwapTotal:      207000000 kB
SwapFree:       206000000 kB
"""
PRESSURE = (
    "some avg10=1.00 avg60=0.50 avg300=0.10 total=2200193\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=46464\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    put(tmp_path, "proc/meminfo", MEMINFO)
    put(tmp_path, "proc/pressure/memory", PRESSURE)
    return tmp_path


@pytest.fixture
def readers() -> Iterator[list[FastReader]]:
    made: list[FastReader] = []
    yield made
    for one in made:
        one.close()


def read(root: Path, readers: list[FastReader], at: float = 3.5) -> Memory | None:
    """The first look of a reader that watches something beside it."""
    readers.append(FastReader(root))
    readers[-1].bound.inside = True
    return readers[-1].read(at)


def see(root: Path, readers: list[FastReader]) -> Memory:
    """As `read`, of what is known; a second time another look of the same reader."""
    found = readers[0].read(4) if readers else read(root, readers)
    assert found is not None
    return found


def test_the_kernels_figures(tree: Path, readers: list[FastReader]) -> None:
    assert read(tree, readers) == Memory(
        3.5, 377_000_000 * 1024, 354_000_000 * 1024, 207_000_000 * 1024, 1_000_000 * 1024,
        2_200_193, 46_464,
    )  # fmt: skip


def test_each_look_is_a_new_one(tree: Path, readers: list[FastReader]) -> None:
    before = see(tree, readers)
    with open(tree / "proc/meminfo", "r+") as file:
        file.write(MEMINFO.replace("354000000", "100000000"))
    after = see(tree, readers)
    assert (before.available, after.available) == (354_000_000 * 1024, 100_000_000 * 1024)


@pytest.mark.parametrize(
    ("old", "new", "field_", "value"),
    [
        ("MemTotal:       377000000", "MemTotal:      1377000000", "total", 1_377_000_000 * 1024),
        ("SwapTotal:      207000000", "SwapTotal:     1207000000", "swap_total",
         1_207_000_000 * 1024),
        ("SwapFree:       206000000", "SwapFree:       205000000", "swap_used", 2_000_000 * 1024),
        ("SwapFree:       206000000", "SwapFree:       9", "swap_used", (207_000_000 - 9) * 1024),
        ("total=2200193", "total=2200194", "some_us", 2_200_194),
        ("total=46464", "total=46465", "full_us", 46_465),
    ],
)  # fmt: skip
def test_what_seldom_changes_is_seen_when_it_does(
    tree: Path, readers: list[FastReader], old: str, new: str, field_: str, value: int
) -> None:
    before = see(tree, readers)._replace(at=4)
    for name, text in (("meminfo", MEMINFO), ("pressure/memory", PRESSURE)):
        (tree / "proc" / name).write_text(text.replace(old, new))
    after = see(tree, readers)
    assert getattr(before, field_) != value
    changed = {field_: value}
    if field_ == "swap_total":
        changed["swap_used"] = value - 206_000_000 * 1024
    assert after == before._replace(**changed)


@pytest.mark.parametrize(
    ("text", "some", "full"),
    [("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", 5, None), ("", None, None),
     ("garbage total=\n", None, None), (None, None, None)],
)  # fmt: skip
def test_pressure_that_is_not_whole_is_not_known(
    tree: Path, readers: list[FastReader], text: str | None, some: int | None, full: int | None
) -> None:
    (tree / "proc/pressure/memory").unlink()
    if text is not None:
        put(tree, "proc/pressure/memory", text)
    found = see(tree, readers)
    assert (found.some_us, found.full_us) == (some, full)


@pytest.mark.parametrize("text", ["", "MemTotal: 5 kB\n", "MemTotal: x kB\nMemAvailable: y kB\n"])
def test_memory_that_is_not_known_is_no_zero(
    tree: Path, readers: list[FastReader], text: str
) -> None:
    put(tree, "proc/meminfo", text)
    assert read(tree, readers) is None
    assert "meminfo" in readers[0].why


def test_a_meminfo_that_comes_later(tmp_path: Path, readers: list[FastReader]) -> None:
    assert read(tmp_path, readers) is None
    put(tmp_path, "proc/meminfo", MEMINFO)
    assert readers[0].read(1) is None  # that look opened it
    assert readers[0].read(2) is not None
    assert readers[0].why == ""


def bounded(tree: Path, version: int, inside: str = "/user.slice/runs") -> Path:
    """A cgroup with a limit of 64 GiB, 60 of them used, 10 of those page cache."""
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    put(tree, "proc/self/mountinfo", f"29 1 0:26 / /sys/fs/cgroup rw - {kind}\n")
    line = f"0::{inside}\n" if version == 2 else f"4:memory:{inside}\n1:cpu:/\n"
    put(tree, "proc/self/cgroup", line)
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }[version]
    place = f"sys/fs/cgroup{inside}/"
    put(tree, place + names[0], f"{64 * GIB}\n")
    put(tree, place + names[1], f"{60 * GIB}\n")
    put(tree, place + "memory.stat", f"anon 1\n{names[2]} {10 * GIB}\nother 3\n")
    return tree / place


@pytest.mark.parametrize("version", [1, 2])
def test_the_cgroup_around_this_process_bounds_it(
    tree: Path, readers: list[FastReader], version: int
) -> None:
    bounded(tree, version)
    found = see(tree, readers)
    assert (found.bound, readers[0].bound.least) == (14 * GIB, 64 * GIB)
    machine = (found.total, found.available, found.swap_total)
    assert machine == tuple(kib * 1024 for kib in (377_000_000, 354_000_000, 207_000_000))


def test_a_bound_that_nothing_of_the_run_is_in_is_not_read(
    tree: Path, readers: list[FastReader]
) -> None:
    bounded(tree, 2)
    readers.append(FastReader(tree))
    found = readers[0].read(1)
    assert found is not None
    assert found.bound is None


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "\n", f"{400 * GIB}\n"])
def test_a_limit_above_the_machine_is_none(
    tree: Path, readers: list[FastReader], limit: str
) -> None:
    (bounded(tree, 2) / "memory.max").write_text(limit)
    found = see(tree, readers)
    assert (found.bound, readers[0].bound.least) == (None, 0)


def test_a_level_above_may_be_nearer_its_end(tree: Path, readers: list[FastReader]) -> None:
    above = bounded(tree, 2).parent
    for name, text in (("memory.max", 32 * GIB), ("memory.current", 31 * GIB)):
        (above / name).write_text(f"{text}\n")
    (above / "memory.stat").write_text("anon 1\ninactive_file 0\n")
    found = see(tree, readers)
    assert (found.bound, readers[0].bound.least) == (GIB, 32 * GIB)


def test_a_mount_that_shows_only_a_part(tree: Path, readers: list[FastReader]) -> None:
    bounded(tree, 2, "/box")
    put(tree, "proc/self/mountinfo", "29 1 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 c rw\n")
    put(tree, "proc/self/cgroup", "0::/docker/abc/box\n")
    assert see(tree, readers).bound == 14 * GIB


def test_more_left_in_the_cgroup_than_in_the_machine(tree: Path, readers: list[FastReader]) -> None:
    bounded(tree, 2)
    put(tree, "proc/meminfo", MEMINFO.replace("354000000", "1000000"))
    found = see(tree, readers)
    assert (found.available, found.bound) == (1_000_000 * 1024, 14 * GIB)


def test_a_cgroup_that_went_away_bounds_nothing(tree: Path, readers: list[FastReader]) -> None:
    place = bounded(tree, 2)
    assert read(tree, readers) is not None
    (place / "memory.current").write_text("")
    assert see(tree, readers).bound is None


def test_this_machine_as_the_gauges_see_it(readers: list[FastReader]) -> None:
    mine, other = read(Path("/"), readers), MemoryReader()
    theirs = other.read(1)
    other.close()
    assert mine is not None
    assert mine.swap_total == theirs.swap_total
    assert mine.total <= theirs.total
    assert 0 < mine.available <= mine.total


def test_descriptors_stay_as_they_are(tree: Path, readers: list[FastReader]) -> None:
    bounded(tree, 2)
    assert read(tree, readers) is not None
    before = os.listdir("/proc/self/fd")
    for at in range(1000):
        assert readers[0].read(at / 200) is not None
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"a 1\nb 22 kB\nc 3", 22), (b"", None), (b"\nb x\n", None), (b"\nb 7", 7)],
)
def test_a_field(text: bytes, value: int | None) -> None:
    assert field(text, b"\nb ") == value


def test_figures_that_stand_still_are_none(tree: Path, readers: list[FastReader]) -> None:
    readers.append(FastReader(tree))
    reader = readers[0]
    assert reader.read(1000.0) is not None
    assert reader.read(1009.9) is not None
    assert reader.read(1012.0) is None
    assert "12 s" in reader.why
    put(tree, "proc/pressure/memory", PRESSURE.replace("46464", "46465"))
    assert reader.read(1012.1) is not None
    assert reader.why == ""


def test_an_idle_machine_is_not_taken_for_one_that_stands_still(
    monkeypatch: pytest.MonkeyPatch, readers: list[FastReader]
) -> None:
    readers.append(FastReader())
    reader, read_ = readers[0], os.pread
    assert reader.read(0.0) is not None
    kept = {reader._meminfo: reader._text, reader._pressure: reader._psi or b""}
    moves = reader._moves

    def looks() -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", read_)
            return moves()

    monkeypatch.setattr(os, "pread", lambda fd, size, at: kept.get(fd) or read_(fd, size, at))
    monkeypatch.setattr(reader, "_moves", looks)
    assert all(reader.read(float(at)) is not None for at in range(1, 40))
