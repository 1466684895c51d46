"""Measured restore times: what the plan shows before a step that takes the baseline down."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from console.common import paths

KEPT = 20
RECENT = 5


def expected(memory_file: Path, baseline: str) -> float | None:
    """Seconds a restore of this baseline took lately: median of the last five, None if none."""
    every = [float(m["seconds"]) for m in _read(memory_file) if m["baseline"] == baseline]
    # By hand: the statistics module costs the emergency side 10 ms of imports.
    last = sorted(every[-RECENT:])
    return (last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2 if last else None


def remember(memory_file: Path, baseline: str, seconds: float, at: float) -> None:
    """Add one measurement (`at` in Unix seconds), keeping the last twenty. Raises OSError."""
    kept = [*_read(memory_file), {"baseline": baseline, "seconds": round(seconds, 3), "at": at}]
    paths.make(memory_file.parent)
    beside = memory_file.with_name(f".{memory_file.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(kept[-KEPT:]) + "\n")
        os.replace(beside, memory_file)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


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
