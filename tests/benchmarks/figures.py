"""Paired figures, two sides in turns in one run, by their medians; and figures with no peer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Way = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a row has to keep: `most_ratio` of the medians, `most_extra_s` of the paired median."""

    most_ratio: float | None = None
    most_extra_s: float | None = None

    def __str__(self) -> str:
        words = []
        if self.most_ratio is not None:
            words.append(f"<= {self.most_ratio:g} x")
        if self.most_extra_s is not None:
            words.append(f"<= +{self.most_extra_s * 1e3:g} ms")
        return " and ".join(words) or "-"


NO_BAR = Bar()


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: seconds of ours and of the peer, pair by pair."""

    name: str
    peer_name: str
    ours: list[float]
    peer: list[float]
    bar: Bar = NO_BAR

    @property
    def ratio(self) -> float:
        """Median of ours over median of the peer."""
        return statistics.median(self.ours) / statistics.median(self.peer)

    @property
    def extra_s(self) -> float:
        """Median, over the pairs, of ours minus the peer."""
        return statistics.median(o - p for o, p in zip(self.ours, self.peer, strict=True))

    def missed(self) -> list[str]:
        """The bars this row misses, in words; empty when it keeps them."""
        found = []
        ratio, extra = self.bar.most_ratio, self.bar.most_extra_s
        if ratio is not None and self.ratio > ratio:
            found.append(f"{self.name}: {self.ratio:.2f} x {self.peer_name}, bar {ratio:g} x")
        if extra is not None and self.extra_s > extra:
            found.append(
                f"{self.name}: {self.extra_s * 1e3:+.0f} ms to {self.peer_name}, "
                f"bar +{extra * 1e3:g} ms"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Every figure, the single pairs too; seconds."""
        return {
            "name": self.name,
            "peer_name": self.peer_name,
            "pairs": len(self.ours),
            "ours": {**_summary(self.ours), "samples": _rounded(self.ours)},
            "peer": {**_summary(self.peer), "samples": _rounded(self.peer)},
            "ratio": round(self.ratio, 4),
            "median_extra_s": round(self.extra_s, 6),
            "bar": {"most_ratio": self.bar.most_ratio, "most_extra_s": self.bar.most_extra_s},
            "missed": self.missed(),
        }


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that no peer has: samples in `unit`, the one that counts, and the most it may be.

    `of`: `median`, `worst`, `p95` or `p99` of the samples.
    """

    name: str
    unit: str
    samples: list[float]
    most: float | None = None
    of: str = "median"

    @property
    def value(self) -> float:
        if self.of == "worst":
            return max(self.samples)
        if self.of in ("p95", "p99"):
            return percentile(self.samples, int(self.of[1:]) / 100)
        return statistics.median(self.samples)

    def missed(self) -> list[str]:
        """The bar in words when it is missed; empty when it is kept."""
        if self.most is None or self.value <= self.most:
            return []
        return [f"{self.name}: {self.of} {self.value:.4g} {self.unit}, bar {self.most:g}"]

    def to_json(self) -> dict[str, Any]:
        """Every sample too, in `unit`."""
        return {
            "name": self.name,
            "unit": self.unit,
            "of": self.of,
            "value": round(self.value, 4),
            "median": round(statistics.median(self.samples), 4),
            "samples": [round(one, 4) for one in self.samples],
            "bar": {"most": self.most},
            "missed": self.missed(),
        }


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


def table(rows: Sequence[Measured]) -> str:
    """Comparisons, then figures without a peer, for a person."""
    pairs = [_cells(row) for row in rows if isinstance(row, Row)]
    alone = [_figure_cells(row) for row in rows if isinstance(row, Figure)]
    found = []
    if pairs:
        head = ("what", "peer", "pairs", "ours ms", "peer ms", "ratio", "extra ms", "bar", "")
        note = "ms: median [least … most]; extra: median of the paired differences"
        found.append(f"{_laid_out(head, pairs, left=(0, 1, 7))}\n{note}")
    if alone:
        titles = ("what", "n", "unit", "median [least … most]", "counts", "bar", "")
        found.append(_laid_out(titles, alone, left=(0, 2, 5)))
    return "\n\n".join(found)


def _laid_out(head: tuple[str, ...], body: list[tuple[str, ...]], left: tuple[int, ...]) -> str:
    """Columns under a head; those in `left` begin at the left."""
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *body]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths if width))
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    verdict = "" if row.bar == NO_BAR else ("MISSED" if row.missed() else "kept")
    return (
        row.name,
        row.peer_name,
        str(len(row.ours)),
        _span(row.ours),
        _span(row.peer),
        f"{row.ratio:.2f}",
        f"{row.extra_s * 1e3:+.2f}",
        str(row.bar),
        verdict,
    )


def _figure_cells(row: Figure) -> tuple[str, ...]:
    least, middle, most = min(row.samples), statistics.median(row.samples), max(row.samples)
    verdict = "" if row.most is None else ("MISSED" if row.missed() else "kept")
    return (
        row.name,
        str(len(row.samples)),
        row.unit,
        f"{middle:.4g} [{least:.4g} … {most:.4g}]",
        f"{row.of} {row.value:.4g}",
        "-" if row.most is None else f"<= {row.most:g}",
        verdict,
    )


def _span(seconds: list[float]) -> str:
    middle = statistics.median(seconds) * 1e3
    digits = 3 if middle < 10 else 1
    least, most = min(seconds) * 1e3, max(seconds) * 1e3
    return f"{middle:.{digits}f} [{least:.{digits}f} … {most:.{digits}f}]"


def _summary(seconds: list[float]) -> dict[str, float]:
    return {
        "median_s": round(statistics.median(seconds), 7),
        "min_s": round(min(seconds), 7),
        "max_s": round(max(seconds), 7),
    }


def _rounded(seconds: list[float]) -> list[float]:
    return [round(one, 7) for one in seconds]
