"""How long restores of a baseline took; a plan shows it before a step that takes it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.files import write_atomically

KEPT = 20
RECENT = 5


def expected_restore(memory_file: Path, baseline: str) -> float | None:
    """Seconds that a restore of this baseline takes: the median of the last five; None if none."""
    every = [float(m["seconds"]) for m in _read(memory_file) if m["baseline"] == baseline]
    # Computed by hand: importing `statistics` would cost the emergency side 10 ms.
    last = sorted(every[-RECENT:])
    return (last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2 if last else None


def remember_restore(memory_file: Path, baseline: str, seconds: float, at: float) -> None:
    """Add one measurement (`at` in Unix seconds) and keep the last twenty. Raises OSError."""
    kept = [*_read(memory_file), {"baseline": baseline, "seconds": round(seconds, 3), "at": at}]
    paths.make(memory_file.parent)
    write_atomically(memory_file, json.dumps(kept[-KEPT:]) + "\n", durable=False)


def _read(memory_file: Path) -> list[dict[str, Any]]:
    try:
        value = json.loads(memory_file.read_text())
    except (OSError, ValueError):
        return []
    return [
        m
        for m in (value if isinstance(value, list) else [])
        if isinstance(m, dict)
        and isinstance(m.get("baseline"), str)
        and isinstance(m.get("seconds"), int | float)
    ]
