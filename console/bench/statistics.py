"""Plain statistics over a few samples; nothing to compute is None, never NaN."""

from __future__ import annotations

import math
import random
import statistics as stats
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from console.bench.metrics import METRICS, PER_SAMPLE, Sample

ENOUGH = 5
"""Fewer samples say too little about how a figure would come out again."""
RESAMPLES = 2000
OUTSIDE = 0.025
"""Of the resampled figures, the share left out at each end: a 95 % interval."""
SEED = 1979


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


@dataclass(frozen=True, slots=True)
class Summary:
    """All metrics by name; `voids` counts the runs left out, by reason."""

    metrics: dict[str, MetricSummary]
    valid: int
    void: int
    voids: dict[str, int]


def finite(values: Iterable[float | None]) -> list[float]:
    """The numbers among them: None, NaN and Inf are left out."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def mean(values: Sequence[float]) -> float | None:
    """Never outside the values, where rounding would carry that of equal ones."""
    found = _sure(stats.fmean, values) if values else None
    return None if found is None else min(max(found, min(values)), max(values))


def median(values: Sequence[float]) -> float | None:
    return _sure(stats.median, values) if values else None


def std(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n − 1), as the seeds' `stdev`; None below two values."""
    return _sure(stats.stdev, values) if len(values) > 1 else None


def cv(values: Sequence[float]) -> float | None:
    """Coefficient of variation, std / mean; None where it means nothing."""
    middle, spread = mean(values), std(values)
    if not middle or spread is None or middle < 0:
        return None
    return spread / middle if math.isfinite(spread / middle) else None


def interval(
    values: Sequence[float], headline: str, against: Sequence[float] | None = None
) -> tuple[float, float] | None:
    """95 % percentile bootstrap interval of the values' mean or median (`headline`), or of the
    ratio of that to the same of `against`; seeded, so the same samples always give the same.

    Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13. A set of fewer than ENOUGH
    values stands as its point. None where there is no value, or a ratio to zero or less. With
    few samples the interval is somewhat too narrow: it tells noise from a margin, no more.
    """
    chance = random.Random(SEED)
    found = _resampled(values, headline, chance)
    if against is not None:
        below = _resampled(against, headline, chance)
        if not below or min(below) <= 0:
            return None
        found = [a / b for a, b in zip(found, below, strict=False)]
    if not found or not all(map(math.isfinite, found)):
        return None
    found.sort()
    out = int(len(found) * OUTSIDE)
    return found[out], found[-1 - out]


def _resampled(values: Sequence[float], headline: str, chance: random.Random) -> list[float]:
    compute = mean if headline == "mean" else median
    point = compute(values)
    if point is None:
        return []
    if len(values) < ENOUGH or min(values) == max(values):
        return [point] * RESAMPLES
    again = (compute(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return [one for one in again if one is not None]


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


def summarise(samples: Sequence[Sample]) -> Summary:
    """Every metric over the runs that are not void; errors count against all runs."""
    valid = [sample for sample in samples if not sample.void]
    metrics = {
        name: describe(name, [getattr(sample, name) for sample in valid]) for name in PER_SAMPLE
    }
    metrics["error_rate"] = describe("error_rate", [float(bool(s.error)) for s in samples])
    count = float(len(valid))
    metrics["runs"] = MetricSummary(count, "mean", METRICS["runs"].unit, len(valid), mean=count)
    voids: dict[str, int] = {}
    for sample in samples:
        if sample.void:
            voids[sample.void] = voids.get(sample.void, 0) + 1
    return Summary(metrics, len(valid), len(samples) - len(valid), voids)
