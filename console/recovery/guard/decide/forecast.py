"""Predicts when RAM will be full, and smooths the result for people.

`Forecast` uses slopes over half a second, over three seconds and smoothed, and compares them with
the prediction. What grows is demand, RAM and swap together: a machine that swaps out does not get
better. Samples are kept for seconds, never for hours.

`Countdown` is the forecast as it is shown: a time that people can plan with, which does not follow
each burst of other work on the machine. No decision depends on it.

The code is pure: time comes in with the samples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from console.models.sizing.load_curve import MIN_SLACK, SLACK, Envelope
from console.recovery.guard.config import FLOOR_WITHIN_S, Defaults
from console.recovery.guard.observe.snapshot import GpuReading, Memory

SHORT_S, MEDIUM_S, SMOOTH_S = 0.5, 3.0, 5.0
KNOWN_S, KNOWN_SHARE_S = 0.3, 0.5
"""A slope or a share of the time is not known until its samples span this many seconds."""
STILL = 1e6
"""Growth slower than this many bytes a second counts as none."""
SHARE_S = 1.0
FINEST_S = 0.015
"""Samples closer together than this are not kept, so that the number of samples has a limit."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """Growth of demand in bytes a second, positive while memory fills; None while not known."""

    short: float | None = None
    medium: float | None = None
    smooth: float | None = None


class Base(NamedTuple):
    """The start values of growth in bytes: RAM available, swap used, and VRAM used by UUID."""

    available: int
    swap_used: int
    cards: Mapping[str, int]


class _Ring:
    """(time, value) pairs of the last seconds, and one older pair, where the slope begins."""

    __slots__ = ("known_s", "points", "seconds")

    def __init__(self, seconds: float, known_s: float = KNOWN_S) -> None:
        self.seconds, self.known_s = seconds, known_s
        self.points: deque[tuple[float, float]] = deque()

    def push(self, at: float, value: float) -> float | None:
        """Add a value. Returns the growth a second over the values kept; None if they span too
        little."""
        points = self.points
        if not points or at - points[-1][0] >= FINEST_S:
            points.append((at, value))
        edge = at - self.seconds
        while len(points) > 1 and points[1][0] <= edge:
            points.popleft()
        then, before = points[0]
        return (value - before) / (at - then) if at - then >= self.known_s else None


class Forecast:
    """Call `update` at every tick, then read the attributes. `tte_s` is the number of seconds until
    only the reserve is left, inf if that will not happen, None while not known. `on_course` means
    that a prediction says that the load ends in time, and that it has held so far."""

    def __init__(self, defaults: Defaults, envelope: Envelope) -> None:
        self.defaults = defaults
        self.envelope = envelope
        self.predicted = envelope.peak if envelope.points else None
        self.slopes = Slopes()
        self.rate = 0.0
        self.tte_s: float | None = None
        self.on_course = False
        self.base: Base | None = None
        self._line: float | None = None
        self._forget()

    def start(self, memory: Memory | None, cards: tuple[GpuReading, ...] = ()) -> None:
        """Count from this memory on, because something came alive."""
        gpus = [card.gpu for card in cards]
        used = {gpu.uuid: gpu.used_bytes for gpu in gpus if gpu.used_bytes is not None}
        self.resume(Base(memory.available, memory.swap_used, used) if memory else None)

    def resume(self, base: Base | None) -> None:
        self.base, self._line = base, self._least(base)

    def stop(self) -> None:
        """Stop counting, because nothing is alive any more."""
        self.resume(None)
        self.on_course = False

    def _least(self, base: Base | None) -> float | None:
        """Return how many bytes must be left for the prediction to hold; None if there is no
        prediction, or if it leaves too little or needs swap.

        A load may end at the lowest level that is predicted, or below it by the prediction's own
        slack, as long as it leaves the bytes that every load has to leave.
        """
        if self.predicted is None or base is None:
            return None
        peak, kept = self.predicted.ram, self.defaults.kept
        lowest = base.available - peak
        if lowest < kept or self.predicted.swap:
            return None
        return max(kept, lowest - max(MIN_SLACK, peak * SLACK))

    def _forget(self) -> None:
        self._short, self._medium = _Ring(SHORT_S), _Ring(MEDIUM_S)
        self._smooth: float | None = None
        self._before: tuple[float, float] | None = None
        self._total = 0

    def update(self, memory: Memory) -> None:
        """Take one sample. The same sample again changes nothing."""
        at, demand = memory.at, float(memory.swap_used - memory.available)
        if memory.total != self._total or (self._before and at < self._before[0]):
            self._forget()  # another size of memory, or another clock: no slope spans the change
            self._total = memory.total
        before, self._before = self._before, (at, demand)
        if before is not None and at > before[0]:
            step = at - before[0]
            now = (demand - before[1]) / step
            was = self._smooth
            self._smooth = now if was is None else was + (now - was) * step / (SMOOTH_S + step)
        short, medium = self._short.push(at, demand), self._medium.push(at, demand)
        self.slopes = Slopes(short, medium, None if short is None else self._smooth)
        self.on_course = self._prediction_holds(memory)
        self._count_down(memory.available, short, medium)

    def _prediction_holds(self, memory: Memory) -> bool:
        """Return whether the prediction holds. It is compared with demand: what was swapped out to
        make room still counts as taken."""
        if self._line is None or self.base is None:
            return False
        grown = max(0, memory.swap_used - self.base.swap_used)
        return memory.available - grown >= self._line

    def _count_down(self, available: int, short: float | None, medium: float | None) -> None:
        if short is None or medium is None:
            self.tte_s = None
            return
        # A pause between two files does not end the load, but growth does not go on at the earlier
        # rate either.
        rate = max(short, medium, self._smooth or 0.0) if short > 0 else medium
        self.rate = rate = max(0.0, rate)
        if self.on_course or rate < STILL:
            self.tte_s = math.inf
            return
        left = available - self.defaults.reserve
        if left > 0:
            self.tte_s = left / rate
        elif available - self.defaults.floor < rate * FLOOR_WITHIN_S:
            self.tte_s = 0.0
        else:
            self.tte_s = math.inf

    def outside(self, memory: Memory, cards: tuple[GpuReading, ...]) -> str | None:
        """Return in words what is above the prediction. Call it once a second at most: it is
        slow."""
        base = self.base
        if base is None or self.predicted is None:
            return None
        known = dict(self.predicted.vram)
        vram = [
            (gpu.uuid, max(0, gpu.used_bytes - base.cards[gpu.uuid]))
            for gpu in (card.gpu for card in cards)
            if gpu.used_bytes is not None and gpu.uuid in known and gpu.uuid in base.cards
        ]
        ram = max(0, base.available - memory.available)
        swap = max(0, memory.swap_used - base.swap_used)
        return self.envelope.outside(ram=ram, swap=swap, vram=vram)


class Stall:
    """The per cent of the last second in which tasks waited for memory, from the kernel's
    totals."""

    def __init__(self) -> None:
        self.share: float | None = None
        self._ring = _Ring(SHARE_S, KNOWN_SHARE_S)

    def update(self, at: float, total_us: int | None) -> None:
        """Take one sample. If the total went back (another control group), start again."""
        points = self._ring.points
        if total_us is None or (points and (total_us < points[-1][1] or at < points[-1][0])):
            points.clear()
            self.share = None
        if total_us is None:
            return
        growth = self._ring.push(at, total_us)
        if growth is not None:
            self.share = min(100.0, growth / 1e4)


RISE_S, FALL_S = 2.0, 4.0
"""Growth has to appear both over half a second and over three. The displayed rate then rises with a
time constant of RISE_S and falls with FALL_S."""
URGENT_S, URGENT_FOR_S = 10.0, 0.5
"""A forecast that stays below URGENT_S for URGENT_FOR_S is shown as it is, without smoothing."""
FAR_S, GONE_S = 600.0, 1200.0
"""The display shows a time once it is below FAR_S, and hides it above GONE_S."""


class Countdown:
    """`tte_s` and `rate` as in `Forecast`, but smoothed for display."""

    def __init__(self) -> None:
        self.tte_s: float | None = None
        self.rate = 0.0
        self._at: float | None = None
        self._urgent_at: float | None = None

    def update(self, memory: Memory, forecast: Forecast) -> None:
        """Take a sample that the forecast has taken already."""
        at, slopes, now_s = memory.at, forecast.slopes, forecast.tte_s
        step = 0.0 if self._at is None else max(0.0, at - self._at)
        self._at = at
        if now_s is None or slopes.short is None or slopes.medium is None:
            self.tte_s, self.rate, self._urgent_at = None, 0.0, None
            return
        lasting = max(0.0, min(slopes.short, slopes.medium))
        self.rate += (lasting - self.rate) * step / (step + (RISE_S, FALL_S)[lasting < self.rate])
        if now_s >= URGENT_S:
            self._urgent_at = None
        elif self._urgent_at is None:
            self._urgent_at = at
        if self._urgent_at is not None and at - self._urgent_at >= URGENT_FOR_S:
            self.tte_s, self.rate = now_s, forecast.rate
            return
        self.tte_s = self._left_s(memory.available - forecast.defaults.reserve, forecast)

    def _left_s(self, left: float, forecast: Forecast) -> float:
        if forecast.on_course or left <= 0 or self.rate < STILL:
            return math.inf
        shown = self.tte_s is not None and math.isfinite(self.tte_s)
        seconds = left / self.rate
        return seconds if seconds < (GONE_S if shown else FAR_S) else math.inf
