"""What keeps a candidate from taking the whole machine before anybody looks: the kernel's limits.

Where a playbook names no memory limit there is one all the same: the machine's RAM less a reserve,
and no swap on top. It is above all that preflight calls GO, so it never ends what was predicted
to fit; and it depends on the machine alone, so that an equal container is found again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TypeVar

from console.common.units import format_bytes
from console.host.process_spec import ProcessSpec
from console.runtime.spec import ComposeSpec, ContainerSpec, ExistingContainer, Runs, ServiceSpec

MIB, GIB = 1 << 20, 1 << 30
LEAST_RESERVE, MOST_RESERVE = 2 * GIB, 8 * GIB
"""MemAvailable was seen to lag half a GiB behind a hog; preflight leaves 8 GiB (fit.memory)."""
RESERVE_SHARE = 0.085
STEP = 256 * MIB
"""Rounded down to this: a new kernel takes some MiB more or less for itself."""
OOM_SCORE = 1000
"""The kernel takes a candidate before the shell, the engine or the baseline, whatever they hold."""
PIDS = 4096
T = TypeVar("T", ContainerSpec, ComposeSpec)


def total_memory() -> int | None:
    """RAM of this machine in bytes; None where it is not known."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def default_memory(total: int | None = None) -> int | None:
    """The limit of a container that names none, bytes; None where RAM is not known.

    `total` less max(2 GiB, 8.5 %), of which at most 8 GiB; at least half of a small machine.
    """
    total = total_memory() if total is None else total
    if not total or total <= 0:
        return None
    reserve = min(max(LEAST_RESERVE, int(total * RESERVE_SHARE)), MOST_RESERVE, total // 2)
    left = total - reserve
    return left - left % STEP or left


def memory_limit(memory_bytes: int | None) -> int | None:
    """The limit that counts: the one that is named, else the default; bytes of RAM, and as much
    with swap, which means none of it."""
    return memory_bytes or default_memory()


def limited(runs: T) -> T:
    """A specification with the limit that counts written into it."""
    return replace(runs, memory_bytes=memory_limit(runs.memory_bytes))


def memory_words(memory_bytes: int | None) -> str:
    """The memory limit that counts, as a plan shows it."""
    limit = memory_limit(memory_bytes)
    if limit is None:
        return "no memory limit"
    own = "" if memory_bytes else " (the machine's RAM less a reserve)"
    return f"{format_bytes(limit)}{own}"


def containment(spec: ServiceSpec) -> str:
    """What the kernel itself stops when this service goes wild, in words; says so where nothing."""
    runs: Runs = spec.runs
    if isinstance(runs, ContainerSpec | ComposeSpec):
        pids = runs.pids if isinstance(runs, ContainerSpec) else PIDS
        return (
            f"kernel limits: at most {memory_words(runs.memory_bytes)}, no swap, {pids} processes; "
            "the first to go when memory runs out; restart no"
        )
    if isinstance(runs, ExistingContainer):
        return "a container somebody else made: its own limits, none of the console's"
    assert isinstance(runs, ProcessSpec)
    return "no kernel limit: a host process may fill RAM and swap; only the sentinel stops it"
