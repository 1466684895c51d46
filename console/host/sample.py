"""Figures for gauges and verdicts: cards, memory and disks, and how bad they are.

Plain values, frozen, with the time they were taken. Nothing is guessed: an unknown value is None,
never a zero, and `why` says so in words.

A `History` has the figures of the last minutes in equal spans, each a cell of a curve. A span keeps
the mean of its values, so that a curve moves only when a span ends: one that moved with every
sample would be sent to the terminal anew each time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from console.host.gpu.figures import FIGURES, KEPT, GpuReport, GpuSample

MIB = 1024 * 1024


class Level(IntEnum):
    """How bad a figure is, from harmless to bad, so that `max()` is the worst; UNKNOWN says nothing
    either way."""

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
    """Where a figure becomes worrying and bad; `sign` is one of `>=`, `>`, `<`."""

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
    **{figure.name: Limits(">=", *figure.limits) for figure in FIGURES if figure.limits},
    "ram": Limits("<", 0.10, 0.05),  # available, of all
    "swap": Limits(">=", 0.50, 0.90),  # used, of all
    "swap_in": Limits(">", 100 * MIB, 400 * MIB),  # bytes a second
    "pressure": Limits(">", 10, 40),  # per cent of ten seconds in which some task waited
    "disk": Limits("<", 0.10, 0.03),  # free, of all
}


def share(part: int | None, whole: int | None) -> float | None:
    """0…1, or None if either is unknown."""
    return part / whole if part is not None and whole else None


def gpu_levels(gpu: GpuSample) -> dict[str, Level]:
    """`vram` of one card, and each figure that has limits."""
    return {
        "vram": LIMITS["vram"].level(share(gpu.used_bytes, gpu.total_bytes)),
        **{f.name: LIMITS[f.name].level(getattr(gpu, f.field)) for f in FIGURES if f.limits},
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
    return LIMITS["disk"].level(share(disk.free, disk.total))


@dataclass(frozen=True, slots=True)
class MemorySample:
    """RAM and swap in bytes, swap rates in bytes a second, pressure as the kernel's ten-second
    averages in per cent (`some`, `full`); None if the kernel does not say."""

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


@dataclass(frozen=True, slots=True)
class Marks:
    """Where a guard acts, in the figures that gauges show: the nearest limits in bytes; None or
    absent if there is none. `vram_free` and `vram_used` go by the UUID of a card, "" for any;
    `disk_free` by path, "" for any. `swap_growth` counts from the use when the run's first load
    began, so it has no place in a bar."""

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
        used = [size for name, size in self.vram_used if gpu.uuid.startswith(name)]
        used += [total - size for name, size in self.vram_free if gpu.uuid.startswith(name)]
        return min(used) / total if used else None

    def disk(self, disk: DiskSample) -> float | None:
        """The share of a file system in use at which it acts."""
        free = [size for path, size in self.disk_free if path in ("", disk.path)]
        return 1 - max(free) / disk.total if free and disk.total else None


NO_MARKS = Marks()


INTEGRATED = ((5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1))
"""Compute capabilities of chips whose memory is the host's: Jetson TX1 to Thor, and GB10 (DGX
Spark)."""
_POOLED = re.compile(
    r"\b(?:GB10|DGX Spark|Jetson|Tegra|Xavier|Orin|Thor|Apple|M\d (?:Pro|Max|Ultra)|Ryzen AI|"
    r"Radeon 80[56]0S|Strix Halo)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. Memory in bytes; `compute` is the compute capability, like (12, 0) for sm_120.

    `free` is None if unknown; `total` is then used instead, and the verdict says so. `unified`: the
    driver names no memory of its own, since it is the host's RAM.
    """

    name: str
    uuid: str = ""
    total: int | None = None
    free: int | None = None
    compute: tuple[int, int] | None = None
    unified: bool = False

    @property
    def shares_ram(self) -> bool:
        """Whether its memory and the host's RAM are one pool: by the driver, by its compute
        capability, or by its name."""
        return self.unified or self.compute in INTEGRATED or _POOLED.search(self.name) is not None


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a verdict: what a model may use, measured now, or declared by the site for
    planning elsewhere. Bytes, bytes per second; None is "unknown", never zero.

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


