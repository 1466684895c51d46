"""The newest proof that a baseline serves: when, how fast, and whether that was too slow.

Each baseline has one small file, written by whoever got a completion: a run before it starts, a
rollback at its end, a person who asks. Errors with the file are ignored: without a proof, an
interrupted run's outage is counted until a rollback ends it.

This module also keeps the measured restore times, which a plan shows before a step that takes the
baseline down.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from console.common import paths
from console.common.files import write_atomically
from console.host import process
from console.host.ports import listener
from console.recovery.rollback import live
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runtime import proxy as relay

SIZE_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Served:
    """One answered completion; `at` is in Unix seconds, `tok_s` is None where no rate is known."""

    at: float
    tok_s: float | None = None
    degraded: bool = False


def proof_file(site: str, url: str) -> Path:
    """Where the newest proof of the baseline at this address is kept.

    The address is part of it: two sites may have the same name and different baselines.
    """
    return paths.state_dir() / "proof" / f"{paths.file_name(site)}@{quote(url, safe='')}.json"


def instead_of_baseline(plan: SealedPlan) -> str:
    """The service that answers in the baseline's place, at its address; "" if none is known.

    A completion of that service proves nothing about the baseline.
    """
    switched = relay.at(plan.baseline.url)
    if switched is not None:
        return f"{switched.service}, by a cutover,"
    who = listener(plan.baseline.url) if plan.run_dir else None
    if who is None:
        return ""
    for entry in live.read(plan.rollback_dir / live.LIVE):
        if entry.kind != "process" or entry.name == plan.baseline.name:
            continue
        group = process.members(entry.pid, entry.start, cookie=plan.run_id)
        if who.pid in {one.pid for one in group}:
            return entry.name
    return ""


def remember(file: Path, at: float, tok_s: float | None, degraded: bool) -> None:
    """Store a proof from the Unix time `at`, unless the file has a newer one. Never raises.

    A proof with a time in the future does not count as newer: the clock has been set back since.
    """
    before = last(file)
    if before is not None and at < before.at <= time.time():
        return
    rate = None if tok_s is None else round(tok_s, 3)
    with contextlib.suppress(OSError, ValueError):
        paths.make(file.parent)
        # A slow disk must delay nobody, and after a crash an older proof is good enough.
        text = json.dumps(asdict(Served(at, rate, degraded))) + "\n"
        write_atomically(file, text, durable=False)


def last(file: Path) -> Served | None:
    """The newest proof; None if there is none or the file is invalid. Never raises."""
    try:
        with open(file, "rb") as stream:
            value: Any = json.loads(stream.read(SIZE_LIMIT))
        at, rate = _number(value["at"]), value.get("tok_s")
        return Served(at, None if rate is None else _number(rate), value.get("degraded") is True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def still_degraded(
    file: Path, tok_s: float | None, reference: float | None, tolerance: float
) -> bool:
    """Whether the finding "degraded" still holds after a short completion.

    A few tokens do not show that a baseline is slow, but at reference speed they clear the finding.
    """
    before = last(file)
    if before is None or not before.degraded or reference is None:
        return False
    return tok_s is None or tok_s < reference * (1 - tolerance)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a number")
    return float(value)


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
