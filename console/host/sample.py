"""What a gauge shows: plain values, frozen, with the time they were taken. Nothing is guessed.

A value that is not known is None, and `why` says so in words; never a zero.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One card, by UUID. Memory in bytes, `utilisation` 0…1, temperature in °C, power in watts.

    `why`: what keeps a figure from being known ("MIG mode: …", "unified memory …", "the GPU is
    lost …"), "" where nothing does.
    """

    uuid: str
    index: int
    name: str
    used_bytes: int | None = None
    total_bytes: int | None = None
    utilisation: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """All cards at one moment (`at`: monotonic seconds), or why there are none: `trouble`."""

    at: float
    gpus: tuple[GpuSample, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """RAM and swap in bytes, swap rates in bytes a second, pressure as the kernel's ten-second
    averages in per cent (`some`, `full`); None where the kernel does not say."""

    total: int
    available: int
    swap_total: int
    swap_used: int
    swap_in_rate: float | None = None
    swap_out_rate: float | None = None
    pressure_some: float | None = None
    pressure_full: float | None = None


@dataclass(frozen=True, slots=True)
class DiskSample:
    """One file system, in bytes; `free` is what an ordinary user may still write."""

    path: str
    total: int | None
    free: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the machine. `at`: monotonic seconds; `gpu` keeps its own, older time."""

    at: float
    memory: MemorySample | None
    disks: tuple[DiskSample, ...] = ()
    gpu: GpuReport | None = None
    memory_why: str = ""