SPAN_S = 5.0
SPANS = 360
"""Half an hour."""
RAM, SWAP, PRESSURE = "ram", "swap", "psi"


class Moment(Protocol):
    """What was recorded of the machine at one moment: bytes, per cent, and of each figure that is
    kept of a card a table by UUID; see console.journal.samples.Gauge."""

    @property
    def at(self) -> float: ...
    @property
    def ram(self) -> float | None: ...
    @property
    def swap(self) -> float | None: ...
    @property
    def psi(self) -> float | None: ...
    @property
    def cards(self) -> dict[str, dict[str, float]]: ...


class Series:
    """One figure: (number of the span, sum, count) of the spans that have a value, oldest first."""

    def __init__(self) -> None:
        self._spans: deque[tuple[int, float, int]] = deque(maxlen=SPANS)

    def add(self, at: float, value: float) -> None:
        """Add a value of `at` (Unix seconds); one older than the newest span is dropped."""
        number = int(at // SPAN_S)
        if self._spans and number <= self._spans[-1][0]:
            if number == self._spans[-1][0]:
                _, total, count = self._spans.pop()
                self._spans.append((number, total + value, count + 1))
            return
        self._spans.append((number, value, 1))

    def means(self, cells: int, now: float) -> list[float | None]:
        """The last `cells` spans up to `now`, oldest first; None where nothing is known."""
        out: list[float | None] = [None] * max(0, cells)
        if now < 0:
            return out
        newest = int(now // SPAN_S)
        for number, total, count in reversed(self._spans):
            at = len(out) - 1 - (newest - number)
            if at < 0:
                break
            if at < len(out):
                out[at] = total / count
        return out


class History:
    """The figures of one machine. Use from one thread."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self._gpu_at = float("-inf")
        self._newest = float("-inf")

    def add(self, name: str, at: float, value: float | None, card: str = "") -> None:
        """Add a figure, of a card if `card` (a UUID) is given; None says nothing."""
        if value is not None:
            self._series.setdefault((name, card), Series()).add(at, value)
            self._newest = max(self._newest, at)

    def take(self, sample: Sample, now: float) -> None:
        """Take a sample in at `now` (Unix seconds); a report of the cards counts once."""
        memory, report = sample.memory, sample.gpu
        if memory is not None:
            self.add(RAM, now, memory.total - memory.available)
            self.add(SWAP, now, memory.swap_used)
            self.add(PRESSURE, now, memory.pressure_some)
        if report is not None and report.at != self._gpu_at:
            self._gpu_at = report.at
            for gpu in report.gpus:
                for figure in KEPT:
                    self.add(figure.kept, now, getattr(gpu, figure.field), gpu.uuid)

    def load(self, moments: Iterable[Moment]) -> None:
        """Take in what was recorded before this console looked, in order of time. What was sampled
        since stays: it is newer."""
        since, self._series = self._series, {}
        for moment in moments:
            for name, value in ((RAM, moment.ram), (SWAP, moment.swap), (PRESSURE, moment.psi)):
                self.add(name, moment.at, value)
            for name, cards in moment.cards.items():
                for card, value in cards.items():
                    self.add(name, moment.at, value, card)
        for key, series in since.items():
            before = self._series.setdefault(key, Series())
            for number, total, count in series._spans:
                before.add(number * SPAN_S, total / count)

    def curve(self, name: str, cells: int, card: str = "") -> list[float | None]:
        """A figure over the last `cells` spans, the newest of all last; None where unknown."""
        series = self._series.get((name, card), Series())
        return series.means(cells, self._newest)
