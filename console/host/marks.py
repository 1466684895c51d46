"""Where a guard acts, in the figures that gauges show: a mark in a bar, and what is left to it."""

from __future__ import annotations

from dataclasses import dataclass

from console.host.sample import DiskSample, GpuSample, MemorySample


@dataclass(frozen=True, slots=True)
class Marks:
    """The nearest limits in bytes; None or absent where there is none. `vram_free` and `vram_used`
    go by the UUID of a card, "" for any; `disk_free` by path, "" for any. `swap_growth` counts from
    what was in use when the run's first load began: it has no place in a bar."""

    ram_available: int | None = None
    swap_used: int | None = None
    swap_free: int | None = None
    swap_growth: int | None = None
    vram_free: tuple[tuple[str, int], ...] = ()
    vram_used: tuple[tuple[str, int], ...] = ()
    disk_free: tuple[tuple[str, int], ...] = ()

    def ram(self, memory: MemorySample) -> float | None:
        """The share of RAM in use at which it acts."""
        if self.ram_available is None or not memory.total:
            return None
        return (memory.total - self.ram_available) / memory.total

    def swap(self, memory: MemorySample) -> float | None:
        """The share of swap in use at which it acts."""
        if not memory.swap_total:
            return None
        used = [] if self.swap_used is None else [self.swap_used]
        used += [] if self.swap_free is None else [memory.swap_total - self.swap_free]
        return min(used) / memory.swap_total if used else None

    def card(self, gpu: GpuSample) -> float | None:
        """The share of a card's memory in use at which it acts."""
        total = gpu.total_bytes
        if not total:
            return None
        used = [size for name, size in self.vram_used if _is(name, gpu.uuid)]
        used += [total - size for name, size in self.vram_free if _is(name, gpu.uuid)]
        return min(used) / total if used else None

    def disk(self, disk: DiskSample) -> float | None:
        """The share of a file system in use at which it acts."""
        free = [size for path, size in self.disk_free if path in ("", disk.path)]
        return 1 - max(free) / disk.total if free and disk.total else None


NO_MARKS = Marks()


def _is(name: str, uuid: str) -> bool:
    return uuid.startswith(name)
