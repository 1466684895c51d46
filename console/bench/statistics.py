"""Statistics of a benchmark's samples, and of a soak's figures over time. Pure.

What cannot be computed is None, never NaN.
"""

from __future__ import annotations

import math
import random
import statistics as stats
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from console.bench.metrics import DRIFT_PART, DRIFT_SAMPLES, METRICS, PER_SAMPLE
from console.bench.sample import Sample

ENOUGH = 5
"""Fewer samples say too little about how a repeated figure would vary."""
RESAMPLES = 2000
OUTSIDE = 0.025
"""Share of the resampled figures left out at each end: a 95 % interval."""
SEED = 1979
NORMAL = 1.96
"""Standard errors on either side of a mean: a 95 % interval."""

MAX_RESAMPLED = 200
"""Most rates per part, so that an interval takes at most half a second."""
GROWTH_PART = 10
GROWTH_LOOKS = 3
ROLLING_S = 60.0
SPARK = "▁▂▃▄▅▆▇█"

Part = Sequence[tuple[float, float]]
"""(observed seconds, figure), in order."""


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over the valid runs, in `unit`; `value` is the statistic that `headline` names."""

    value: float | None
    headline: str
    unit: str
    n: int
    mean: float | None = None
    std: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    cv: float | None = None
    samples: list[float] = field(default_factory=list)
    estimated: bool = False
    """Derived from other figures by this console, because the server does not report it."""
    why: str = ""
    """Why there is no value; "" where there is one, or nobody knows."""


def finite(values: Iterable[float | None]) -> list[float]:
    """The numbers among them: None, NaN and Inf are left out."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def mean(values: Sequence[float]) -> float | None:
    """The mean, clamped to the values' range against rounding."""
    average = _sure(stats.fmean, values) if values else None
    return None if average is None else min(max(average, min(values)), max(values))


def median(values: Sequence[float]) -> float | None:
    return _sure(stats.median, values) if values else None


def std(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n − 1), as in the seeds' `stdev`; None below two values."""
    return _sure(stats.stdev, values) if len(values) > 1 else None


def cv(values: Sequence[float]) -> float | None:
    """Coefficient of variation, std / mean; None if it is meaningless."""
    middle, spread = mean(values), std(values)
    if not middle or spread is None or middle < 0:
        return None
    return spread / middle if math.isfinite(spread / middle) else None


