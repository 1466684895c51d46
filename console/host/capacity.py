"""The machine a verdict is about: measured now, or declared by the site for planning elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. Memory in bytes; `compute` is the compute capability, like (12, 0) for sm_120.

    `free` is None where it is not known; `total` alone then stands in, and the verdict says so.
    """

    name: str
    uuid: str = ""
    total: int | None = None
    free: int | None = None
    compute: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What a model may use. Bytes, bytes per second; None is "not known", never zero.

    `ram_available` is what a new process can have: min(MemAvailable, the cgroup's limit less its
    anonymous and active file memory). `disk_read_bps` and `line_bps` are measured or declared.
    `given` says where each figure is from ("measured now", "declared by the site"), by field name.
    """

    cards: tuple[Card, ...] = ()
    ram_total: int | None = None
    ram_available: int | None = None
    swap_total: int | None = None
    swap_free: int | None = None
    disk_free: int | None = None
    disk_path: str = ""
    disk_read_bps: float | None = None
    line_bps: float | None = None
    cpu_flags: frozenset[str] = frozenset()
    cpu_name: str = ""
    cores: int | None = None
    numa_nodes: int | None = None
    given: dict[str, str] = field(default_factory=dict)
