"""GO, NO-GO or HOLD from a measured figure and its thresholds; no data is never GO."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from console.benchmark.statistics import ENOUGH, interval, mean, median
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

    @property
    def thresholds(self) -> list[Threshold]:
        return [t for t in (self.go, self.no_go) if t is not None]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured: `value` and `baseline` in `unit`, from `n` valid samples.

    `reason_missing` says why the figure cannot be used (absent, stale, contaminated): it
    holds the gate even if a value is there. `void` counts the samples left out. With `samples`
    the value is their mean or median, as `headline` says; the same for the baseline's.
    `baseline_n` is None where nobody counted.
    """

    value: float | None
    unit: str
    n: int
    baseline: float | None = None
    reason_missing: str = ""
    void: int = 0
    samples: tuple[float, ...] = ()
    baseline_n: int | None = None
    baseline_samples: tuple[float, ...] = ()
    headline: str = "mean"


class _Reach(Enum):
    """How much of where a figure may lie meets a threshold."""

    ALL = 1
    SOME = 2
    NONE = 3


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

    With five samples or more it is not the figure that has to meet a threshold but its whole 95 %
    bootstrap interval, and to miss one the whole interval has to miss it: in between the samples
    do not decide, and a few more runs may. Samples that agree to the last digit make a point of
    it. Against the baseline it is the interval of the ratio, with the samples of both.
    """
    obstacle = _obstacle(criterion, evidence)
    if obstacle:
        return CriterionVerdict(Verdict.HOLD, f"{criterion.name}: {obstacle}", criterion.metric)
    verdict, why = _decide(criterion, evidence)
    value = _figure(evidence.value or 0.0, evidence.unit, criterion.thresholds[0])
    return CriterionVerdict(
        verdict, f"{criterion.name} {value}{why}{_counts(evidence)}", criterion.metric
    )


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst decides; a gate without criteria has shown nothing and is HOLD."""
    seen = set(verdicts)
    if Verdict.NO_GO in seen:
        return Verdict.NO_GO
    return Verdict.GO if seen == {Verdict.GO} else Verdict.HOLD


def _obstacle(criterion: Criterion, evidence: Evidence) -> str:
    """Why no verdict is possible, or "" when one is."""
    thresholds = criterion.thresholds
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
        if not threshold.relative:
            continue
        if threshold.limit(evidence.baseline, evidence.unit) is None:
            return f"{threshold} needs a baseline, and {_baseline(evidence)}"
        if evidence.baseline_n is not None and evidence.baseline_n < needed:
            return f"of the baseline {_samples(evidence.baseline_n)} of the {needed} needed"
    return _odd_samples(evidence, any(t.relative for t in thresholds))


def _odd_samples(evidence: Evidence, relative: bool) -> str:
    """What is wrong with samples that should explain a figure, or ""."""
    sides = [("", evidence.value, evidence.n, evidence.samples)]
    if relative:
        count = len(evidence.baseline_samples)
        known = evidence.baseline_n if evidence.baseline_n is not None else count
        sides.append(("baseline's ", evidence.baseline, known, evidence.baseline_samples))
    for whose, value, count, samples in sides:
        if not samples:
            continue
        if not all(map(math.isfinite, samples)):
            return f"one of the {whose}samples is not a number"
        middle = mean(samples) if evidence.headline == "mean" else median(samples)
        if len(samples) != count or middle is None or not _same(middle, value or 0.0):
            return f"the {whose}figure is not the {evidence.headline} of its samples"
    if relative and evidence.baseline_samples and min(evidence.baseline_samples) <= 0:
        return "a sample of the baseline is not above zero, so there is no ratio to it"
    return ""


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)


def _baseline(evidence: Evidence) -> str:
    if evidence.baseline is None:
        return "none was measured"
    return f"the one measured is {evidence.baseline:g} {evidence.unit}".rstrip()


