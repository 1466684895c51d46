"""The figures of a card: one record for each, and the lines of their reader.

The reader (`console.host.gpu.child`) queries what `FIGURES` says; gauges, curves, what a run keeps
and a rehearsal's stand-in of NVML go over the same records. Gauges, runs and the sentinel all take
its lines with `parse`. Nothing is guessed: an unknown value is None, never a zero.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

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
        return all(getattr(self, figure.field) is None for figure in FIGURES if not figure.slow)


class Query(NamedTuple):
    """How NVML is asked for a figure: its `call`, the name of what else the call takes, the part of
    the answer, its size in the figure's unit, and the most that is believed. `rehearsed`: what the
    stand-in of NVML answers while a card is idle, and while something holds its memory."""

    call: str
    scale: float
    most: float
    rehearsed: tuple[int, int]
    argument: str = ""
    part: str = ""


class Curve(NamedTuple):
    """A curve of a figure: its name, its tone, and the value at its top."""

    name: str
    tone: str
    top: Callable[[GpuSample], float | None]


class Figure(NamedTuple):
    """One figure, in `field` of a sample. `name` is its key in the journal's peaks, if it has a
    `peak`, and among the levels, if it has `limits` from which it is worrying and bad.

    `query` is None for memory, which is queried in its own way; a `slow` figure hardly changes.
    `of_instances`: a card in MIG mode has none. `kept` is its key in a run's file of samples, ""
    for what is not kept there; only what is kept can have a `curve`.

    A row of gauges has it in so many `cells`, none if 0, as its `words`, or `lacking` where it is
    not known; where a row is narrow, what `gives_way` goes first. `brief` is its place in the
    shortest row, where the last goes first; 0 for none.
    """

    name: str
    field: str
    query: Query | None = None
    slow: bool = False
    of_instances: bool = False
    peak: bool = False
    kept: str = ""
    curve: Curve | None = None
    limits: tuple[float, float] | None = None
    words: Callable[[GpuSample], str] = lambda gpu: ""
    lacking: str = "n/a"
    cells: int = 0
    gives_way: bool = False
    brief: int = 0

    def text(self, gpu: GpuSample) -> str:
        """The figure of a card in words, or that it has none."""
        if getattr(gpu, self.field) is not None:
            return self.words(gpu)
        return "MIG" if self.of_instances and gpu.why.startswith("MIG") else self.lacking


def _watts(gpu: GpuSample) -> str:
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
    return f"{gpu.power_w:.0f}{limit} W"


FIGURES = (
    Figure(
        "used", "used_bytes", peak=True, kept="gpu",
        curve=Curve("VRAM", "accent", lambda gpu: gpu.total_bytes),
    ),
    Figure(
        "utilisation", "utilisation",
        Query("nvmlDeviceGetUtilizationRates", 0.01, 1.0, (0, 50), part="gpu"),
        of_instances=True, kept="busy", curve=Curve("util", "second", lambda gpu: 1.0),
        words=lambda gpu: f"{(gpu.utilisation or 0) * 100:.0f} %", cells=6, brief=2,
    ),
    Figure(
        "temperature", "temperature_c",
        Query(
            "nvmlDeviceGetTemperature", 1.0, MAX_DEGREES, (35, 60), argument="NVML_TEMPERATURE_GPU"
        ),
        peak=True, limits=(83, 90),
        words=lambda gpu: f"{gpu.temperature_c:.0f} °C", cells=6, brief=1,
    ),
    Figure(
        "power", "power_w", Query("nvmlDeviceGetPowerUsage", 0.001, MAX_WATTS, (20_000, 320_000)),
        kept="watt", curve=Curve("watt", "", lambda gpu: gpu.power_limit_w),
        words=_watts, lacking="no watts", cells=10, gives_way=True,
    ),
    Figure(
        "power_limit", "power_limit_w",
        Query("nvmlDeviceGetEnforcedPowerLimit", 0.001, MAX_WATTS, (600_000, 600_000)), slow=True,
    ),
)  # fmt: skip
"""In the order in which they are shown."""
USED, UTILISATION = FIGURES[:2]
KEPT = tuple(figure for figure in FIGURES if figure.kept)


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
