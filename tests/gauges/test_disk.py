"""Free space, and a file system that never answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from console.host.machine import DiskWatch, read_disk
from console.host.sample import DiskSample
from tests.clock import FakeClock


def test_a_real_file_system(tmp_path: Path) -> None:
    found = read_disk(str(tmp_path))
    whole = os.statvfs(tmp_path)
    assert found.total == whole.f_blocks * whole.f_frsize
    assert found.free is not None
    assert 0 < found.free <= found.total
    assert found.why == ""


def test_words_where_there_is_none(tmp_path: Path) -> None:
    for path in (str(tmp_path / "gone"), "/proc", "a\0b"):
        found = read_disk(path)
        assert (found.total, found.free, found.why != "") == (None, None, True)


def test_hostile_path_is_cleaned() -> None:
    assert "\x1b" not in read_disk("/x\x1b]52;c;eA==\x07/\x1b[2J").path


def test_a_mount_that_hangs_says_for_how_long() -> None:
    clock, asked, answer = FakeClock(), threading.Event(), threading.Event()

    def hang(path: str) -> DiskSample:
        asked.set()
        answer.wait(60)
        watch.close()
        return DiskSample(path, 10, 5)

    watch = DiskWatch("/mnt/nas", clock, hang)
    assert watch.latest().why == "asking"
    watch.start()
    assert asked.wait(60)
    clock.time += 2
    assert watch.latest().why == "asking"
    clock.time += 10
    silent = watch.latest()
    assert (silent.total, silent.free, "12 s" in silent.why) == (None, None, True)
    answer.set()
    watch.join(60)
    assert watch.latest() == DiskSample("/mnt/nas", 10, 5)