def _decide(criterion: Criterion, evidence: Evidence) -> tuple[Verdict, str]:
    """Verdict and words for evidence that can be judged."""
    go, no_go = criterion.go, criterion.no_go
    fails = _reach(no_go, evidence) if no_go is not None else _Reach.NONE
    passes = _reach(go, evidence) if go is not None else _Reach.ALL
    if no_go is not None and fails is _Reach.ALL:
        return Verdict.NO_GO, f" is NO-GO by {_words(no_go, evidence)}"
    if no_go is not None and fails is _Reach.SOME:
        return Verdict.HOLD, _undecided(no_go, evidence)
    if go is None:
        clear = f" stays clear of NO-GO {_words(no_go, evidence)}"
        return Verdict.GO, f"{_span(no_go, evidence)}{clear}"
    if passes is _Reach.ALL:
        return Verdict.GO, f"{_span(go, evidence)} meets {_words(go, evidence)}"
    if passes is _Reach.SOME:
        return Verdict.HOLD, _undecided(go, evidence)
    missed = f"{_span(go, evidence)} misses {_words(go, evidence)}{_margin(go, evidence)}"
    if no_go is None:
        return Verdict.NO_GO, missed
    return Verdict.HOLD, f"{missed}, but is not NO-GO {_words(no_go, evidence)}: grey zone"


def _reach(threshold: Threshold, evidence: Evidence) -> _Reach:
    """The point always counts too: no resampling argues a figure away."""
    point = threshold.satisfied(evidence.value, evidence.baseline, evidence.unit)
    found = _interval(threshold, evidence)
    if found is None or found[0] == found[1]:
        return _Reach.ALL if point else _Reach.NONE
    if threshold.relative:
        ends = [Threshold(threshold.op, threshold.value).satisfied(end) for end in found]
    else:
        ends = [threshold.satisfied(end, None, evidence.unit) for end in found]
    if point and all(ends):
        return _Reach.ALL
    if point or any(ends):
        return _Reach.SOME
    limit = threshold.value if threshold.relative else threshold.limit(None, evidence.unit)
    inside = threshold.op == "==" and limit is not None and found[0] < limit < found[1]
    return _Reach.SOME if inside else _Reach.NONE


def _interval(threshold: Threshold, evidence: Evidence) -> tuple[float, float] | None:
    """Where the figure may lie, or its ratio to the baseline's for a relative threshold; None
    where too few samples tell, and the point has to do."""
    values, base = _told(evidence.samples), _told(evidence.baseline_samples)
    if not threshold.relative:
        return interval(values, evidence.headline) if values else None
    if not values and not base:
        return None
    return interval(
        values or [evidence.value or 0.0], evidence.headline, base or [evidence.baseline or 0.0]
    )


def _told(samples: Sequence[float]) -> Sequence[float]:
    return samples if len(samples) >= ENOUGH else ()


def _span(threshold: Threshold | None, evidence: Evidence) -> str:
    """` (19.9 to 20.6 tok/s)`, or "" where a point decided."""
    found = None if threshold is None else _interval(threshold, evidence)
    if threshold is None or found is None or found[0] == found[1]:
        return ""
    return f" ({_ends(found, threshold, evidence.unit)})"


def _undecided(threshold: Threshold, evidence: Evidence) -> str:
    found = _interval(threshold, evidence)
    ends = _ends(found, threshold, evidence.unit) if found is not None else ""
    return f": the samples do not decide, {ends} around {_words(threshold, evidence)}"


def _ends(found: tuple[float, float], threshold: Threshold, unit: str) -> str:
    """Both ends with as many digits as tell them apart."""
    if threshold.relative:
        unit = "x baseline"
    elif unit in ("B", "s", "ratio"):
        low, high = (_figure(end, unit, threshold) for end in found)
        if low != high:
            return f"{low} to {high}"
    digits = next((d for d in (4, 6, 9) if f"{found[0]:.{d}g}" != f"{found[1]:.{d}g}"), 12)
    return f"{found[0]:.{digits}g} to {found[1]:.{digits}g} {unit}".rstrip()


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
