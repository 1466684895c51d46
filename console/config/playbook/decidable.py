"""Whether a criterion could ever decide: checked when a playbook is loaded, before anything
runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from console.config.playbook.threshold import NEVER_NEGATIVE, Threshold, compatible, signed
from console.config.playbook.verdict import Criterion

Bounds = tuple[float, float]
"""The minimum and maximum that a metric can have, in its unit."""


@dataclass(frozen=True, slots=True)
class _Range:
    """The values that meet a threshold, as an interval; closed ends belong to it."""

    low: float
    low_closed: bool
    high: float
    high_closed: bool

    def empty(self) -> bool:
        closed = self.low_closed and self.high_closed
        return self.low > self.high or (self.low == self.high and not closed)

    def whole(self) -> _Range:
        """The whole numbers in it, for metrics that count."""
        low, high = self.low, self.high
        if math.isfinite(low):
            low = math.ceil(low) if self.low_closed else math.floor(low) + 1
        if math.isfinite(high):
            high = math.floor(high) if self.high_closed else math.ceil(high) - 1
        return _Range(low, True, high, True)

    def meet(self, other: _Range) -> _Range:
        low, low_open = max((self.low, not self.low_closed), (other.low, not other.low_closed))
        high, high_closed = min((self.high, self.high_closed), (other.high, other.high_closed))
        return _Range(low, not low_open, high, high_closed)


_EVERYTHING = (-math.inf, math.inf)
_FROM_ZERO = (0.0, math.inf)


def _range(threshold: Threshold, unit: str) -> _Range:
    """The range in the metric's unit; as factors for a relative threshold."""
    value = threshold.value if threshold.relative else threshold.limit(None, unit) or 0.0
    if threshold.op == "==":
        value_range = _Range(value, True, value, True)
    elif threshold.op in (">=", ">"):
        value_range = _Range(value, threshold.op == ">=", math.inf, True)
    else:
        value_range = _Range(-math.inf, True, value, threshold.op == "<=")
    return value_range.whole() if unit == "count" and not threshold.relative else value_range


def _possible(metric: str, unit: str, relative: bool, bounds: Bounds | None) -> _Range:
    """The range that a metric can have; unlimited for its ratio to a baseline's."""
    if relative:
        low, high = _EVERYTHING
    else:
        amount = unit in NEVER_NEGATIVE and not signed(metric)
        low, high = bounds or (_FROM_ZERO if amount else _EVERYTHING)
    return _Range(low, True, high, True)


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    unit: str
    bounds: Bounds | None

    def impossible(self, threshold: Threshold) -> bool:
        possible = _possible(self.name, self.unit, threshold.relative, self.bounds)
        return _range(threshold, self.unit).meet(possible).empty()

    def certain(self, threshold: Threshold) -> bool:
        """Whether every value that the metric can take meets it."""
        possible = _possible(self.name, self.unit, threshold.relative, self.bounds)
        return _range(threshold, self.unit).meet(possible) == possible

    def go_range(self, criterion: Criterion, relative: bool) -> _Range:
        """The values left for GO by the thresholds of one kind; excluded points are ignored."""
        value_range = _possible(self.name, self.unit, relative, self.bounds)
        go, no_go = criterion.go, criterion.no_go
        if go is not None and go.relative == relative:
            value_range = value_range.meet(_range(go, self.unit))
        if no_go is not None and no_go.relative == relative and no_go.op != "==":
            turned = Threshold(_TURNED[no_go.op], no_go.value, no_go.unit, relative)
            value_range = value_range.meet(_range(turned, self.unit))
        return value_range


_TURNED = {">=": "<", ">": "<=", "<=": ">", "<": ">="}


def never_passes(
    criterion: Criterion, unit: str = "", bounds: Bounds | None = None, most: int | None = None
) -> str | None:
    """Why no figure in `unit` could be GO or differ from NO-GO; None if one could."""
    go, no_go, metric = criterion.go, criterion.no_go, _Metric(criterion.metric, unit, bounds)
    if most is not None and criterion.min_samples > most:
        return f"min_samples {criterion.min_samples} can never be reached: there are {most} at most"
    if go is not None and metric.impossible(go):
        return f"go {go} can never be met"
    if no_go is not None and metric.certain(no_go):
        return f"no_go {no_go} is always met, so GO is impossible"
    # An absolute and a relative threshold can only be compared once the baseline is known.
    if go is None or no_go is None or go.relative != no_go.relative:
        return None
    if not _range(go, unit).meet(_range(no_go, unit)).empty():
        return f"go {go} and no_go {no_go} overlap: the same figure would be both"
    return None


def never_fails(criterion: Criterion, unit: str = "", bounds: Bounds | None = None) -> str | None:
    """Why no figure in `unit` could be NO-GO; None if one could."""
    go, no_go, metric = criterion.go, criterion.no_go, _Metric(criterion.metric, unit, bounds)
    if go is not None and metric.certain(go):
        return f"go {go} is always met, so the gate decides nothing"
    if no_go is not None and metric.impossible(no_go):
        return f"no_go {no_go} can never be met"
    return None


def never_both(
    first: Criterion, other: Criterion, unit: str = "", bounds: Bounds | None = None
) -> str | None:
    """Why no figure could be GO for two criteria of one gate; None if one could.

    Checking pairs is enough: intervals that overlap pairwise have a common point.
    """
    if (first.metric, first.of) != (other.metric, other.of):
        return None
    metric = _Metric(first.metric, unit, bounds)
    for relative in (False, True):
        ranges = [metric.go_range(criterion, relative) for criterion in (first, other)]
        if (
            not any(value_range.empty() for value_range in ranges)
            and ranges[0].meet(ranges[1]).empty()
        ):
            conditions = " and ".join(_conditions(criterion) for criterion in (first, other))
            return f"no figure of {first.name} meets both {conditions}, so GO is impossible"
    return None


def _conditions(criterion: Criterion) -> str:
    sides = (("go", criterion.go), ("no_go", criterion.no_go))
    return ", ".join(f"{side} {threshold}" for side, threshold in sides if threshold is not None)


def check_criterion(
    criterion: Criterion, unit: str = "", bounds: Bounds | None = None, most: int | None = None
) -> None:
    """Refuse at load time a criterion that cannot decide; `unit` and `bounds` are the metric's,
    `most` is its maximum number of samples (None: unknown).

    Raises ValueError in words for a file's author.
    """
    if not criterion.thresholds:
        raise ValueError("neither go nor no_go is given; expected at least one of them")
    if criterion.min_samples < 1:
        raise ValueError("min_samples is below 1; expected a whole number from 1")
    for threshold in criterion.thresholds:
        wrong = compatible(threshold, unit)
        if wrong:
            raise ValueError(wrong)
    wrong = never_passes(criterion, unit, bounds, most) or never_fails(criterion, unit, bounds)
    if wrong:
        raise ValueError(wrong)
