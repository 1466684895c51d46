"""What the sentinel knows at one moment: plain values in bytes, seconds and monotonic times.

None means "not known" and never zero. `at` of each part is when that part was read, so that its age
can be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from console.host.gpu.figures import GpuSample

FASTEST = 40e9
"""Bytes a second; no process fills RAM faster. The wait between two readings is so short that
RAM cannot reach a level that kills in between."""


class Memory(NamedTuple):
    """RAM and swap of the machine in bytes. `some_us` and `full_us` are the kernel's PSI totals for
    memory, in microseconds. `bound` is the number of bytes left to the control group around this
    process, where that counts.

    This is a NamedTuple because one is made at every tick, in a quarter of the time of a frozen
    dataclass.
    """

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
    """Swap traffic in bytes a second since the reading before."""

    at: float
    in_rate: float | None = None
    out_rate: float | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What the GPU reader reported of one GPU. Its `why` says why a figure is not known (GPU lost,
    no answer, MIG)."""

    gpu: GpuSample
    at: float


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    at: float
    free: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The memory of something of the run that is alive and may be killed: a container, a process or
    a step.

    `ram` is what its control group or process group holds without page cache, in bytes; `limit` is
    its own memory limit. `oom` counts the OOM kills in it since it was armed; where it is
    `expendable`, they are the result that a step looks for.
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
    expendable: bool = False


@dataclass(frozen=True, slots=True)
class LogHit:
    """Fatal log lines of a service, counted since it was armed. `limit` is the limit's index in the
    guard config. `why` says why no more can be counted. `at` is when they were counted, None for
    just now."""

    limit: int
    count: int
    line: str = ""
    why: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All readings at one moment. `memory` is fresh at every tick; every other part is as old as
    its own time says."""

    at: float
    memory: Memory | None
    swap: Swap | None = None
    cards: tuple[GpuReading, ...] = ()
    gpu_trouble: str = ""
    disks: tuple[Disk, ...] = ()
    loads: tuple[Load, ...] = ()
    hits: tuple[LogHit, ...] = ()
    beat_at: float | None = None
    """When the runner last said that it is alive; None before its first message."""
    why: str = ""
    """Why memory is not known."""
