"""GO, NO-GO or HOLD from a measured figure and its thresholds; no data is never GO."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from console.playbook.threshold import Threshold, compatible
from console.text import one_line
from console.units import format_number


class Verdict(StrEnum):
    """The three answers of a gate; worst first: NO-GO, HOLD, GO."""

    GO = "GO"
    NO_GO = "NO-GO"
    HOLD = "HOLD"


_DECIMAL = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a gate; `of` names the aggregate, as in the sum over all GPUs."""

    metric: str
    go: Threshold | None = None
    no_go: Threshold | None = None
    min_samples: int = 1
    of: str | None = None

    @property
    def name(self) -> str:
        """`gpu.peak_used (sum)`."""
        return f"{self.metric} ({self.of})" if self.of else self.metric


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured: `value` and `baseline` in `unit`, from `n` valid samples.

    `reason_missing` says why the figure cannot be used (absent, stale, contaminated): it
    holds the gate even if a value is there. `void` counts the samples left out.
    """

    value: float | None
    unit: str
    n: int
    baseline: float | None = None
    reason_missing: str = ""
    void: int = 0


@dataclass(frozen=True, slots=True)
class CriterionVerdict:
    """The answer for one criterion, and why in an operator's words."""

    verdict: Verdict
    why: str
    metric: str = ""


