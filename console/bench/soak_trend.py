"""What a soak's figures do over time: drift, growth, and how they look in a line. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from console.bench.statistics import finite, interval, median

DRIFT_PART = 6
"""Drift compares the last sixth with the first: of one hour the last ten minutes."""
DRIFT_SAMPLES = 5
"""Rates in each of the two parts, at least."""
MOST_RESAMPLED = 200
"""Rates of a part, so that an interval takes no more than half a second."""
GROWTH_PART = 10
GROWTH_LOOKS = 3
ROLLING_S = 60.0
SPARK = "▁▂▃▄▅▆▇█"

Part = Sequence[tuple[float, float]]
"""(observed seconds, figure), in order."""


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
    """95 % bootstrap interval of the drift, both parts resampled; None where there is no drift.

    Requests are taken as independent of each other. A machine that is busy for half a minute
    makes neighbours alike: in a soak of a minute or two the interval is too narrow for that.
    """
    point, _ = drift(rates, observed_s)
    first, last = (_thinned(part) for part in ends(rates, observed_s))
    ratio = interval(last, "median", first) if point is not None else None
    if point is None or ratio is None:
        return None
    return min(point, 1 - ratio[1]), max(point, 1 - ratio[0])


def _thinned(values: list[float]) -> list[float]:
    """Every so many of them: fewer samples make an interval wider, never narrower."""
    return values[:: -(-len(values) // MOST_RESAMPLED)] if values else values


def growth(seen: Part, observed_s: float) -> float | None:
    """Bytes grown over the soak: the last tenth's median less the first tenth's, for all of it.

    Medians of parts and not a slope through all points: a slope hides what came late and at once
    (a buffer taken in the last quarter), and one odd look moves no median. The two parts lie a
    little less than the whole soak apart, and their difference is scaled up by that, so that a
    steady leak is told in full. None below three looks in each part.
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
    """Median tok/s of the minute that ends at `t`; None where no request ended in it."""
    low = bisect_right(rates, (t - ROLLING_S, math.inf))
    high = bisect_right(rates, (t, math.inf))
    return median([rate for _, rate in rates[low:high]])


def spark(rates: Part, t: float, width: int = 24) -> str:
    """The soak so far in `width` characters of 8 levels from 0 to the fastest part: medians, and
    a blank where nothing was answered. At most one character for each five seconds."""
    width = max(1, min(width, int(t / 5)))
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
