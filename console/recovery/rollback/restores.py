"""How long restores of a baseline took; a plan shows it before a step that takes it down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from console.common import paths, record
from console.common.files import write_atomically
from console.common.record import RecordError

KEPT = 20
RECENT = 5


@dataclass(frozen=True, slots=True)
class Restore:
    """How long a restore took; `at` in Unix seconds."""

    baseline: str
    seconds: float
    at: float = 0.0


def expected_restore(memory_file: Path, baseline: str) -> float | None:
    """Seconds that a restore of this baseline takes: the median of the last five; None if none."""
    every = [restore.seconds for restore in _read(memory_file) if restore.baseline == baseline]
    # Computed by hand: importing `statistics` would cost the emergency side 10 ms.
    last = sorted(every[-RECENT:])
    return (last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2 if last else None


def remember_restore(memory_file: Path, baseline: str, seconds: float, at: float) -> None:
    """Add one measurement (`at` in Unix seconds) and keep the last twenty. Raises OSError."""
    kept = [*_read(memory_file), Restore(baseline, round(seconds, 3), at)]
    text = json.dumps([record.plain(restore) for restore in kept[-KEPT:]])
    paths.make(memory_file.parent)
    write_atomically(memory_file, text + "\n", durable=False)


def _read(memory_file: Path) -> list[Restore]:
    try:
        rows = record.load(memory_file)
    except (OSError, RecordError):
        return []
    return record.those(Restore, rows)
