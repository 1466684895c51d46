"""Stage memory waits until the RAM and GPU memory of what was stopped are free again.

RAM: a killed process needs some 80 ms per GiB to free its pages, more on a busy machine. A process
that is gone has freed everything, so after an ordinary stop this is a short check. What a sentinel
killed may take half a minute to free, and a baseline that started in that time would find the RAM
full. After a kill, the available RAM must therefore reach the limit that was passed, and what was
available at the breach plus most of what the killed targets held.

GPU memory: the driver frees a killed process's pages only after that process is gone.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from console.common import record
from console.common.clock import Clock
from console.common.paths import module_argv
from console.common.text import decode
from console.common.units import format_bytes, format_duration
from console.host import children
from console.host.memory import GIB, TEARDOWN_S, meminfo
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.progress import PROGRESS_FILE, read_lines
from console.recovery.rollback.sealed_plan import BREACH

GPU_WAIT_S = 30.0
"""The longest wait in seconds; TEARDOWN_S is added for each GiB that was in use."""
STEP = 64 << 20
"""Bytes; a smaller change between two readings counts as no change."""
VRAM_PAUSE_S = 0.2
BREACH_S = 120.0
"""Seconds after which a breach no longer counts as recent."""


def memory(context: RollbackContext, lives: str = "") -> None:
    """Wait, within limits, until what was stopped is gone and its RAM and VRAM are free.

    The wait is also needed after a kill by the sentinel, even if this rollback stopped nothing.
    `lives` names a candidate that still runs: its memory comes back with its end alone.
    """
    report = context.report
    killed = after_a_kill(context)
    if not (context.stopped or context.groups or context.containers or killed):
        words = f"nothing was stopped, and {lives} still runs" if lives else "nothing was stopped"
        report.skipped("memory", words)
        return
    report.begin("memory")
    gone = f"{lives} still runs" if lives else "everything that was stopped is gone"
    words = wait_for_ram(context, killed) or gone
    if held := not_freed(context):
        report.note("memory", held)
    short = missing_after(context, Path(context.plan.run_dir, *BREACH)) if killed else ""
    if context.plan.gpus and context.plan.exclusive:
        clock = context.clock
        back = wait_for_vram(context.plan.gpus, clock, lambda: clock.sleep(VRAM_PAUSE_S))
        words = "; ".join([*([words] if killed else []), back])
    if short:
        context.fail("memory", short)
    elif lives:
        report.failed("memory", words)
    else:
        report.ok("memory", words)


def after_a_kill(context: RollbackContext) -> bool:
    """Whether the sentinel killed something just now, whoever asked for this rollback."""
    if context.report.trigger.id.startswith("sentinel"):
        return True
    if not context.plan.run_dir:
        return False
    try:
        written = os.stat(os.path.join(context.plan.run_dir, *BREACH)).st_mtime
    except OSError:
        return False
    return abs(context.clock.now() - written) < BREACH_S


def wait_for_vram(
    gpus: Sequence[str], clock: Clock, pause: Callable[[], None], call_s: float = 2.0,
    say: Callable[[str], None] = lambda words: None,
) -> str:  # fmt: skip
    """Wait while the memory in use on these GPUs (by UUID) falls; return the outcome in words.

    `pause` is called between two readings, `say` with what each has shown; a reading takes `call_s`
    seconds at most.
    """
    begun, before = clock.monotonic(), vram_used(gpus, call_s)
    limit_s = GPU_WAIT_S + (before or 0) / GIB * TEARDOWN_S
    while before is not None:
        say(f"waiting for GPU memory to be freed: {format_bytes(before)} in use")
        pause()
        now = vram_used(gpus, call_s)
        if now is None:
            break
        waited = clock.monotonic() - begun
        if now > before - STEP:
            return f"GPU memory in use {format_bytes(now)}, no longer falling"
        if waited >= limit_s:
            return f"GPU memory in use {format_bytes(now)} after {format_duration(waited)}"
        before = now
    return "GPU memory unknown; going on"


def vram_used(gpus: Sequence[str], call_s: float) -> int | None:
    """The sum of the bytes in use on these GPUs; None if one GPU's are unknown.

    A child process asks NVML, because the call may hang forever.
    """
    try:
        code, out, _ = children.run(module_argv("console.host.gpu.nvml"), call_s, env=os.environ)
        table = json.loads(decode(out))
        return None if code else sum(int(table[gpu]["used"]) for gpu in gpus)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None


MAX_BREACH = 4 << 20
"""Bytes of a breach.json."""
SCARCE = 0.1
"""Below this share of available RAM, candidates get no grace period: a load of 5 GB/s takes a
seventh of 377 GB in ten seconds, and the sentinel only warns while a rollback runs."""
WAIT_S = 60.0
"""The longest wait in seconds; TEARDOWN_S is added for each GiB that was held."""
PAUSE_S = 0.2
FIRST_PAUSE_S = 0.003
FIRST_STEP = 16 << 20
"""Bytes; a smaller rise within FIRST_PAUSE_S means that nothing is being freed, since a killed
process frees some 13 MiB a millisecond. The check is too short to delay a rollback."""
NOTE_S = 2.0
LATE_S = 3.0
"""Seconds to wait for RAM that is missing: the machine may be too busy to free it at once."""
SLACK, SLACK_PART = 256 << 20, 0.1
"""So many bytes, and this share of what the targets held, may be missing: other processes may have
taken RAM since, and group members that share pages hold less together than their sum."""


def wait_for_ram(context: RollbackContext, killed: bool) -> str:
    """Wait while available RAM rises; return the outcome in words, empty if nothing was freed.

    `killed` means that something was killed just now, so the first check takes longer. The wait
    reports its progress and lasts no longer than WAIT_S says.
    """
    first = available()
    context.clock.sleep(PAUSE_S if killed else FIRST_PAUSE_S)
    now = available()
    if first is None or now is None:
        return "RAM available is not known; going on"
    if now - first <= (STEP if killed else FIRST_STEP):
        return f"{format_bytes(now)} of RAM available" if killed else ""
    return _while_rising(context, first, now)


def _while_rising(context: RollbackContext, first: int, now: int) -> str:
    begun = noted = context.clock.monotonic()
    while True:
        before = now
        context.clock.sleep(PAUSE_S)
        now = available() or before
        at = context.clock.monotonic()
        waited = format_duration(at - begun)
        if now - before <= STEP:
            came = format_bytes(max(0, now - first))
            return f"{format_bytes(now)} of RAM available; {came} of it was freed during the wait"
        if at - begun >= WAIT_S + context.held / GIB * TEARDOWN_S:
            return f"{format_bytes(now)} of RAM available and still rising after {waited}; going on"
        if at - noted >= NOTE_S:
            noted = at
            context.report.note("memory", f"RAM is being freed: {format_bytes(now)} available")


def not_freed(context: RollbackContext) -> str:
    """Say how much of the RAM that stopped candidates held is not free yet; empty if all of it is,
    or if that is unknown. The baseline starts all the same: another process may have taken the RAM.
    """
    now = available()
    if now is None or context.available is None:
        return ""
    short = context.available + context.held * (1 - SLACK_PART) - SLACK - now
    if short <= 0:
        return ""
    if short > context.held:
        return (
            f"{format_bytes(short)} of RAM less than expected, and candidates held "
            f"{format_bytes(context.held)}: another process has taken it; {format_bytes(now)} of "
            "RAM available"
        )
    return (
        f"{format_bytes(short)} of the {format_bytes(context.held)} that candidates held is not "
        f"free yet: {format_bytes(now)} of RAM available"
    )


def missing_after(context: RollbackContext, breach: Path) -> str:
    """Say how much RAM is missing after the breach in this file; empty if none, or if unknown.

    Wait up to LATE_S for the RAM to be freed.
    """
    try:
        expected, at = _expected(record.load(breach, MAX_BREACH))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ""
    lines, _ = read_lines(context.plan.rollback_dir / PROGRESS_FILE)
    if any(line.get("rung") == "done" and float(line.get("at", 0)) > at for line in lines):
        return ""  # a rollback has ended since then, and its baseline uses that RAM
    deadline = context.clock.monotonic() + LATE_S
    while (now := available()) is not None and now < expected:
        if context.clock.monotonic() >= deadline:
            short, there = format_bytes(expected - now), format_bytes(now)
            return (
                f"{short} of the RAM expected after the kill is missing: {there} available; "
                "another process has taken it, or a process of this run escaped the kill"
            )
        context.clock.sleep(PAUSE_S)
    return ""


def _expected(breach: dict[str, Any]) -> tuple[float, float]:
    """Return the bytes that have to be available after a breach, and its Unix time.

    `breach` is what the guard's BreachHandler wrote. Raises KeyError, TypeError or ValueError if it
    is something else.
    """
    at, limit = float(breach["at"]), breach["limit"]
    held = sum((victim["held"] or {}).get("ram") or 0 for victim in breach["killed"])
    before = [float(row[1]) for row in breach["window"]["fast"] if float(row[0]) <= at]
    expected = before[-1] + held * (1 - SLACK_PART) - SLACK if before and held else 0.0
    if limit.get("metric") == "host.ram_available":
        expected = max(expected, float(limit.get("below") or 0))
    return expected, at


def is_scarce() -> bool:
    """Whether RAM is nearly full. Candidates then get no grace period, as they may take more."""
    table = meminfo()
    left, total = table.get("MemAvailable"), table.get("MemTotal")
    return left is not None and total is not None and left < total * SCARCE


def available() -> int | None:
    """MemAvailable in bytes; None where it is unknown."""
    return meminfo().get("MemAvailable")
