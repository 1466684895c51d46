"""Measuring again for a gate that is HOLD because too few samples were valid.

Only want of samples is a reason: samples that were valid and do not decide are never replaced by
luckier ones. All steps that run again are opened by one event, so that a runner that dies in the
middle goes on with the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.common.errors import ConsoleError
from console.common.text import one_line
from console.config.playbook.measuring_steps import BenchmarkStep, SoakStep
from console.config.playbook.verdict import lacking
from console.journal import events
from console.journal.state import StepState
from console.runner.context import Context
from console.runner.executors.gate import against_baseline, made_of, spoilt
from console.runner.prepare.plan import BASELINE_MEASURE, BASELINE_STOP, PlannedStep

BASELINE_AGAIN = "measure the baseline again"
DOWN = "the baseline is down for this run, so it cannot be measured now"
SWITCHED = "clients of the baseline are at a candidate, so it cannot be measured now"


@dataclass(frozen=True, slots=True)
class Again:
    """What a gate on HOLD lacks, in `detail`. `steps`: the ids of those that would run again, in
    the plan's order and the gate among them; empty if nothing can be measured again. `words`: the
    offer, `measure the baseline again`."""

    detail: str
    steps: tuple[str, ...] = ()
    words: str = ""


def offer(context: Context, gate: PlannedStep) -> Again:
    """What can be measured again for a gate on HOLD, as things stand now."""
    rows = next((v.criteria for v in context.view.verdicts if v.step == gate.id), [])
    held = [row for row in rows if row.get("verdict") == "HOLD"]
    detail = [f"{gate.kind} {gate.id} is HOLD"]
    detail += [row["why"] for row in held[:1]]
    lacking = dict.fromkeys(row["lacks"] for row in held if row.get("lacks"))
    steps: set[str] = set()
    names: list[str] = []
    for step_id in lacking:
        step_ids, why_not = _runs_again(context, gate, step_id)
        steps |= set(step_ids)
        names += [_measured(context, step_id)] if step_ids else []
        detail += [why_not] if why_not else []
    summary = one_line(": ".join(detail[:2]) + "".join(f"; {reason}" for reason in detail[2:]), 400)
    if not steps:
        return Again(summary)
    ordered = tuple(row.id for row in context.plan.steps if row.id in steps)
    words = f"measure {' and '.join(dict.fromkeys(names))} again"
    return Again(summary, ordered, words)


def too_few_of_baseline(context: Context) -> str:
    """Why a gate of the plan can only be HOLD: the baseline that it compares with has too few valid
    samples. "" if no gate lacks any."""
    for gate in context.plan.steps:
        for criterion in (gate.step.gate or []) if gate.step is not None and gate.step.when else []:
            owner, _, name = criterion.metric.partition(".")
            figures = context.view.metrics.get(f"{owner}.baseline", {}).get(name)
            if not isinstance(figures, dict) or not against_baseline(criterion):
                continue
            needed = criterion.criterion(made_of(context.view, criterion.metric)).min_samples
            few = lacking(
                int(figures.get("n") or 0), int(figures.get("void") or 0), max(1, needed),
                "baseline ", "run",
            )  # fmt: skip
            if few:
                why = spoilt(context.view, f"{owner}.baseline")
                return one_line(f"gate {gate.id} could only be HOLD: {few}{why}", 400)
    return ""


def begin(context: Context, gate: PlannedStep) -> None:
    """Open the steps again that measure what this gate lacks, and the gate itself; if none can be
    measured any more, the gate is judged again by what is there."""
    steps = offer(context, gate).steps or (gate.id,)
    context.record(events.Again(steps=list(steps)), gate.id)


def _measured(context: Context, step_id: str) -> str:
    """What a step measures, as the offer names it."""
    return "the baseline" if _service(context, step_id) == "baseline" else "the candidate"


def _service(context: Context, step_id: str) -> str:
    """The service that a step measures; "" if it measures none."""
    if step_id == BASELINE_MEASURE:
        return "baseline"
    planned = next((row for row in context.plan.steps if row.id == step_id), None)
    step = planned.step if planned is not None else None
    measurement = (step.benchmark or step.soak) if step is not None else None
    return measurement.service if isinstance(measurement, BenchmarkStep | SoakStep) else ""


def _runs_again(context: Context, gate: PlannedStep, step_id: str) -> tuple[list[str], str]:
    """The steps that measure again what `step_id` measured, to the gate; or none, and why not."""
    rows, service = context.plan.steps, _service(context, step_id)
    first, last = (next(n for n, row in enumerate(rows) if row.id == i) for i in (step_id, gate.id))
    if not service:
        return [], ""
    if service == "baseline":
        why = DOWN if context.view.outage else SWITCHED if context.view.cutover else ""
        return ([] if why else _judged_since(context, rows[first], first, last)), why
    if _lives(context, service):
        return _judged_since(context, rows[first], first, last), ""
    begin = _start_of(context, service, first)
    if begin is None or any(row.kind == "cutover" for row in rows[begin:last]):
        return [], f"{service} does not run any more, so it cannot be measured again"
    again = (row for row in rows[begin : last + 1] if row.id != BASELINE_MEASURE)
    return [row.id for row in again if not _left_out(context, row)], ""


def _lives(context: Context, service: str) -> bool:
    try:
        return context.services.find(service) is not None
    except ConsoleError:
        return False


def _judged_since(context: Context, measuring: PlannedStep, first: int, last: int) -> list[str]:
    """The measuring step, and the gates from there on: they judged what it measured."""
    later = context.plan.steps[first + 1 : last + 1]
    gates = [row.id for row in later if row.kind == "gate" and not _left_out(context, row)]
    return [measuring.id, *gates]


def _start_of(context: Context, service: str, before: int) -> int | None:
    """The row from which a stopped service is started again for its measurement: its start, and
    the outage that the plan puts before it."""
    rows = context.plan.steps
    for at in range(before - 1, -1, -1):
        step = rows[at].step
        action = step.service if step is not None else None
        if action is not None and action.verb == "start" and action.target == service:
            stops = at > 0 and rows[at - 1].id.startswith(BASELINE_STOP)
            return at - 1 if stops and not context.view.outage else at
    return None


def _left_out(context: Context, row: PlannedStep) -> bool:
    """Whether a step was skipped: what was left out once is not done now."""
    view = context.view.step(row.id)
    return view is not None and view.state is StepState.SKIPPED
