"""`gate`: GO, NO-GO or HOLD from what this run measured; missing data is HOLD.

A GO that others may have made is marked DOUBTFUL at once (`console.runner.disturbed`). After the
restore, GO and NO-GO are judged once more, by how far the baseline has moved (`doubt`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from console.bench.metrics import GAUGE_METRICS, OUTPUT_METRICS
from console.bench.sample import discarded
from console.common.text import clean, one_line
from console.common.units import format_number
from console.config.playbook.measuring_steps import FIGURES, MIN_SAMPLES
from console.config.playbook.steps import CriterionModel, Step
from console.config.playbook.verdict import Evidence, Verdict, combine, judge
from console.journal import events
from console.journal.run_view import GateVerdict, RunView
from console.journal.state import Mark, StepState
from console.render.report.benchmarks import Drift, drift_words, drifts
from console.runner.context import Attempt, Context, Done
from console.runner.disturbed import connected, disturbances
from console.runner.prepare.plan import BASELINE_MEASURE, PlannedStep

BEFORE, AFTER = ".baseline", ".baseline-after"

PEAKS = {
    "gpu.peak_used": "used", "gpu.peak_temperature": "temperature",
    "host.peak_ram_used": "ram_used", "host.peak_swap_used": "swap_used",
    "host.swap_in_rate": "swap_in", "host.pressure": "pressure",
}  # fmt: skip
"""Metrics of the machine, and their names in the event of console.runner.peaks."""


COUNT_GARBLED = frozenset({"garbled", "errors", "error_rate", "stability", "requests"})
"""Figures of a soak that say themselves how many answers were garbled."""


def doubt(context: Context) -> None:
    """Record a "doubt" for each verdict that lies nearer to its threshold than the baseline has
    moved between its two measurements.

    The gate was right on its data. But the machine was not the same all the time, and whether the
    candidate was measured on the faster or on the slower one is not known. What would be decided
    otherwise on either of them is DOUBTFUL: a GO becomes HOLD, so that nobody switches over.
    """
    view = context.view
    cards = [gpu.uuid for gpu in context.plan.site.model.gpus]
    moved = {drift.scope: drift for drift in drifts(view) if drift.large}
    for verdict in view.verdicts:
        step = context.plan.at(verdict.step).step
        judged = verdict.verdict in ("GO", "NO-GO") and not verdict.overridden
        if not judged or step is None or not step.gate:
            continue
        for drift in moved.values():
            other_verdict, words = _otherwise(view, step, drift, verdict, cards)
            if words:
                by = drift_words(drift)
                context.record(events.Doubt(verdict=other_verdict, words=words, moved=by), step.id)
                break


def _otherwise(
    view: RunView, step: Step, drift: Drift, verdict: GateVerdict, cards: Sequence[str]
) -> tuple[str, str]:
    """What a gate would decide with the baseline as it is now, or with its own figures as much
    faster or slower as the baseline has become; and why. Two empty texts if a GO stays a GO, and a
    NO-GO would be none."""
    mine = [
        criterion
        for criterion in step.gate or ()
        if criterion.metric.partition(".")[0] == drift.scope
    ]
    others = {row["metric"] for row in verdict.criteria if row["verdict"] == "NO-GO"}
    if not mine or others - {criterion.metric for criterion in mine}:
        return "", ""
    go = verdict.verdict == "GO"
    step = step.model_copy(update={"gate": mine})  # what others said meanwhile is not at issue
    decision, rows = decide(step, _after(view), cards)
    if (decision is Verdict.GO) is not go:
        why = "; ".join(row["why"] for row in rows if row["verdict"] == str(decision))
        return str(decision), f"against the baseline as restored, {why}"
    for factor in (drift.after / drift.before, drift.before / drift.after):
        decision, rows = decide(step, _faster(view, drift.scope, factor), cards)
        if (decision is Verdict.GO) is not go:
            metric = next(row["metric"] for row in rows if row["verdict"] == str(decision))
            words = f"{metric} may have moved as the baseline did, by {drift_words(drift)}"
            return str(decision), words
    return "", ""


def _faster(view: RunView, scope: str, factor: float) -> RunView:
    """The run as it would look had a step's rates been so many times what they are."""
    figures = {name: _times(figure, factor) for name, figure in view.metrics.get(scope, {}).items()}
    return replace(view, metrics={**view.metrics, scope: figures})


