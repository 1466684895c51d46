"""How bad a figure is: four levels, and the thresholds of each gauge as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from console.host.sample import DiskSample, GpuSample, MemorySample

MIB = 1024 * 1024


class Level(IntEnum):
    """From harmless to bad, so that `max()` is the worst; UNKNOWN says nothing either way."""

    UNKNOWN = 0
    OK = 1
    WARN = 2
    CRITICAL = 3

    @property
    def mark(self) -> str:
        """A sign that needs no colour: `!`, `!!`, or nothing."""
        return {Level.WARN: "!", Level.CRITICAL: "!!"}.get(self, "")


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a figure begins to worry and to hurt; `sign` is one of `>=`, `>`, `<`."""

    sign: str
    warn: float
    critical: float

    def level(self, value: float | None) -> Level:
        """The level of one figure; None is UNKNOWN."""
        if value is None:
            return Level.UNKNOWN
        if self._reached(value, self.critical):
            return Level.CRITICAL
        return Level.WARN if self._reached(value, self.warn) else Level.OK

    def _reached(self, value: float, limit: float) -> bool:
        if self.sign == "<":
            return value < limit
        return value > limit or (self.sign == ">=" and value == limit)


LIMITS: dict[str, Limits] = {
    "vram": Limits(">=", 0.90, 0.97),  # used, of all
    "temperature": Limits(">=", 83, 90),  # °C
    "ram": Limits("<", 0.10, 0.05),  # available, of all
    "swap": Limits(">=", 0.50, 0.90),  # used, of all
    "swap_in": Limits(">", 100 * MIB, 400 * MIB),  # bytes a second
    "pressure": Limits(">", 10, 40),  # per cent of ten seconds in which some task waited
    "disk": Limits("<", 0.10, 0.03),  # free, of all
}


def share(part: int | None, whole: int | None) -> float | None:
    """0…1, or None where either is not known."""
    return part / whole if part is not None and whole else None


def gpu_levels(gpu: GpuSample) -> dict[str, Level]:
    """`vram` and `temperature` of one card."""
    return {
        "vram": LIMITS["vram"].level(share(gpu.used_bytes, gpu.total_bytes)),
        "temperature": LIMITS["temperature"].level(gpu.temperature_c),
    }


def memory_levels(memory: MemorySample) -> dict[str, Level]:
    """`ram`, `swap`, `swap_in` and `pressure` of the host."""
    return {
        "ram": LIMITS["ram"].level(share(memory.available, memory.total)),
        "swap": LIMITS["swap"].level(share(memory.swap_used, memory.swap_total)),
        "swap_in": LIMITS["swap_in"].level(memory.swap_in_rate),
        "pressure": LIMITS["pressure"].level(memory.pressure_some),
    }


def disk_level(disk: DiskSample) -> Level:
    """Of one file system."""
    return LIMITS["disk"].level(share(disk.free, disk.total))
