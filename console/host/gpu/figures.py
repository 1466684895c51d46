"""What the reader of the cards (`console.host.gpu.child`) reports of each, a line a tick.

Gauges, runs and the sentinel all take its lines with `parse`. Nothing is guessed: an unknown value
is None, never a zero.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

MAX_WATTS, MAX_DEGREES = 5000.0, 150.0
"""NVML is known to give figures far beyond these when it has none."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One card, by UUID. Memory in bytes, `utilisation` 0…1, temperature in °C, power in watts.

    `why`: why a figure is unknown ("MIG mode: …", "unified memory …", "the GPU is lost …"), else
    "".
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

    @property
    def dark(self) -> bool:
        """Whether no figure that changes is known."""
        return all(
            figure is None
            for figure in (self.used_bytes, self.utilisation, self.temperature_c, self.power_w)
        )


@dataclass(frozen=True, slots=True)
class GpuReport:
    """All cards at one moment (`at`: monotonic seconds), or why there are none: `trouble`. `ages`
    has by UUID how many seconds ago a card answered that did not answer now."""

    at: float
    gpus: tuple[GpuSample, ...] = ()
    trouble: str = ""
    ages: Mapping[str, float] = field(default_factory=dict)


_KINDS = {
    known.name: int if "int" in str(known.type) else (int, float)
    for known in fields(GpuSample) if "None" in str(known.type)
}  # fmt: skip


def parse(line: bytes, at: float) -> GpuReport | None:
    """One line of the reader, which has made its texts harmless; None if it is incomplete. A figure
    that is none is not known, and one that a later version may add is left alone."""
    try:
        report: dict[str, Any] = json.loads(line)
        gpus = tuple(map(_sample, report["gpus"]))
        ages = {str(uuid): float(age) for uuid, age in report.get("ages", {}).items()}
        return GpuReport(at, gpus, str(report["trouble"]), ages)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _sample(reported: dict[str, Any]) -> GpuSample:
    figures: dict[str, Any] = {
        name: value for name, kind in _KINDS.items()
        if isinstance(value := reported.get(name), kind) and value >= 0
    }  # fmt: skip
    uuid, name, why = str(reported["uuid"]), str(reported["name"]), str(reported.get("why", ""))
    return GpuSample(uuid, int(reported["index"]), name, why=why, **figures)
