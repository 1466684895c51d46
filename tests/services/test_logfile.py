"""A process's log is cut back to its newest half, with the writer none the wiser."""

from __future__ import annotations

import os
from pathlib import Path

from console.common.logs.tail import keep_end, read_last


def test_a_log_above_the_cap_keeps_its_end_and_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(writer, b"".join(b"line %06d\n" % n for n in range(1000)))
        assert not keep_end(path, 12_000)
        os.write(writer, b"".join(b"line %06d\n" % n for n in range(1000, 2000)))
        assert keep_end(path, 12_000)
        os.write(writer, b"after\n")
    finally:
        os.close(writer)
    lines = read_last(path, 10_000)
    assert lines[0].startswith("--- ")
    assert lines[-2:] == ["line 001999", "after"]
    assert lines[1:-1] == [f"line {n:06d}" for n in range(2000 - len(lines[1:-1]), 2000)]
    assert path.stat().st_size < 12_000


def test_a_missing_log_is_no_trouble(tmp_path: Path) -> None:
    assert not keep_end(tmp_path / "none.log", 10)