def interval(
    values: Sequence[float], headline: str, against: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """95 % percentile bootstrap interval of the values' mean or median (`headline`), or of its
    ratio to that of `against`; seeded, so the same samples always give the same.

    Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13. A set of fewer than ENOUGH
    values counts as a point. None without a value, or for a ratio to zero or less. With few samples
    the interval is somewhat too narrow: it tells noise from a margin, no more.
    """
    chance = random.Random(SEED)
    estimates = _resampled(values, headline, chance)
    if against is not None:
        below = _resampled(against, headline, chance)
        if not below or min(below) <= 0:
            return None
        estimates = [a / b for a, b in zip(estimates, below, strict=False)]
    if not estimates or not all(map(math.isfinite, estimates)):
        return None
    estimates.sort()
    out = int(len(estimates) * OUTSIDE)
    return estimates[out], estimates[-1 - out]


def wilson(hits: float, count: int) -> tuple[float, float]:
    """95 % interval of a share, `hits` of `count` (1 or more), after Wilson (1927): one that has
    only hits is no point."""
    share, spread = hits / count, NORMAL**2 / count
    middle = (share + spread / 2) / (1 + spread)
    half = NORMAL / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / count / 4)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _resampled(values: Sequence[float], headline: str, chance: random.Random) -> list[float]:
    compute = mean if headline == "mean" else median
    point = compute(values)
    if point is None:
        return []
    if len(values) < ENOUGH or min(values) == max(values):
        return [point] * RESAMPLES
    again = (compute(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return [estimate for estimate in again if estimate is not None]


def _sure(compute: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    """A finite result, or None where huge values overflow."""
    try:
        value = compute(values)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def describe(name: str, values: Iterable[float | None]) -> MetricSummary:
    """Statistics of one metric of the table METRICS. Raises KeyError for another name."""
    metric, kept = METRICS[name], finite(values)
    middle, half = mean(kept), median(kept)
    return MetricSummary(
        value=middle if metric.headline == "mean" else half,
        headline=metric.headline,
        unit=metric.unit,
        n=len(kept),
        mean=middle,
        std=std(kept),
        median=half,
        min=min(kept, default=None),
        max=max(kept, default=None),
        cv=cv(kept),
        samples=kept,
    )


def summarise(samples: Sequence[Sample]) -> dict[str, MetricSummary]:
    """Every metric by name, over the runs that are not void; errors count against all runs."""
    valid = [sample for sample in samples if not sample.void]
    metrics = {
        name: describe(name, [getattr(sample, name) for sample in valid]) for name in PER_SAMPLE
    }
    metrics["error_rate"] = describe("error_rate", [float(bool(s.error)) for s in samples])
    count = float(len(valid))
    metrics["runs"] = MetricSummary(count, "mean", METRICS["runs"].unit, len(valid), mean=count)
    return metrics


def drift(rates: Part, observed_s: float) -> tuple[float | None, int]:
    """How much slower the last sixth is than the first, by medians, and the samples behind it.

    0.05 is 5 % slower, a negative ratio faster. None with fewer than 5 rates in either part.
    """
    first, last = ends(rates, observed_s)
    before, after = median(first), median(last)
    if min(len(first), len(last)) < DRIFT_SAMPLES or not before or after is None:
        return None, 0
    return 1 - after / before, len(first) + len(last)


def ends(rates: Part, observed_s: float) -> tuple[list[float], list[float]]:
    """The rates of the first sixth of a soak and of the last."""
    part = observed_s / DRIFT_PART
    first = [rate for t, rate in rates if t <= part]
    return first, [rate for t, rate in rates if t > observed_s - part]


def drift_interval(rates: Part, observed_s: float) -> tuple[float, float] | None:
    """95 % bootstrap interval of the drift, both parts resampled; None without a drift.

    Requests are taken as independent of each other. A machine that is busy for half a minute makes
    neighbours alike: in a soak of a minute or two the interval is too narrow for that.
    """
    point, _ = drift(rates, observed_s)
    first, last = (_thinned(part) for part in ends(rates, observed_s))
    ratio = interval(last, "median", first) if point is not None else None
    if point is None or ratio is None:
        return None
    return min(point, 1 - ratio[1]), max(point, 1 - ratio[0])


def _thinned(values: list[float]) -> list[float]:
    """Every n-th of them: fewer samples make an interval wider, never narrower."""
    return values[:: -(-len(values) // MAX_RESAMPLED)] if values else values


def growth(seen: Part, observed_s: float) -> float | None:
    """Bytes grown over the whole soak: the last tenth's median less the first tenth's, scaled up.

    It uses medians instead of a slope through all points, which hides late sudden growth (a buffer
    taken in the last quarter); and one odd look moves no median. The parts lie a little less than
    the whole soak apart, hence the scaling, which reports a steady leak in full. None below three
    looks in each part.
    """
    count = max(GROWTH_LOOKS, len(seen) // GROWTH_PART)
    if len(seen) < 2 * count:
        return None
    first, last = seen[:count], seen[-count:]
    apart = _middle(t for t, _ in last) - _middle(t for t, _ in first)
    if apart <= 0:
        return None
    grown = _middle(size for _, size in last) - _middle(size for _, size in first)
    return grown * max(1.0, observed_s / apart)


def _middle(values: Iterable[float]) -> float:
    return median(list(values)) or 0.0


def rolling(rates: Part, t: float) -> float | None:
    """Median tok/s of the minute that ends at `t`; None if no request ended in it."""
    low = bisect_right(rates, (t - ROLLING_S, math.inf))
    high = bisect_right(rates, (t, math.inf))
    return median([rate for _, rate in rates[low:high]])


def spark(rates: Part, t: float) -> str:
    """The soak so far in 24 characters of 8 levels from 0 to the fastest part: medians, and
    a blank where nothing was answered. At most one character for each five seconds."""
    width = max(1, min(24, int(t / 5)))
    edges = [t * number / width for number in range(width + 1)]
    places = [bisect_right(rates, (edge, math.inf)) for edge in edges]
    parts = [
        median([rate for _, rate in rates[0 if not n else places[n] : places[n + 1]]])
        for n in range(width)
    ]
    most = max(finite(parts), default=0.0)
    if most <= 0:
        return " " * width
    top = len(SPARK) - 1
    return "".join(" " if p is None else SPARK[min(top, int(p / most * top + 0.5))] for p in parts)
