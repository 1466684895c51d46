"""A small model of a machine that a load fills, and the curves that are replayed on it.

Apart from the published points, the model assumes: straight lines between them; from 58 GB free on,
8.8 % of the growth is swapped out, and with 2 GB left all of it, at 1 GB/s, which delays the load
by that much (F-022: 5.4 GB of swap over the last 56 GB); meanwhile, all tasks wait for memory 70 %
of the time. MemAvailable is reported up to 0.5 GB too high, at random.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from console.host.sample import Machine as FitMachine
from console.models.sizing.assessment import HOST, Assessment, Verdict, held, resident
from console.models.sizing.load_curve import Envelope, Point
from console.models.sizing.loader_plan import Strategy
from console.recovery.guard.observe.snapshot import Memory

GB = 10**9
TOTAL, SWAP = 377 * GB, 207 * GB
START, SWAP_START = 23 * GB, int(2.6 * GB)
SWAPS_FROM, SWAPS_SHARE = 58 * GB, 0.088
FULL_AT, SWAP_SPEED, THRASH = 2 * GB, 1.0 * GB, 0.70
LAG = 0.5 * GB
EPOCH = 5000.0
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One load. `demand`: memory of the whole machine without page cache, in bytes, at a second of
    the load's own time; `peak`: its highest. `swap`: as published, instead of the model's."""

    name: str
    demand: Callable[[float], float]
    seconds: float
    peak: float
    swap: Callable[[float], float] | None = None
    thrash_from: float | None = None

    @property
    def past(self) -> bool:
        return self.peak > TOTAL


def line(points: Points) -> Callable[[float], float]:
    """Return straight lines between (second, bytes), level after the last."""

    def at(t: float) -> float:
        for (t0, a), (t1, b) in pairwise(points):
            if t < t1:
                return a + (b - a) * (t - t0) / (t1 - t0)
        return points[-1][1]

    return at


def gb(*points: tuple[float, float]) -> Callable[[float], float]:
    return line([(t, size * GB) for t, size in points])


def incident() -> Curve:
    """The load of F-022. After its last point the model continues: RAM stays full, swap fills at 1
    GB/s."""
    used = gb((0, 23), (60, 319), (90, 375), (92, 376.5))
    swap = gb((0, 2.6), (60, 2.6), (90, 8), (289, 207))
    return Curve("F-022", used, 400, 642 * GB, swap, 90.0)


def conversion(layer_s: float) -> Curve:
    """Layer 30 takes 337 GB and 5.5 GB of swap; layer 60 takes 377 and 270, of which 207 exist."""
    middle, end = 30 * layer_s, 60 * layer_s
    used = gb((0, 23), (middle, 337), (end, 377))
    swap = gb((0, 2.6), (middle, 5.5), (end, 270))
    name = f"conversion, {layer_s:g} s a layer"
    return Curve(name, used, end, 647 * GB, lambda t: min(SWAP, swap(t)), end)


def named(shape: str, rate: float, end: float) -> str:
    return f"{shape}, {rate / GB:g} GB/s to {end / TOTAL:.0%} of RAM"


def ramp(rate: float, end: float) -> Curve:
    seconds = (end - START) / rate
    return Curve(named("ramp", rate, end), line([(0, START), (seconds, end)]), seconds + 10, end)


def plateaus(rate: float, end: float) -> Curve:
    """A pause of 5 s after each tenth of the machine, and 20 s at the end."""
    points: Points = [(0, START)]
    while points[-1][1] < end:
        t, used = points[-1]
        more = min(TOTAL / 10, end - used)
        points += [(t + more / rate, used + more), (t + more / rate + 5, used + more)]
    return Curve(named("plateaus", rate, end), line(points), points[-1][0] + 15, end)


def shards(rate: float, end: float) -> Curve:
    """Twice the rate for 0.7 s, then none for 0.7 s: read, convert, read."""
    points: Points = [(0, START)]
    while points[-1][1] < end:
        t, used = points[-1]
        more = min(1.4 * rate, end - used)
        points += [(t + more / (2 * rate), used + more), (t + more / (2 * rate) + 0.7, used + more)]
    return Curve(named("shards", rate, end), line(points), points[-1][0] + 10, end)


