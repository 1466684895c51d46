"""GO, NO-GO or HOLD from a measured figure and its thresholds; no data is never GO."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal

from console.bench.statistics import ENOUGH, interval, mean, median
from console.common.text import one_line
from console.common.units import plural
from console.config.playbook.threshold import (
    COUNTED,
    MEASURED,
    Threshold,
    compatible,
    format_figure,
    impossible,
    noun,
)


class Verdict(StrEnum):
    """The three answers of a gate; worst first: NO-GO, HOLD, GO."""

    GO = "GO"
    NO_GO = "NO-GO"
    HOLD = "HOLD"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One line of a gate; `of` names the aggregate, as in the sum over all GPUs.

    `min_requests`: needed of a soak, for a figure sampled by looking at the server.
    """

    metric: str
    go: Threshold | None = None
    no_go: Threshold | None = None
    min_samples: int = 1
    of: str | None = None
    min_requests: int = 0

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

    `reason_missing` says why the figure cannot be used (absent, stale, contaminated): it holds the
    gate even if a value is there. `void` counts the samples left out. With `samples` the value is
    their mean or median, as `headline` says; the same for the baseline's. `baseline_n` is None if
    nobody counted. `between`: the 95 % interval of the figure, if the program that measured it
    worked one out. `requests`: requests that a soak sent. `estimated`: the figure was derived from
    others, because the server does not report it.
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
    baseline_void: int = 0
    between: tuple[float, float] | None = None
    requests: int | None = None
    estimated: bool = False


Lacks = Literal["", "own", "baseline"]


class _Reach(Enum):
    """How much of a figure's interval meets a threshold."""

    ALL = 1
    SOME = 2
    NONE = 3


@dataclass(frozen=True, slots=True)
class CriterionVerdict:
    """The answer for one criterion, and why in an operator's words. `lacks`: whose samples are too
    few, so that measuring it again may decide."""

    verdict: Verdict
    why: str
    metric: str = ""
    lacks: Lacks = ""


