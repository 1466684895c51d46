"""Whether a criterion could ever decide: asked when a playbook is loaded, before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from console.playbook.threshold import Threshold, compatible
from console.playbook.verdict import Criterion

Bounds = tuple[float, float]
"""The least and the most a metric can be, in its unit."""


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

    def meet(self, other: _Range) -> _Range:
        low, low_open = max((self.low, not self.low_closed), (other.low, not other.low_closed))
        high, high_closed = min((self.high, self.high_closed), (other.high, other.high_closed))
        return _Range(low, not low_open, high, high_closed)


_EVERYTHING = (-math.inf, math.inf)
_FROM_ZERO = (0.0, math.inf)
_NEVER_NEGATIVE = {"tok/s", "s", "ratio", "count", "%"}


def _range(threshold: Threshold, unit: str) -> _Range:
    """In the metric's unit; for a relative threshold in factors."""
    value = threshold.value if threshold.relative else threshold.limit(None, unit) or 0.0
    if threshold.op == "==":
        return _Range(value, True, value, True)
    if threshold.op in (">=", ">"):
        return _Range(value, threshold.op == ">=", math.inf, True)
    return _Range(-math.inf, True, value, threshold.op == "<=")


def _possible(unit: str, threshold: Threshold, bounds: Bounds | None) -> _Range:
    """What a metric can be; nothing is known of its ratio to a baseline's."""
    if threshold.relative:
        low, high = _EVERYTHING
    else:
        low, high = bounds or (_FROM_ZERO if unit in _NEVER_NEGATIVE else _EVERYTHING)
    return _Range(low, True, high, True)


def _impossible(threshold: Threshold, unit: str, bounds: Bounds | None) -> bool:
    return _range(threshold, unit).meet(_possible(unit, threshold, bounds)).empty()


def _certain(threshold: Threshold, unit: str, bounds: Bounds | None) -> bool:
    """Met by every value the metric can take."""
    possible = _possible(unit, threshold, bounds)
    return _range(threshold, unit).meet(possible) == possible


def never_passes(
    criterion: Criterion, unit: str = "", bounds: Bounds | None = None, most: int | None = None
) -> str | None:
    """Why no figure in `unit` could be GO or could be told from NO-GO; None when one could."""
    go, no_go = criterion.go, criterion.no_go
    if most is not None and criterion.min_samples > most:
        return f"min_samples {criterion.min_samples} can never be had: there are {most} at most"
    if go is not None and _impossible(go, unit, bounds):
        return f"go {go} can never be met"
    if no_go is not None and _certain(no_go, unit, bounds):
        return f"no_go {no_go} is always met, so GO is impossible"
    # An absolute and a relative threshold can only be compared once the baseline is known.
    if go is None or no_go is None or go.relative != no_go.relative:
        return None
    if not _range(go, unit).meet(_range(no_go, unit)).empty():
        return f"go {go} and no_go {no_go} overlap: the same figure would be both"
    return None


def never_fails(criterion: Criterion, unit: str = "", bounds: Bounds | None = None) -> str | None:
    """Why no figure in `unit` could be NO-GO; None when one could."""
    go, no_go = criterion.go, criterion.no_go
    if go is not None and _certain(go, unit, bounds):
        return f"go {go} is always met, so the gate decides nothing"
    if no_go is not None and _impossible(no_go, unit, bounds):
        return f"no_go {no_go} can never be met"
    return None


def check_criterion(
    criterion: Criterion, unit: str = "", bounds: Bounds | None = None, most: int | None = None
) -> None:
    """Refuse at load time a criterion that cannot decide; `unit` and `bounds` are the metric's,
    `most` the samples it can have (None: not known).

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
