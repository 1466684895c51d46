"""Paired figures, two sides in turns in one run, by their medians; and figures with no peer."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Way = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One comparison: seconds of ours and of the peer, pair by pair.

    Its bar: `max_ratio` of the medians, `max_extra_s` of the paired median.
    """

    name: str
    peer_name: str
    ours: list[float]
    peer: list[float]
    max_ratio: float = math.inf
    max_extra_s: float = math.inf

    @property
    def ratio(self) -> float:
        """Median of ours over median of the peer."""
        return statistics.median(self.ours) / statistics.median(self.peer)

    @property
    def extra_s(self) -> float:
        """Median, over the pairs, of ours minus the peer."""
        return statistics.median(o - p for o, p in zip(self.ours, self.peer, strict=True))

    @property
    def missed(self) -> bool:
        return self.ratio > self.max_ratio or self.extra_s > self.max_extra_s

    def __str__(self) -> str:
        return (
            f"{self.name}: {_span(self.ours, 1e3)} ms, {self.peer_name} "
            f"{_span(self.peer, 1e3)} ms, n {len(self.ours)}: {self.ratio:.2f} x"
            f"{_bar(self.max_ratio)}, extra {self.extra_s * 1e3:+.2f} ms"
            f"{_bar(self.max_extra_s * 1e3)}"
        )


@dataclass(frozen=True)
class Figure:
    """A figure that no peer has: samples in `unit`, the one that counts, and the most it may be.

    `of`: `median`, `worst`, `p95` or `p99` of the samples.
    """

    name: str
    unit: str
    samples: list[float]
    most: float = math.inf
    of: str = "median"

    @property
    def value(self) -> float:
        if self.of == "worst":
            return max(self.samples)
        if self.of in ("p95", "p99"):
            return percentile(self.samples, int(self.of[1:]) / 100)
        return statistics.median(self.samples)

    @property
    def missed(self) -> bool:
        return self.value > self.most

    def __str__(self) -> str:
        return (
            f"{self.name}: {_span(self.samples)} {self.unit}, n {len(self.samples)}: "
            f"{self.of} {self.value:,.4f}{_bar(self.most)}"
        )


Measured = Row | Figure


def percentile(samples: list[float], share: float) -> float:
    """The nearest rank: of sixty samples the p99 is the worst."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def in_turns(ways: Mapping[str, Way], rounds: int, *, warm_up: int = 1) -> dict[str, list[float]]:
    """Seconds of every way, `rounds` times each, in an order that favours none of them.

    Over as many rounds as there are ways (an even number) each comes once in every place and once
    after each of the others: what one leaves behind meets them all.
    """
    names = list(ways)
    count = len(names)
    zigzag = [(-(at // 2) if at % 2 == 0 else at // 2 + 1) % count for at in range(count)]
    for _ in range(warm_up):
        for name in names:
            ways[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for at in zigzag:
            name = names[(at + number) % count]
            times[name].append(ways[name]())
    return times


def _span(samples: list[float], scale: float = 1.0) -> str:
    """The median, the least and the most."""
    middle = statistics.median(samples) * scale
    digits = 3 if middle < 10 else 1
    least, most = min(samples) * scale, max(samples) * scale
    return f"{middle:,.{digits}f} [{least:,.{digits}f} … {most:,.{digits}f}]"


def _bar(most: float) -> str:
    return "" if most == math.inf else f" (bar {most:,g})"