def _times(figure: Any, factor: float) -> Any:
    """A figure at another speed; one that is no rate and no time stays as it is."""
    unit = figure.get("unit") if isinstance(figure, dict) else ""
    if unit not in ("tok/s", "s"):
        return figure
    by = factor if unit == "tok/s" else 1 / factor

    def scaled(value: Any) -> Any:
        if isinstance(value, list):
            return [scaled(element) for element in value]
        number = _number(value)
        return value if number is None else number * by

    kept = ("value", "samples", "low", "high")
    return {name: scaled(value) if name in kept else value for name, value in figure.items()}


def against_baseline(criterion: CriterionModel) -> bool:
    return any(side is not None and side.relative for side in (criterion.go, criterion.no_go))


def _after(view: RunView) -> RunView:
    """The run as it would look had the baseline been as fast before as it is now."""
    later = {
        scope.removesuffix(AFTER) + BEFORE: figures
        for scope, figures in view.metrics.items()
        if scope.endswith(AFTER)
    }
    return replace(view, metrics={**view.metrics, **later})


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Judge every criterion; the worst decides. The verdict is an event of its own."""
    step = planned.written
    cards = [gpu.uuid for gpu in context.plan.site.model.gpus]
    verdict, rows = decide(step, context.view, cards)
    context.record(
        events.Verdict(
            verdict=str(verdict), outcome=outcome_name(step, verdict), criteria=rows,
            evidence=evidence_hash(context.view),
        ), step.id, attempt.number,
    )  # fmt: skip
    why = "; ".join(row["why"] for row in rows if row["verdict"] == str(verdict))
    if verdict is Verdict.GO and (sentences := disturbances(context, _compared(step))):
        words = "; ".join(sentences)
        context.record(events.Doubt(verdict=str(Verdict.HOLD), words=words), step.id)
        more = [sentence for sentence in sentences if sentence not in why]
        return Done("; ".join([f"{Mark.DOUBTFUL}: {why}", *more]), warned=True)
    return Done(why)


def _compared(step: Step) -> list[str]:
    """The baseline's measurements by which a gate judges."""
    return [
        criterion.metric.partition(".")[0] + BEFORE
        for criterion in step.gate or [] if against_baseline(criterion)
    ]  # fmt: skip


def decide(
    step: Step, view: RunView, cards: Sequence[str] = ()
) -> tuple[Verdict, list[dict[str, str]]]:
    """The verdict of a gate, and a row {metric, verdict, why} for each criterion.

    `cards`: UUIDs from the site file; one that did not answer makes criteria on cards HOLD.
    """
    rows: list[dict[str, str]] = []
    verdicts: list[Verdict] = []
    for criterion in step.gate or []:
        owner = criterion.metric.partition(".")[0]
        wanted = criterion.criterion(made_of(view, criterion.metric))
        judgement = judge(wanted, evidence(view, criterion, cards))
        verdicts.append(judgement.verdict)
        row = {"metric": criterion.metric, "verdict": str(judgement.verdict), "why": judgement.why}
        if judgement.verdict is not Verdict.GO and (changed := _changed(view, criterion.metric)):
            row["why"] += f": {changed}"
        if judgement.lacks:
            row["lacks"] = measured_by(criterion.metric, baseline=judgement.lacks == "baseline")
            of_baseline = row["lacks"] == BASELINE_MEASURE
            row["why"] += spoilt(view, owner + BEFORE if of_baseline else owner)
        compared = [owner, *([owner + BEFORE] if against_baseline(criterion) else [])]
        row["why"] += "".join(f"; {words}" for words in connected(view, compared))
        row["why"] += _unwatched(view, compared)
        rows.append(row)
    return combine(verdicts), rows