def judge(criterion: Criterion, evidence: Evidence) -> CriterionVerdict:
    """The verdict of one criterion.

    Only `go`: NO-GO unless it is met. Only `no_go`: GO unless it is met. Both: HOLD between
    them, and NO-GO where both are met. Whatever cannot be decided is HOLD.
    """
    obstacle = _obstacle(criterion, evidence)
    if obstacle:
        return CriterionVerdict(Verdict.HOLD, f"{criterion.name}: {obstacle}", criterion.metric)
    verdict, why = _decide(criterion, evidence)
    value = _figure(evidence.value or 0.0, evidence.unit, _thresholds(criterion)[0])
    return CriterionVerdict(
        verdict, f"{criterion.name} {value} {why}{_counts(evidence)}", criterion.metric
    )


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst decides; a gate without criteria has shown nothing and is HOLD."""
    seen = set(verdicts)
    if Verdict.NO_GO in seen:
        return Verdict.NO_GO
    return Verdict.GO if seen == {Verdict.GO} else Verdict.HOLD


def _thresholds(criterion: Criterion) -> list[Threshold]:
    return [t for t in (criterion.go, criterion.no_go) if t is not None]


def _obstacle(criterion: Criterion, evidence: Evidence) -> str:
    """Why no verdict is possible, or "" when one is."""
    thresholds = _thresholds(criterion)
    if not thresholds:
        return "has neither go nor no_go"
    if evidence.reason_missing:
        return f"no usable figure, {one_line(evidence.reason_missing)}"
    if evidence.value is None:
        return f"no figure was measured{_counts(evidence)}"
    if not math.isfinite(evidence.value):
        return f"the figure is {evidence.value}, not a number to compare"
    needed = max(1, criterion.min_samples)
    if evidence.n < needed:
        return f"{_samples(evidence.n)} of the {needed} needed{_void(evidence)}"
    for threshold in thresholds:
        wrong = compatible(threshold, evidence.unit)
        if wrong:
            return wrong
        if threshold.limit(evidence.baseline, evidence.unit) is None:
            return f"{threshold} needs a baseline, and {_baseline(evidence)}"
    return ""


def _baseline(evidence: Evidence) -> str:
    if evidence.baseline is None:
        return "none was measured"
    return f"the one measured is {evidence.baseline:g} {evidence.unit}".rstrip()


def _decide(criterion: Criterion, evidence: Evidence) -> tuple[Verdict, str]:
    """Verdict and words for evidence that can be judged."""
    go, no_go = criterion.go, criterion.no_go
    fails = no_go is not None and _met(no_go, evidence)
    passes = go is not None and _met(go, evidence)
    if no_go is not None and fails:
        return Verdict.NO_GO, f"is NO-GO by {_words(no_go, evidence)}"
    if go is None:
        return Verdict.GO, f"stays clear of NO-GO {_words(no_go, evidence)}"
    if passes:
        return Verdict.GO, f"meets {_words(go, evidence)}"
    missed = f"misses {_words(go, evidence)}{_margin(go, evidence)}"
    if no_go is None:
        return Verdict.NO_GO, missed
    return Verdict.HOLD, f"{missed}, but is not NO-GO {_words(no_go, evidence)}: grey zone"


def _met(threshold: Threshold, evidence: Evidence) -> bool:
    return threshold.satisfied(evidence.value, evidence.baseline, evidence.unit)


def _words(threshold: Threshold | None, evidence: Evidence) -> str:
    """The threshold with its unit; a relative one with the limit it came to."""
    if threshold is None:
        return ""
    if threshold.relative:
        limit = threshold.limit(evidence.baseline, evidence.unit)
        baseline = _figure(evidence.baseline or 0.0, evidence.unit, threshold)
        reached = _figure(limit or 0.0, evidence.unit, threshold)
        return f"{threshold} ({reached}, baseline {baseline})"
    return (
        f"{threshold} {evidence.unit}" if not threshold.unit and evidence.unit else f"{threshold}"
    )


def _margin(threshold: Threshold, evidence: Evidence) -> str:
    """` by 1.3 tok/s`, since two figures that differ can look the same when rounded."""
    limit = threshold.limit(evidence.baseline, evidence.unit)
    if limit is None or evidence.value is None or limit == evidence.value:
        return ""
    return f" by {_figure(abs(limit - evidence.value), evidence.unit, threshold)}"


def _figure(value: float, unit: str, threshold: Threshold) -> str:
    """The figure in the unit the threshold was written in, where they could differ."""
    decimal = re.search(r"[0-9]\s*([kKMGT])B", threshold.written)
    if unit == "B" and decimal:
        return f"{value / _DECIMAL[decimal[1].lower()]:.4g} {decimal[1]}B"
    if unit == "s" and abs(value) < 1:
        return f"{value * 1000:.4g} ms"
    return format_number(value, unit)


def _samples(n: int) -> str:
    return f"{n} valid sample{'' if n == 1 else 's'}"


def _void(evidence: Evidence) -> str:
    return f", {evidence.void} void left out" if evidence.void else ""


def _counts(evidence: Evidence) -> str:
    return f" ({_samples(evidence.n)}{_void(evidence)})"


# --- load time ------------------------------------------------------------------------------


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


_EVERYTHING = _Range(-math.inf, True, math.inf, True)
_FROM_ZERO = _Range(0.0, True, math.inf, True)
_NEVER_NEGATIVE = {"tok/s", "s", "ratio", "count", "%"}


def _range(threshold: Threshold) -> _Range:
    value = threshold.value
    if threshold.op == "==":
        return _Range(value, True, value, True)
    if threshold.op in (">=", ">"):
        return _Range(value, threshold.op == ">=", math.inf, True)
    return _Range(-math.inf, True, value, threshold.op == "<=")


def _possible(unit: str, threshold: Threshold) -> _Range:
    return _FROM_ZERO if unit in _NEVER_NEGATIVE and not threshold.relative else _EVERYTHING


def _impossible(threshold: Threshold, unit: str) -> bool:
    return _range(threshold).meet(_possible(unit, threshold)).empty()


def _certain(threshold: Threshold, unit: str) -> bool:
    """Met by every value the metric can take."""
    possible = _possible(unit, threshold)
    return _range(threshold).meet(possible) == possible


def never_passes(criterion: Criterion, unit: str = "") -> str | None:
    """Why no figure in `unit` could be GO or could be told from NO-GO; None when one could."""
    go, no_go = criterion.go, criterion.no_go
    if go is not None and _impossible(go, unit):
        return f"go {go} can never be met"
    if no_go is not None and _certain(no_go, unit):
        return f"no_go {no_go} is always met, so GO is impossible"
    # An absolute and a relative threshold can only be compared once the baseline is known.
    if go is None or no_go is None or go.relative != no_go.relative:
        return None
    if not _range(go).meet(_range(no_go)).empty():
        return f"go {go} and no_go {no_go} overlap: the same figure would be both"
    return None


def never_fails(criterion: Criterion, unit: str = "") -> str | None:
    """Why no figure in `unit` could be NO-GO; None when one could."""
    go, no_go = criterion.go, criterion.no_go
    if go is not None and _certain(go, unit):
        return f"go {go} is always met, so the gate decides nothing"
    if no_go is not None and _impossible(no_go, unit):
        return f"no_go {no_go} can never be met"
    return None


def check_criterion(criterion: Criterion, unit: str = "") -> None:
    """Refuse at load time a criterion that cannot decide; `unit` is the metric's.

    Raises ValueError in words for a file's author.
    """
    thresholds = _thresholds(criterion)
    if not thresholds:
        raise ValueError("neither go nor no_go is given; expected at least one of them")
    if criterion.min_samples < 1:
        raise ValueError("min_samples is below 1; expected a whole number from 1")
    for threshold in thresholds:
        wrong = compatible(threshold, unit)
        if wrong:
            raise ValueError(wrong)
    wrong = never_passes(criterion, unit) or never_fails(criterion, unit)
    if wrong:
        raise ValueError(wrong)