def judge(criterion: Criterion, evidence: Evidence) -> CriterionVerdict:
    """The verdict of one criterion.

    Only `go`: NO-GO unless it is met. Only `no_go`: GO unless it is met. Both: HOLD between them,
    and NO-GO if both are met. Whatever cannot be decided is HOLD.

    With five samples or more, a threshold is met only if the whole 95 % bootstrap interval meets
    it, and missed only if the whole interval misses it: in between, the samples do not decide, and
    a few more runs may. Identical samples make the interval a point. Against the baseline the
    interval is that of the ratio, with the samples of both.

    Fewer than five make no interval: every sample has to meet the threshold, or every one to miss
    it; against the baseline, its most demanding sample counts. Fewer runs never pass more
    easily.
    """
    lacks, few = _too_few(criterion, evidence)
    obstacle = _no_figure(criterion, evidence) or few or _unfit(criterion, evidence)
    if obstacle:
        explanation = f"{criterion.name}: {obstacle}"
        return CriterionVerdict(
            Verdict.HOLD, explanation, criterion.metric, lacks if obstacle == few else ""
        )
    verdict, why = _decide(criterion, evidence)
    value = format_figure(evidence.value or 0.0, evidence.unit, criterion.thresholds[0].written)
    if evidence.unit == "count":
        value += noun(criterion.metric, evidence.value or 0.0)
    value += " (estimated)" if evidence.estimated else ""
    explanation = f"{criterion.name} {value}{why}{_counts(evidence)}"
    return CriterionVerdict(verdict, explanation, criterion.metric)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst decides; a gate without criteria has shown nothing and is HOLD."""
    seen = set(verdicts)
    if Verdict.NO_GO in seen:
        return Verdict.NO_GO
    return Verdict.GO if seen == {Verdict.GO} else Verdict.HOLD


def _no_figure(criterion: Criterion, evidence: Evidence) -> str:
    """Why there is nothing to judge, or ""."""
    if not criterion.thresholds:
        return "has neither go nor no_go"
    if evidence.reason_missing:
        return f"no usable figure, {one_line(evidence.reason_missing)}"
    if evidence.value is None:
        return f"no figure was measured{_counts(evidence)}"
    if not math.isfinite(evidence.value):
        return f"the figure is {evidence.value}, not a number to compare"
    return ""


def _unfit(criterion: Criterion, evidence: Evidence) -> str:
    """Why figures of enough samples cannot be judged, or ""."""
    thresholds = criterion.thresholds
    for threshold in thresholds:
        wrong = compatible(threshold, evidence.unit)
        if wrong:
            return wrong
        if threshold.relative and threshold.limit(evidence.baseline, evidence.unit) is None:
            return f"{threshold} needs a baseline, and {_baseline(evidence)}"
    relative = any(threshold.relative for threshold in thresholds)
    return _odd_samples(evidence, relative) or _below_nothing(criterion, evidence, relative)


def _too_few(criterion: Criterion, evidence: Evidence) -> tuple[Lacks, str]:
    """Whose samples are too few, the figure's own or those of the baseline that it is compared
    with, and the words for it; two empty texts if there are enough."""
    needed, noun = max(1, criterion.min_samples), "run" if evidence.requests is None else "sample"
    if few := lacking(evidence.n, evidence.void, needed, "", noun):
        return "own", few
    if (evidence.requests or 0) < criterion.min_requests:
        sent = plural(evidence.requests or 0, "request")
        return "own", f"{sent} in the soak, {criterion.min_requests} needed"
    relative = any(threshold.relative for threshold in criterion.thresholds)
    if not relative or evidence.baseline is None or evidence.baseline_n is None:
        return "", ""
    few = lacking(evidence.baseline_n, evidence.baseline_void, needed, "baseline ", noun)
    return ("baseline", few) if few else ("", "")


def lacking(valid: int, void: int, needed: int, whose: str, noun: str) -> str:
    """`1 of 5 baseline runs valid; 3 needed`; "" if that is enough."""
    if valid < needed and not void:
        return f"{plural(valid, f'valid {whose}sample')}; {needed} needed"
    tally = f"{valid} of {valid + void} {whose}{noun}s valid"
    if valid < needed:
        return f"{tally}; {needed} needed"
    return f"{tally}; more were discarded than counted" if void > valid else ""


def _below_nothing(criterion: Criterion, evidence: Evidence, relative: bool) -> str:
    """A figure or a sample that no machine can have, or ""."""
    values = (evidence.value or 0.0, *evidence.samples)
    if relative:
        values += (evidence.baseline or 0.0, *evidence.baseline_samples)
    least = min(values)
    if not impossible(criterion.metric, least, evidence.unit):
        return ""
    return f"{least:g} {evidence.unit} is impossible: it cannot be below zero"


def _odd_samples(evidence: Evidence, relative: bool) -> str:
    """What is wrong with samples that should explain a figure, or ""."""
    if evidence.between is not None:
        low, high = evidence.between
        if not low <= (evidence.value or 0.0) <= high or not math.isfinite(high - low):
            return "the figure does not lie in its own interval"
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
        same = math.isclose(middle or 0.0, value or 0.0, rel_tol=1e-6, abs_tol=1e-12)
        if len(samples) != count or middle is None or not same:
            return f"the {whose}figure is not the {evidence.headline} of its samples"
    if relative and evidence.baseline_samples and min(evidence.baseline_samples) <= 0:
        return "a sample of the baseline is not above zero, so there is no ratio to it"
    return ""


def _baseline(evidence: Evidence) -> str:
    if evidence.baseline is None:
        return "none was measured"
    return f"the one measured is {evidence.baseline:g} {evidence.unit}".rstrip()


def _decide(criterion: Criterion, evidence: Evidence) -> tuple[Verdict, str]:
    """Verdict and words for evidence that can be judged."""
    go, no_go = criterion.go, criterion.no_go
    fails = _reach(no_go, evidence) if no_go is not None else _Reach.NONE
    passes = _reach(go, evidence) if go is not None else _Reach.ALL
    say = COUNTED if evidence.unit == "count" else MEASURED
    if no_go is not None and fails is _Reach.ALL:
        return Verdict.NO_GO, f"{say.no_go} {_words(no_go, evidence)}"
    if no_go is not None and fails is _Reach.SOME:
        return Verdict.HOLD, _undecided(no_go, evidence)
    if go is None:
        clear = f"{say.clear} {_words(no_go, evidence)}"
        return Verdict.GO, f"{_span(no_go, evidence)}{clear}"
    if passes is _Reach.ALL:
        return Verdict.GO, f"{_span(go, evidence)}{say.meets} {_words(go, evidence)}"
    if passes is _Reach.SOME:
        return Verdict.HOLD, _undecided(go, evidence)
    margin = "" if evidence.unit == "count" else _margin(go, evidence)
    missed = f"{_span(go, evidence)}{say.misses} {_words(go, evidence)}{margin}"
    if no_go is None:
        return Verdict.NO_GO, missed
    return Verdict.HOLD, f"{missed}, but is not NO-GO {_words(no_go, evidence)}: grey zone"


def _reach(threshold: Threshold, evidence: Evidence) -> _Reach:
    """How an interval, always extended to the figure itself, meets a threshold."""
    point = threshold.satisfied(evidence.value, evidence.baseline, evidence.unit)
    bounds = _interval(threshold, evidence)
    if bounds is None or bounds[0] == bounds[1]:
        return _Reach.ALL if point else _Reach.NONE
    if not threshold.relative:
        ends = [threshold.satisfied(end, None, evidence.unit) for end in bounds]
    elif _too_few_samples(threshold, evidence):
        (low, high), (least, most) = _outermost(evidence)
        ends = [threshold.satisfied(low, most), threshold.satisfied(high, least)]
    else:
        ends = [Threshold(threshold.op, threshold.value).satisfied(end) for end in bounds]
    if point and all(ends):
        return _Reach.ALL
    if point or any(ends):
        return _Reach.SOME
    limit = threshold.value if threshold.relative else threshold.limit(None, evidence.unit)
    inside = threshold.op == "==" and limit is not None and bounds[0] < limit < bounds[1]
    return _Reach.SOME if inside else _Reach.NONE


def _interval(threshold: Threshold, evidence: Evidence) -> tuple[float, float] | None:
    """The range of the figure, or of its ratio to the baseline for a relative threshold; None for a
    single figure, which is a point."""
    if not threshold.relative:
        if not evidence.samples:
            return evidence.between
        if _too_few_samples(threshold, evidence):
            return _outermost(evidence)[0]
        return interval(evidence.samples, evidence.headline)
    if not evidence.samples and not evidence.baseline_samples:
        return None
    if _too_few_samples(threshold, evidence):
        (low, high), (least, most) = _outermost(evidence)
        return low / most, high / least
    return interval(
        evidence.samples or [evidence.value or 0.0], evidence.headline,
        evidence.baseline_samples or [evidence.baseline or 0.0],
    )  # fmt: skip


def _too_few_samples(threshold: Threshold, evidence: Evidence) -> bool:
    """Whether either side has too few samples for an interval by resampling."""
    sides = [evidence.samples, evidence.baseline_samples if threshold.relative else ()]
    return any(0 < len(side) < ENOUGH for side in sides)


def _outermost(evidence: Evidence) -> tuple[tuple[float, float], tuple[float, float]]:
    """The minimum and maximum of each side: its outermost samples, or the interval if it has enough
    samples."""
    values: Sequence[float] = evidence.samples or (evidence.value or 0.0,)
    if len(values) >= ENOUGH:
        values = interval(values, evidence.headline) or values
    base = evidence.baseline_samples or (evidence.baseline or 0.0,)
    return (min(values), max(values)), (min(base), max(base))


def _span(threshold: Threshold | None, evidence: Evidence) -> str:
    """` (19.9 to 20.6 tok/s)`, or "" if a point decided."""
    bounds = None if threshold is None else _interval(threshold, evidence)
    if threshold is None or bounds is None or bounds[0] == bounds[1]:
        return ""
    return f" ({_ends(bounds, threshold, evidence.unit)})"


def _undecided(threshold: Threshold, evidence: Evidence) -> str:
    bounds = _interval(threshold, evidence)
    ends = _ends(bounds, threshold, evidence.unit) if bounds is not None else ""
    around = f"{ends} around {_words(threshold, evidence)}"
    if _too_few_samples(threshold, evidence):
        return f": fewer than {ENOUGH} samples have to agree, and do not, {around}"
    return f": the samples do not decide, {around}"


def _ends(bounds: tuple[float, float], threshold: Threshold, unit: str) -> str:
    """Both ends with as many digits as tell them apart."""
    if threshold.relative:
        unit = "x baseline"
    elif unit in ("B", "s", "ratio"):
        low, high = (format_figure(end, unit, threshold.written) for end in bounds)
        if low != high:
            return f"{low} to {high}"
    unit = "" if unit == "count" else unit
    digits = next((d for d in (4, 6, 9) if f"{bounds[0]:.{d}g}" != f"{bounds[1]:.{d}g}"), 12)
    return f"{bounds[0]:.{digits}g} to {bounds[1]:.{digits}g} {unit}".rstrip()


def _words(threshold: Threshold | None, evidence: Evidence) -> str:
    """The threshold with its unit; for a relative one also its value."""
    if threshold is None:
        return ""
    if threshold.relative:
        limit = threshold.limit(evidence.baseline, evidence.unit)
        baseline = format_figure(evidence.baseline or 0.0, evidence.unit, threshold.written)
        reached = format_figure(limit or 0.0, evidence.unit, threshold.written)
        return f"{threshold} ({reached}, baseline {baseline})"
    bare = not threshold.unit and evidence.unit != "count"
    return f"{threshold} {evidence.unit}".rstrip() if bare else f"{threshold}"


def _margin(threshold: Threshold, evidence: Evidence) -> str:
    """` by 1.3 tok/s`, since two figures that differ can look the same when rounded."""
    limit = threshold.limit(evidence.baseline, evidence.unit)
    if limit is None or evidence.value is None or limit == evidence.value:
        return ""
    return f" by {format_figure(abs(limit - evidence.value), evidence.unit, threshold.written)}"


def _samples(n: int) -> str:
    return plural(n, "valid sample")


def _void(evidence: Evidence) -> str:
    return f", {evidence.void} discarded" if evidence.void else ""


def _counts(evidence: Evidence) -> str:
    return f" ({_samples(evidence.n)}{_void(evidence)})"
