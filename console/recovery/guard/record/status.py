"""What viewers see of a sentinel: status page, record of a second, own resource use."""

from __future__ import annotations

import math
import os
import time
from dataclasses import fields
from typing import Any

from console.common.files import read_bytes
from console.recovery.guard.decide.forecast import Countdown
from console.recovery.guard.decide.policy import Decision
from console.recovery.guard.observe.snapshot import Disk, GpuReading, Load, Snapshot

FILLING = "RAM"
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Upkeep:
    """What the sentinel uses: per cent of a core since the last reading, and bytes of memory."""

    def __init__(self) -> None:
        self._before = (time.monotonic(), time.process_time())

    def read(self) -> dict[str, Any]:
        before, self._before = self._before, (time.monotonic(), time.process_time())
        passed = self._before[0] - before[0]
        share = (self._before[1] - before[1]) / passed * 100 if passed > 0 else None
        words = read_bytes("/proc/self/statm").split()
        rss = int(words[1]) * _PAGE_SIZE if len(words) > 1 else None
        return {"cpu": None if share is None else round(share, 3), "rss": rss}


def status(
    snapshot: Snapshot,
    decision: Decision,
    *,
    countdown: Countdown,
    lease: tuple[float | None, bool],
    more: dict[str, Any],
) -> dict[str, Any]:
    """Return the status page, in bytes, seconds, and bytes a second; None is "not known". `tte_s`
    and `rate` are the steady values, and `tte_now_s` is what decisions use. `lease` has the seconds
    left and whether somebody is attached. `more` has keys that are shown unchanged."""
    left, attended = lease
    memory = snapshot.memory
    return {
        "level": decision.level,
        "reasons": list(decision.reasons),
        "unknown": list(decision.unknown),
        "tte_s": finite(countdown.tte_s),
        "tte_now_s": finite(decision.tte_s),
        "filling": FILLING,
        "rate": finite(countdown.rate),
        "on_course": decision.on_course,
        "lease_s": left,
        "lease": {"left_s": left, "attended": attended} if left is not None or attended else None,
        "memory": memory and {
            "total": memory.total, "available": memory.available,
            "swap_total": memory.swap_total, "swap_used": memory.swap_used,
            "age_s": age(snapshot.at, memory.at),
        },
        "beat_age_s": None if snapshot.beat_at is None else age(snapshot.at, snapshot.beat_at),
        **parts(snapshot),
        **more,
    }  # fmt: skip


def parts(snapshot: Snapshot) -> dict[str, Any]:
    """Return GPUs, disks, loads and swap traffic, each with its age."""
    swap = snapshot.swap
    return {
        "cards": [_card(card, snapshot.at) for card in snapshot.cards],
        "gpu_trouble": snapshot.gpu_trouble,
        "disks": [_aged(disk, snapshot.at) for disk in snapshot.disks],
        "loads": [_aged(load, snapshot.at) for load in snapshot.loads],
        "swap_in": swap and swap.in_rate,
        "swap_out": swap and swap.out_rate,
    }


def finite(value: float | None) -> float | None:
    """Return a finite value or None: JSON has no infinity, so both "never" and "not known" are
    null."""
    return round(value, 3) if value is not None and math.isfinite(value) else None


def age(now: float, at: float) -> float:
    return round(max(0.0, now - at), 2)


def _card(card: GpuReading, now: float) -> dict[str, Any]:
    gpu = card.gpu
    memory = {"uuid": gpu.uuid, "used": gpu.used_bytes, "total": gpu.total_bytes, "why": gpu.why}
    return {**memory, "age_s": age(now, card.at)}


def _aged(part: Disk | Load, now: float) -> dict[str, Any]:
    """Return the fields of a reading with its age in place of its time."""
    values = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "at"}
    return {**values, "age_s": age(now, part.at)}
