"""A GO held against the baseline as it is after its restore: it may have been measured slow before.

The gate was right to decide on what it had. But where the same threshold, relative to what the
baseline does now, would not be met, nobody should switch over on it: the decision becomes HOLD.
"""

from __future__ import annotations

from dataclasses import replace

from console.config.playbook.steps import CriterionModel
from console.config.playbook.verdict import Verdict
from console.journal.run_view import RunView
from console.render.report.report_figures import drifts
from console.runner.context import Context
from console.runner.executors.gate import decide

BEFORE, AFTER = ".baseline", ".baseline-after"


def doubt(context: Context) -> None:
    """Record a "doubt" for each gate whose GO the restored baseline does not bear out."""
    view = context.view
    now = _after(view)
    moved = {drift.scope for drift in drifts(view) if drift.large}
    cards = [gpu.uuid for gpu in context.plan.site.model.gpus]
    for verdict in view.verdicts:
        step = context.plan.at(verdict.step).step
        if verdict.verdict != "GO" or verdict.overridden or step is None or not step.gate:
            continue
        against = [one for one in step.gate if _relative(one) and _owner(one) in moved]
        if not against:
            continue
        found, rows = decide(step.model_copy(update={"gate": against}), now, cards)
        if found is not Verdict.GO:
            words = "; ".join(row["why"] for row in rows if row["verdict"] != "GO")
            context.record("doubt", step.id, verdict=str(found), words=words)


def _relative(criterion: CriterionModel) -> bool:
    return any(side is not None and side.relative for side in (criterion.go, criterion.no_go))


def _owner(criterion: CriterionModel) -> str:
    return criterion.metric.partition(".")[0]


def _after(view: RunView) -> RunView:
    """The run as it would look had the baseline been as fast before as it is now."""
    later = {
        scope.removesuffix(AFTER) + BEFORE: figures
        for scope, figures in view.metrics.items()
        if scope.endswith(AFTER)
    }
    return replace(view, metrics={**view.metrics, **later})