def storm(rate: float, end: float) -> Curve:
    """A compiler's saw-tooth of up to 40 GB on a growing floor; its highest tooth ends at `end`."""
    high = min(40 * GB, (end - START) / 2)
    seconds, period = (end - high - START) / rate, 16.0

    def at(t: float) -> float:
        part = t % period / period
        tooth = high * (part / 0.75 if part < 0.75 else (1 - part) / 0.25)
        return START + min(t, seconds) * rate + tooth

    return Curve(named("compile storm", rate, end), at, seconds + 2 * period, end)


def mapped(rate: float, end: float) -> Curve:
    """A mapped file of any size, which is page cache that MemAvailable does not count, and 4 GB."""
    demand = line([(0, START), (5, START + 4 * GB)])
    return Curve(named("mapped file", rate, end), demand, 120, START + 4 * GB)


SHAPES = (ramp, plateaus, shards, storm, mapped)


def preflight(curve: Curve) -> tuple[Verdict, Envelope]:
    """Return preflight's verdict on a resident load of this size, and its prediction."""
    machine = FitMachine(ram_total=TOTAL, ram_available=TOTAL - START, swap_free=SWAP - SWAP_START)
    need = int(curve.peak) - START
    ledger = Assessment(Strategy.RESIDENT)
    ledger.add("weights", need, HOST)
    resident(ledger, machine)
    ram, swap = held(need, machine)
    return ledger.verdict, Envelope((Point("start", 0.0), Point("loaded", None, ram, 0, (), swap)))


class Filling:
    """The machine while a curve runs: `step` advances time, `memory` is what the kernel reports."""

    def __init__(self, curve: Curve, seed: int = 1) -> None:
        self.curve = curve
        self.t = self.own = 0.0
        self.ram, self.swapped = curve.demand(0.0), 0.0
        self.stalled_us = 0.0
        self._random = random.Random(seed)

    @property
    def ended(self) -> bool:
        return self.own >= self.curve.seconds or self.swapped >= SWAP - SWAP_START - 1

    def step(self, seconds: float) -> None:
        self.t += seconds
        curve = self.curve
        if curve.swap is not None:
            self.own = self.t
            self.ram, self.swapped = curve.demand(self.t), curve.swap(self.t) - SWAP_START
            if curve.thrash_from is not None and self.t >= curve.thrash_from:
                self.stalled_us += seconds * THRASH * 1e6
            return
        grows = curve.demand(self.own + seconds) - self.ram - self.swapped
        if grows <= 0:
            self.own += seconds
            self.ram += grows
            return
        room = TOTAL - FULL_AT - self.ram
        out = grows * SWAPS_SHARE if TOTAL - self.ram < SWAPS_FROM else 0.0
        share = 1.0
        if grows - out > room:  # RAM is full: no faster growth than swap allows
            self.stalled_us += seconds * THRASH * 1e6
            share = min(1.0, (max(0.0, room) + SWAP_SPEED * seconds) / grows)
            grows *= share
            out = grows - max(0.0, room)
        self.own += seconds * share
        self.ram += grows - out
        self.swapped += out

    def memory(self) -> Memory:
        told = TOTAL - self.ram + self._random.uniform(0, LAG)
        return Memory(
            EPOCH + self.t, TOTAL, int(min(TOTAL, max(0.0, told))), SWAP,
            int(min(SWAP, SWAP_START + self.swapped)), int(self.stalled_us), int(self.stalled_us),
        )  # fmt: skip


def family(rates: tuple[float, ...], ends: tuple[float, ...]) -> Iterator[Curve]:
    """Yield every shape with every rate (bytes a second) and end (bytes)."""
    for shape in SHAPES:
        for rate in rates:
            # the size of a mapped file does not matter
            for end in ends[:1] if shape is mapped else ends:
                yield shape(rate, end)