def spoilt(view: RunView, scope: str) -> str:
    """` (others used the server at the same time)`: why runs of a benchmark were discarded."""
    voids = view.measurement(scope).benchmark.get("voids") or []
    why = discarded(str(void.get("reason", "")) for void in voids)
    return f" ({why})" if why else ""


def _unwatched(view: RunView, scopes: Sequence[str]) -> str:
    """What has to be known of a figure that was measured on servers that do not tell who uses
    them; "" where all of them told."""
    names = dict.fromkeys(
        request["name"]
        for scope in scopes
        for request in (view.measurement(scope).benchmark.get("context") or {}).get("requests")
        or ()
        if request.get("known") is False and not request.get("connected")
    )
    used = clean(" or ".join(map(str, names)), 120)
    return f"; whether others used {used} meanwhile is not known" if used else ""


def _changed(view: RunView, metric: str) -> str:
    """What a contract found, in words, for a figure that only counts it; "" for any other."""
    owner, _, name = metric.partition(".")
    counts = bool(view.measurement(owner).contract) and name.endswith("changed")
    return clean(str(view.measurement(owner).contract.get("words") or ""), 300) if counts else ""


def measured_by(metric: str, *, baseline: bool) -> str:
    """The step that measures a metric, or the baseline's figure that it is compared with."""
    owner, _, name = metric.partition(".")
    return BASELINE_MEASURE if baseline or name.startswith("baseline.") else owner


def made_of(view: RunView, metric: str) -> str:
    """The kind of samples behind a metric, a key of MIN_SAMPLES; "" for a single figure."""
    owner, _, name = metric.partition(".")
    step = view.step(owner)
    if step is not None and step.kind in MIN_SAMPLES:
        return step.kind
    source = str(view.measurement(owner).benchmark.get("source") or "")
    return source if source in MIN_SAMPLES and source in FIGURES and name in OUTPUT_METRICS else ""


def evidence(view: RunView, criterion: CriterionModel, cards: Sequence[str] = ()) -> Evidence:
    """The figure of `STEP.NAME` in this run with the baseline's for the same step, the baseline's
    own for `STEP.baseline.NAME`, or a peak of the machine for `gpu.…` and `host.…`.

    Only succeeded steps give figures, because those of a failed one are stale or incomplete, and
    only those whose answers were all sane: what is faster because it says nothing is not faster.
    """
    if criterion.metric in GAUGE_METRICS:
        return _peak(view, criterion, cards)
    owner, _, name = criterion.metric.partition(".")
    of_baseline = name.startswith("baseline.")
    scope = f"{owner}.baseline" if of_baseline else owner
    name = name.removeprefix("baseline.")
    why = _unfit(view, BASELINE_MEASURE if of_baseline else owner) or _garbled(view, scope, name)
    if not why and against_baseline(criterion):
        why = _garbled(view, f"{owner}.baseline")
    figures = view.metrics.get(scope, {}).get(name)
    if why or not isinstance(figures, dict):
        return Evidence(None, "", 0, reason_missing=why or f"{scope} has no {name}")
    none = str(figures.get("why") or "") if figures.get("value") is None else ""
    before = view.metrics.get(f"{owner}.baseline", {}).get(name, {})
    same_unit = before.get("unit") == figures.get("unit")
    if of_baseline or not same_unit or _unfit(view, BASELINE_MEASURE):
        before = {}
    return Evidence(
        value=_number(figures.get("value")),
        unit=str(figures.get("unit") or ""),
        n=_count(figures.get("n")),
        baseline=_number(before.get("value")),
        void=_count(figures.get("void")),
        samples=_samples(figures),
        baseline_n=_count(before.get("n")) if before else None,
        baseline_samples=_samples(before),
        headline=str(figures.get("headline") or "mean"),
        reason_missing=none,
        baseline_void=_count(before.get("void")),
        between=_between(figures),
        requests=_requests(view, owner),
        estimated=figures.get("estimated") is True,
    )


