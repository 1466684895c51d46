"""The file of gauges: bounded, no peak lost, and no disk that can hurt the run."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal.samples import PATIENCE, GaugeFile, gauge_lines


def line(at: float, ram: int = 5, **more: Any) -> dict[str, Any]:
    return {"at": at, "step": "a", "gpu": {"G": ram * 2}, "ram": ram, "swap": 0, **more}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples" / "gauges.jsonl"


def opened() -> set[str]:
    """What this process has open."""
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    return {os.readlink(link) for link in links if link.is_symlink()}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=200), st.integers(2, 30))
def test_bounded_and_the_peak_stays(tmp_path_factory: Any, rams: list[int], most: int) -> None:
    path = tmp_path_factory.mktemp("f") / "samples" / "gauges.jsonl"
    file = GaugeFile(path, most)
    for at, ram in enumerate(rams):
        file.add(line(at, ram))
        assert path.read_bytes().count(b"\n") <= most
    found = gauge_lines(path)
    stamps = [one["at"] for one in found]
    assert stamps == sorted(set(stamps))
    written = rams[: int(stamps[-1]) + 1]  # the rest waits for the end of its stride
    assert max(one["ram"] for one in found) == max(written)
    assert max(one["gpu"]["G"] for one in found) == 2 * max(written)
    assert len(written) > len(rams) - max(1, len(rams) * 2 // most)


def test_after_thinning_a_line_stands_for_twice_as_many_looks(path: Path) -> None:
    file = GaugeFile(path, 4)
    for at in range(9):
        file.add(line(at, ram=at))
    assert [one["at"] for one in gauge_lines(path)] == [3, 6, 8]
    file.add(line(9))
    assert [one["at"] for one in gauge_lines(path)] == [3, 6, 8], "a line is four looks by now"


def test_a_second_runner_goes_on_and_a_torn_line_stays_alone(path: Path) -> None:
    first = GaugeFile(path, 10)
    first.add(line(0))
    first.close()
    with path.open("ab") as file:
        file.write(b'{"at": 1, "st')
    second = GaugeFile(path, 10)
    second.add(line(2))
    second.add(line(3))
    assert [one["at"] for one in gauge_lines(path)] == [0, 2, 3]
    for at in range(4, 20):
        second.add(line(at))
        assert path.read_bytes().count(b"\n") <= 10


def test_a_full_disk_costs_lines_and_nothing_else(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    file = GaugeFile(path)
    for at in range(5):
        file.add(line(at))
    path.unlink()
    file.add(line(5))
    assert gauge_lines(path) == [line(5)]
    file.close()
    assert {str(path), "/dev/full"} & opened() == set()


def test_a_directory_that_is_gone_or_a_file_is_no_error(tmp_path: Path) -> None:
    GaugeFile(tmp_path / "gone" / "samples" / "x").add(line(0))
    (tmp_path / "samples").write_text("a file")
    GaugeFile(tmp_path / "samples" / "x").add(line(0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["samples"]


def test_a_thinning_that_fails_is_tried_again_later_and_the_bound_holds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tries = GaugeFile(path, 4), []

    def full(path: Path, target: Path) -> None:
        tries.append(target)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        for at in range(4 + 2 * PATIENCE):
            file.add(line(at))
        assert [one["at"] for one in gauge_lines(path)] == [0, 1, 2, 3]
        assert len(tries) == 2
        assert os.listdir(path.parent) == [path.name]
    for at in range(1000, 1004):
        file.add(line(at))
    kept = [one["at"] for one in gauge_lines(path)]
    assert kept[:2] == [1, 3]
    assert 1000 <= kept[2] <= 1003


def test_a_line_is_kept_as_it_is_and_what_is_none_is_passed_over(path: Path) -> None:
    file = GaugeFile(path)
    for at in range(3):
        file.add(line(at))
    file.close()
    assert gauge_lines(path) == [line(0), line(1), line(2)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_bytes(b'[1]\n{"at": "x"}\n\xff\xfe\n\n{"at": 1}\n' + b"[" * 5000 + b"\n")
    assert gauge_lines(path) == [{"at": 1}]
