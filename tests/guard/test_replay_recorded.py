"""Recordings of real loads: none of them is killed, and nothing is killed in an hour of idle."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.guard import replay_record
from tests.guard.replay import replay_memories
from tests.guard.replay_idle import HOUR_S, idle_hour
from tests.guard.replay_record import CURVES, all_curves, read

NAMES = sorted(path.name for path in CURVES.glob("*.csv.gz"))
GIB = 1 << 30


def test_there_are_recordings() -> None:
    curves = all_curves()
    assert len(curves) >= 12
    assert sum(path.stat().st_size for path in CURVES.iterdir()) < 400 << 10
    # they are real loads, not straight lines: half of them took at least a gibibyte
    took = [max(row[1] for row in one.rows) * 1024 - one.lowest() for one in curves]
    assert sum(size > GIB for size in took) >= len(curves) / 2


@pytest.mark.parametrize("name", NAMES)
def test_a_real_load_is_let_alone(name: str) -> None:
    curve = read(CURVES / name)
    found = replay_memories(curve.memories(), curve.total, curve.swap_total)
    assert found.snapshots == len(curve.rows)
    assert found.acted_at is None, found


@pytest.mark.parametrize("name", NAMES)
def test_on_a_smaller_machine_the_same_load_is_stopped(name: str) -> None:
    """The recordings can lead to a kill: they do once the RAM that they used is taken away."""
    curve = read(CURVES / name)
    less = (curve.lowest() - GIB) // 1024
    rows = [(row[0], row[1] - less, row[2], row[3], row[4]) for row in curve.rows]
    lowered = replace(curve, rows=tuple(rows))
    found = replay_memories(lowered.memories(), curve.total, curve.swap_total)
    assert found.acted_at is not None


def test_an_hour_of_idle() -> None:
    memories, total, swap_total = idle_hour()
    found = replay_memories(memories, total, swap_total)
    assert found.snapshots > HOUR_S * 15
    assert found.acted_at is None


def test_a_recording_is_what_was_recorded(tmp_path: Path) -> None:
    out = tmp_path / "x.csv.gz"
    assert replay_record.main([str(out), "--seconds", "0.2"]) == 0
    curve = read(out)
    meminfo, _, full = replay_record.sample()
    assert curve.total == meminfo["MemTotal"] * 1024
    assert len(curve.rows) >= 2
    assert curve.rows[-1][4] <= full
    assert gzip.decompress(out.read_bytes()).count(b"\n") == len(curve.rows) + 1