def _garbled(view: RunView, scope: str, name: str = "") -> str:
    """That answers were garbled while a scope was measured, in words; "" if none was, and for the
    figures that count such answers themselves."""
    record = view.measurement(scope).benchmark or view.measurement(scope).soak
    words = str(record.get("garbled") or "")
    if view.measurement(scope).soak and name in COUNT_GARBLED:
        return ""
    return f"of the baseline, {words}" if words and scope.endswith(BEFORE) else words


def _between(figures: dict[str, Any]) -> tuple[float, float] | None:
    """The 95 % interval recorded with the figure; an end that is not a number is NaN, which meets
    no threshold."""
    if figures.get("low") is None and figures.get("high") is None:
        return None
    low, high = (_number(figures.get(end)) for end in ("low", "high"))
    return (math.nan if low is None else low, math.nan if high is None else high)


def _requests(view: RunView, owner: str) -> int | None:
    """How many requests a soak sent; None if the step is no soak."""
    step = view.step(owner)
    if step is None or step.kind != "soak":
        return None
    return _count(view.metrics.get(owner, {}).get("requests", {}).get("n"))


def _unfit(view: RunView, step_id: str) -> str:
    """Why a step's figures cannot be used, or ""."""
    step = view.step(step_id)
    if step is None:
        return "no such step" if step_id != BASELINE_MEASURE else "the baseline was not measured"
    return "" if step.state is StepState.SUCCEEDED else f"step {step_id} is {step.state}"


def _peak(view: RunView, criterion: CriterionModel, cards: Sequence[str]) -> Evidence:
    """The highest value since the run began; over several cards their sum, or the highest card.

    Cards may peak at different times, so the sum of peaks is an upper bound of what was used at
    once.
    """
    unit, key = GAUGE_METRICS[criterion.metric].unit, PEAKS[criterion.metric]
    peaks = view.peaks
    groups = {"host": peaks.host}
    if criterion.metric.startswith("gpu."):
        groups = dict(peaks.gpu)
    if not peaks.n:
        return Evidence(None, unit, 0, reason_missing="the machine was not sampled")
    missing = [f"{uuid} was not seen" for uuid in cards if uuid not in groups]
    if not groups:
        trouble = peaks.trouble
        missing = [trouble or "no card was seen"]
    elif not criterion.metric.startswith("gpu."):
        missing = []
    values = []
    for owner, figures in groups.items():
        value = _number(figures.get(key))
        if value is None or not 0 <= value < math.inf:
            missing.append(f"{owner}: {_why(figures, key, unit)}")
        else:
            values.append(value)
    if missing:
        return Evidence(None, unit, 0, reason_missing=one_line("; ".join(missing), 300))
    together = sum(values) if criterion.of == "sum" else max(values)
    return Evidence(together, unit, peaks.n)


def _why(figures: dict[str, Any], key: str, unit: str) -> str:
    """Why a peak is uncertain, and what was seen of it all the same."""
    words = str((figures.get("why") or {}).get(key) or "not known")
    seen = _number((figures.get("seen") or {}).get(key))
    if seen is None or not math.isfinite(seen):
        return words
    return f"{words}; {format_number(seen, unit)} was seen"


def _number(value: object) -> float | None:
    """A number as it stands, NaN included, which the judgement then reports."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _count(value: object) -> int:
    """A whole number from 0; anything else counts as 0."""
    number = _number(value)
    return int(number) if number is not None and 0 <= number < math.inf else 0


def _samples(figures: dict[str, Any]) -> tuple[float, ...]:
    """The samples behind a figure; one that is not a number becomes NaN, which holds the gate."""
    samples = figures.get("samples")
    if not isinstance(samples, list):
        return ()
    return tuple(math.nan if (n := _number(sample)) is None else n for sample in samples)


def outcome_name(step: Step, verdict: Verdict) -> str:
    return str(getattr(step.outcomes, verdict.name.lower()))


def evidence_hash(view: RunView) -> str:
    """A hash of every figure and verdict so far, to which an approval is bound."""
    facts: list[Any] = [view.metrics, [(v.step, v.verdict) for v in view.verdicts]]
    facts.append([(s.id, str(s.state)) for s in view.steps if s.state != "pending"][:-1])
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
