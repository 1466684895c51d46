"""The reading of memory at each tick, on made-up trees and on this machine."""

import contextlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from console.host.memory import MemoryReader
from console.recovery.guard.observe.memory import MemoryCollector
from console.recovery.guard.observe.snapshot import Memory
from tests.guard.conftest import put
from tests.waiting import some

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


class Tree:
    """Made-up files of the kernel, and what reads them, as with something of the run beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def reader(self) -> MemoryCollector:
        made = MemoryCollector(self.root)
        made.bound.inside = True
        return made

    def put(self, path: str, text: str) -> None:
        put(self.root, f"proc/{path}", text)

    def see(self, at: float = 3.5) -> Memory:
        return some(self.reader.read(at))


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Tree]:
    made = Tree(tmp_path)
    yield made
    made.reader.close()


@pytest.fixture
def tree(bare: Tree) -> Tree:
    bare.put("meminfo", MEMINFO)
    bare.put("pressure/memory", PRESSURE)
    return bare


MACHINE = Memory(
    3.5, 377_000_000 * 1024, 354_000_000 * 1024, 207_000_000 * 1024, 1_000_000 * 1024, 2_200_193,
    46_464,
)  # fmt: skip


def test_the_kernels_figures(tree: Tree) -> None:
    assert tree.see() == MACHINE


@pytest.mark.parametrize(
    ("old", "new", "field_", "value"),
    [
        ("MemAvailable:   354000000", "MemAvailable:   100000000", "available", 100_000_000 * 1024),
        ("MemTotal:       377000000", "MemTotal:      1377000000", "total", 1_377_000_000 * 1024),
        ("SwapTotal:      207000000", "SwapTotal:     1207000000", "swap_total",
         1_207_000_000 * 1024),
        ("SwapFree:       206000000", "SwapFree:       205000000", "swap_used", 2_000_000 * 1024),
        ("SwapFree:       206000000", "SwapFree:       9", "swap_used", (207_000_000 - 9) * 1024),
        ("total=2200193", "total=2200194", "some_us", 2_200_194),
        ("total=46464", "total=46465", "full_us", 46_465),
    ],
)  # fmt: skip
def test_what_changes_is_seen_when_it_does(
    tree: Tree, old: str, new: str, field_: str, value: int
) -> None:
    before = tree.see()._replace(at=4)
    tree.put("meminfo", MEMINFO.replace(old, new))
    tree.put("pressure/memory", PRESSURE.replace(old, new))
    changed = {field_: value}
    if field_ == "swap_total":
        changed["swap_used"] = value - 206_000_000 * 1024
    assert tree.see(4) == before._replace(**changed) != before


@pytest.mark.parametrize(
    ("text", "some"), [("some avg10=0.00 total=5\n", 5), ("", None), ("garbage total=\n", None)]
)
def test_pressure_that_is_not_whole_is_not_known(tree: Tree, text: str, some: int | None) -> None:
    tree.put("pressure/memory", text)
    assert tree.see() == MACHINE._replace(some_us=some, full_us=None)


@pytest.mark.parametrize("text", ["", "MemTotal: 5 kB\n", "MemTotal: x kB\nMemAvailable: y kB\n"])
def test_memory_that_is_not_known_is_no_zero(bare: Tree, text: str) -> None:
    bare.put("meminfo", text)
    assert bare.reader.read(3.5) is None
    assert "meminfo" in bare.reader.why


def test_a_meminfo_that_comes_later_and_no_pressure_at_all(bare: Tree) -> None:
    assert bare.reader.read(3.5) is None
    bare.put("meminfo", MEMINFO)
    assert bare.reader.read(1) is None  # this call only opened the file
    assert bare.see() == MACHINE._replace(some_us=None, full_us=None)
    assert bare.reader.why == ""


def bounded(tree: Tree, version: int, inside: str = "/user.slice/runs") -> Path:
    """A cgroup with a limit of 64 GiB, 60 of them used, 10 of those page cache."""
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    tree.put("self/mountinfo", f"29 1 0:26 / /sys/fs/cgroup rw - {kind}\n")
    line = f"0::{inside}\n" if version == 2 else f"4:memory:{inside}\n1:cpu:/\n"
    tree.put("self/cgroup", line)
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }[version]
    place = f"sys/fs/cgroup{inside}/"
    put(tree.root, place + names[0], f"{64 * GIB}\n")
    put(tree.root, place + names[1], f"{60 * GIB}\n")
    put(tree.root, place + "memory.stat", f"anon 1\n{names[2]} {10 * GIB}\nother 3\n")
    return tree.root / place


@pytest.mark.parametrize("version", [1, 2])
def test_the_cgroup_around_this_process_bounds_it(tree: Tree, version: int) -> None:
    bounded(tree, version)
    assert tree.see() == MACHINE._replace(bound=14 * GIB)
    assert tree.reader.bound.least == 64 * GIB


def test_a_bound_that_nothing_of_the_run_is_in_is_not_read(tree: Tree) -> None:
    bounded(tree, 2)
    with contextlib.closing(MemoryCollector(tree.root)) as reader:
        assert reader.read(3.5) == MACHINE


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "\n", f"{400 * GIB}\n"])
def test_a_limit_above_the_machine_is_none(tree: Tree, limit: str) -> None:
    (bounded(tree, 2) / "memory.max").write_text(limit)
    assert (tree.see().bound, tree.reader.bound.least) == (None, 0)


def test_a_level_above_may_be_nearer_its_end(tree: Tree) -> None:
    above = bounded(tree, 2).parent
    for name, text in (("memory.max", 32 * GIB), ("memory.current", 31 * GIB)):
        (above / name).write_text(f"{text}\n")
    (above / "memory.stat").write_text("anon 1\ninactive_file 0\n")
    assert (tree.see().bound, tree.reader.bound.least) == (GIB, 32 * GIB)


def test_a_mount_that_shows_only_a_part(tree: Tree) -> None:
    bounded(tree, 2, "/box")
    tree.put("self/mountinfo", "29 1 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 c rw\n")
    tree.put("self/cgroup", "0::/docker/abc/box\n")
    assert tree.see().bound == 14 * GIB


def test_a_cgroup_that_went_away_bounds_nothing(tree: Tree) -> None:
    place = bounded(tree, 2)
    assert tree.see().bound == 14 * GIB
    (place / "memory.current").write_text("")
    assert tree.see().bound is None


def test_this_machine_as_the_gauges_see_it() -> None:
    own, other = MemoryCollector(), MemoryReader()
    mine, theirs = own.read(1), other.read(1)
    own.close()
    other.close()
    assert mine is not None
    assert mine.swap_total == theirs.swap_total
    assert 0 < mine.available <= mine.total <= theirs.total


def test_descriptors_stay_as_they_are(tree: Tree) -> None:
    bounded(tree, 2)
    tree.see()
    before = os.listdir("/proc/self/fd")
    for at in range(1000):
        tree.see(at / 200)
    assert os.listdir("/proc/self/fd") == before


def test_figures_that_stand_still_are_none(tree: Tree) -> None:
    tree.see(1000.0)
    tree.see(1009.9)
    assert tree.reader.read(1012.0) is None
    assert "12 s" in tree.reader.why
    tree.put("pressure/memory", PRESSURE.replace("46464", "46465"))
    tree.see(1012.1)
    assert tree.reader.why == ""


def test_an_idle_machine_is_not_taken_for_one_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, read_ = MemoryCollector(), os.pread
    assert reader.read(0.0) is not None
    kept = {reader._meminfo: reader._text, reader._pressure: reader._psi or b""}
    moves = reader._meminfo_changes

    def probes() -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", read_)
            return moves()

    monkeypatch.setattr(os, "pread", lambda fd, size, at: kept.get(fd) or read_(fd, size, at))
    monkeypatch.setattr(reader, "_meminfo_changes", probes)
    assert all(reader.read(float(at)) is not None for at in range(1, 40))
    reader.close()
