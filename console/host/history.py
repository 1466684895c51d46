"""The machine over the last minutes: every figure that a panel draws as a curve, in equal spans.

A span is a cell of a curve. It keeps the mean of its values, so that a curve moves only when a span
ends: one that moved with every sample would be sent to the terminal anew each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from console.host.sample import Sample

SPAN_S = 5.0
SPANS = 360
"""Half an hour."""
RAM, SWAP, PRESSURE = "ram", "swap", "psi"
VRAM, BUSY, WATT = "vram", "busy", "watt"


class Moment(Protocol):
    """What was recorded of the machine at one moment: bytes, per cent, and by UUID of a card bytes,
    shares and watts; see console.journal.samples.Gauge."""

    @property
    def at(self) -> float: ...
    @property
    def ram(self) -> float | None: ...
    @property
    def swap(self) -> float | None: ...
    @property
    def psi(self) -> float | None: ...
    @property
    def gpu(self) -> dict[str, float]: ...
    @property
    def busy(self) -> dict[str, float]: ...
    @property
    def watt(self) -> dict[str, float]: ...


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
                self.add(VRAM, now, gpu.used_bytes, gpu.uuid)
                self.add(BUSY, now, gpu.utilisation, gpu.uuid)
                self.add(WATT, now, gpu.power_w, gpu.uuid)

    def load(self, moments: Iterable[Moment]) -> None:
        """Take in what was recorded before this console looked, in order of time. What was sampled
        since stays: it is newer."""
        since, self._series = self._series, {}
        for one in moments:
            for name, value in ((RAM, one.ram), (SWAP, one.swap), (PRESSURE, one.psi)):
                self.add(name, one.at, value)
            for name, cards in ((VRAM, one.gpu), (BUSY, one.busy), (WATT, one.watt)):
                for card, value in cards.items():
                    self.add(name, one.at, value, card)
        for key, series in since.items():
            before = self._series.setdefault(key, Series())
            for number, total, count in series._spans:
                before.add(number * SPAN_S, total / count)

    def curve(self, name: str, cells: int, card: str = "") -> list[float | None]:
        """A figure over the last `cells` spans, the newest of all last; None where unknown."""
        series = self._series.get((name, card), Series())
        return series.means(cells, self._newest)
