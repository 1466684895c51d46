"""`gate`: GO, NO-GO or HOLD from what this run measured; missing data is HOLD."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from console.playbook.rules import as_criterion
from console.playbook.steps import CriterionModel, Step
from console.playbook.verdict import Evidence, Verdict, combine, judge
from console.run.context import Attempt, Context, Done
from console.run.plan import PlannedStep
from console.run.view import RunView


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Judge every criterion; the worst decides. The verdict is an event of its own."""
    step = planned.step
    assert step is not None
    rows: list[dict[str, str]] = []
    verdicts: list[Verdict] = []
    for criterion in step.gate or []:
        found = judge(as_criterion(criterion), evidence(context.view, criterion))
        verdicts.append(found.verdict)
        rows.append({"metric": criterion.metric, "verdict": str(found.verdict), "why": found.why})
    verdict = combine(verdicts)
    context.record(
        "verdict", step.id, attempt.number, verdict=str(verdict),
        outcome=outcome_name(step, verdict), criteria=rows, evidence=evidence_hash(context.view),
    )  # fmt: skip
    return Done("; ".join(row["why"] for row in rows if row["verdict"] == str(verdict)))


def evidence(view: RunView, criterion: CriterionModel) -> Evidence:
    """The figure of `STEP.NAME` in this run, and the baseline's for the same step."""
    owner, _, name = criterion.metric.partition(".")
    figures = view.metrics.get(owner, {}).get(name)
    if figures is None:
        step = view.step(owner)
        why = f"step {owner} is {step.state}" if step is not None else "no such step"
        return Evidence(None, "", 0, reason_missing=why)
    before = view.metrics.get(f"{owner}.baseline", {}).get(name, {})
    return Evidence(
        value=figures.get("value"),
        unit=figures.get("unit", ""),
        n=int(figures.get("n", 0)),
        baseline=before.get("value"),
        void=int(figures.get("void", 0)),
    )


def outcome_name(step: Step, verdict: Verdict) -> str:
    return {
        Verdict.GO: step.outcomes.go, Verdict.NO_GO: step.outcomes.no_go,
        Verdict.HOLD: step.outcomes.hold,
    }[verdict]  # fmt: skip


def evidence_hash(view: RunView) -> str:
    """What an approval is bound to: every figure and verdict so far."""
    facts: list[Any] = [view.metrics, [(v.step, v.verdict) for v in view.verdicts]]
    facts.append([(s.id, str(s.state)) for s in view.steps if s.state != "pending"][:-1])
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
