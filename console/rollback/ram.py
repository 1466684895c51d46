"""Waiting for RAM: a killed process gives its pages back some 80 ms a GiB, on a busy machine later.

Whoever is seen to be gone has given everything back already, so an ordinary rollback only makes
sure. What the sentinel killed may be at it for half a minute, and a baseline that starts meanwhile
would meet a full machine.
"""

from __future__ import annotations

import os

from console.rollback.scene import Scene
from console.units import format_bytes, format_duration

WAIT_S = 60.0
PAUSE_S = 0.2
STEP = 64 << 20
"""Bytes: a smaller rise between two looks counts as "no longer rising"."""
FIRST_PAUSE_S = 0.003
FIRST_STEP = 16 << 20
"""The look that is never in the way: freeing does some 13 MiB a millisecond, others less."""
NOTE_S = 2.0


def returned(scene: Scene, killed: bool) -> str:
    """Wait while RAM comes back; what was seen in words, empty for nothing to wait for.

    `killed`: something died just now, so look properly. Bounded by WAIT_S, with notes.
    """
    clock = scene.clock
    try:
        descriptor = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        first = available(descriptor)
        clock.sleep(PAUSE_S if killed else FIRST_PAUSE_S)
        now = available(descriptor)
        if first is None or now is None:
            return "RAM available is not known; going on"
        if now - first <= (STEP if killed else FIRST_STEP):
            return f"{format_bytes(now)} of RAM available" if killed else ""
        return _while_rising(scene, descriptor, first, now)
    finally:
        os.close(descriptor)


def _while_rising(scene: Scene, descriptor: int, first: int, now: int) -> str:
    begun = noted = scene.clock.monotonic()
    while True:
        before = now
        scene.clock.sleep(PAUSE_S)
        now = available(descriptor) or before
        at = scene.clock.monotonic()
        waited = format_duration(at - begun)
        if now - before <= STEP:
            came = format_bytes(max(0, now - first))
            return f"{format_bytes(now)} of RAM available, {came} of it came back meanwhile"
        if at - begun >= WAIT_S:
            return f"{format_bytes(now)} of RAM available and still rising after {waited}; going on"
        if at - noted >= NOTE_S:
            noted = at
            scene.report.note("memory", f"RAM comes back: {format_bytes(now)} available")


def available(descriptor: int) -> int | None:
    """MemAvailable in bytes from an open /proc/meminfo; None when it is not there."""
    try:
        data = os.pread(descriptor, 4096, 0)
        at = data.index(b"MemAvailable:")
        return int(data[at + 13 : data.index(b"kB", at)]) * 1024
    except (OSError, ValueError):
        return None
