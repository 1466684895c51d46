"""What the sentinel saw at one moment: plain values, bytes and seconds, monotonic times.

None is "not known", never zero; `at` of a part is when that part was read, so that its age shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

FASTEST = 40e9
"""Bytes a second: nothing makes new pages faster, so that no level of RAM that kills is reached
between two looks, however far they are apart."""


class Memory(NamedTuple):
    """RAM and swap of the machine in bytes. `some_us`, `full_us`: the kernel's PSI totals for
    memory, microseconds. `bound`: bytes left to the cgroup around this process, where it counts.

    Made at every tick, in a quarter of the time that a frozen dataclass takes."""

    at: float
    total: int
    available: int
    swap_total: int = 0
    swap_used: int = 0
    some_us: int | None = None
    full_us: int | None = None
    bound: int | None = None


@dataclass(frozen=True, slots=True)
class Swap:
    """Swap traffic in bytes a second since the look before."""

    at: float
    in_rate: float | None = None
    out_rate: float | None = None


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """VRAM of one GPU; `why` says what keeps it from being known (lost, no answer, MIG)."""

    uuid: str
    at: float
    used: int | None = None
    total: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    at: float
    free: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Something of the run that is alive and may be killed: a container, a process, a step.

    `ram`: what its cgroup or process group holds without page cache; `oom`: OOM kills in it since
    it was armed; `limit`: its own memory limit.
    """

    name: str
    kind: str
    at: float
    ram: int | None = None
    swap: int | None = None
    limit: int | None = None
    oom: int | None = None
    restarts: int | None = None
    pids: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class LogHit:
    """Fatal lines of a service since it was armed: `limit` is the index in the sheet's limits.
    `why`: why no more can be counted; `at`: when they were counted, None for just now."""

    limit: int
    count: int
    line: str = ""
    why: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything. `memory` is fresh at every tick; the rest is as old as it says."""

    at: float
    memory: Memory | None
    swap: Swap | None = None
    cards: tuple[GpuMemory, ...] = ()
    gpu_trouble: str = ""
    disks: tuple[Disk, ...] = ()
    loads: tuple[Load, ...] = ()
    hits: tuple[LogHit, ...] = ()
    beat_at: float | None = None
    """When the runner last said it is alive; None before its first word."""
    why: str = ""
    """Why memory is not known."""
