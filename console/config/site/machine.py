"""What the site says of its machine: what cannot be measured, or another one to plan for."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from console.common import units
from console.config.validation import ByteCount, Strict, Text
from console.host.capacity import Card, Machine

DECLARED = "declared by the site"


def _rate(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError(units.RATE_FORM)
    return units.parse_rate(value)


def _compute(value: Any) -> tuple[int, int]:
    major, dot, minor = str(value).partition(".")
    if not (isinstance(value, str) and dot and major.isdigit() and minor.isdigit()):
        raise ValueError('a compute capability in quotes, like "12.0"')
    return int(major), int(minor)


Rate = Annotated[
    float, BeforeValidator(_rate), WithJsonSchema({"type": "string", "examples": ["500Mbit/s"]})
]
"""Bytes a second, written `500Mbit/s` or `6GB/s`."""
Compute = Annotated[tuple[int, int], BeforeValidator(_compute), WithJsonSchema({"type": "string"})]


class GpuModel(Strict):
    """A card by UUID; `memory` and `compute` where it is not in this machine."""

    uuid: Text
    name: Text = ""
    memory: ByteCount | None = None
    compute: Compute | None = None


class MachineModel(Strict):
    """Declared figures win over measured ones: then the verdict is about that machine.

    `ram_used` is what everything but the models takes; `memory_read` how fast the CPU reads RAM.
    """

    ram: ByteCount | None = None
    ram_used: ByteCount = 0
    swap: ByteCount | None = None
    disk_free: ByteCount | None = None
    disk_read: Rate | None = None
    memory_read: Rate | None = None
    line: Rate | None = None
    cpu: Text = ""
    cpu_flags: list[Text] = []
    cores: int | None = Field(None, gt=0)
    numa_nodes: int | None = Field(None, gt=0)

    def over(self, seen: Machine, gpus: list[GpuModel]) -> Machine:
        """The machine a verdict is about: `seen`, with what the site declares in its place."""
        cards = tuple(
            Card(gpu.name or gpu.uuid, gpu.uuid, gpu.memory, None, gpu.compute)
            for gpu in gpus
            if gpu.memory is not None
        )
        free = None if self.ram is None else max(0, self.ram - self.ram_used)
        told: dict[str, Any] = {
            "cards": cards or None, "ram_total": self.ram, "ram_available": free,
            "swap_total": self.swap, "swap_free": self.swap, "disk_free": self.disk_free,
            "disk_read_bps": self.disk_read, "line_bps": self.line,
            "cpu_name": self.cpu or None, "cpu_flags": frozenset(self.cpu_flags) or None,
            "cores": self.cores, "numa_nodes": self.numa_nodes,
        }  # fmt: skip
        changes = {name: value for name, value in told.items() if value is not None}
        return replace(seen, **changes, given={**seen.given, **dict.fromkeys(changes, DECLARED)})
