"""Waiting for GPU memory: the driver gives a killed process's pages back after it is gone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence

from console.common.clock import Clock
from console.common.paths import module_argv
from console.common.text import decode
from console.common.units import format_bytes, format_duration
from console.host import bounded
from console.host.resident import GIB, TEARDOWN_S

WAIT_S = 30.0
"""The longest wait, and TEARDOWN_S more for each GiB that was in use."""
STEP = 64 << 20
"""Bytes: a smaller change between two looks counts as "no longer falling"."""


def released(
    gpus: Sequence[str], clock: Clock, pause: Callable[[], None], call_s: float = 2.0
) -> str:
    """Wait while the memory in use on these GPUs (by UUID) falls, with a `pause` between two looks
    of `call_s` seconds at most; what was seen, in words."""
    begun, before = clock.monotonic(), used(gpus, call_s)
    limit_s = WAIT_S + (before or 0) / GIB * TEARDOWN_S
    while before is not None:
        pause()
        now = used(gpus, call_s)
        if now is None:
            break
        waited = clock.monotonic() - begun
        if now > before - STEP:
            return f"GPU memory in use {format_bytes(now)}, no longer falling"
        if waited >= limit_s:
            return f"GPU memory in use {format_bytes(now)} after {format_duration(waited)}"
        before = now
    return "GPU memory unknown; going on"


def used(gpus: Sequence[str], call_s: float) -> int | None:
    """Bytes in use on these GPUs together, asked in another process because NVML may hang for
    good; None where that of one is not known."""
    try:
        code, out, _ = bounded.run(module_argv("console.host.gpu.vram"), call_s, env=os.environ)
        table = json.loads(decode(out))
        return None if code else sum(int(table[gpu]["used"]) for gpu in gpus)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
