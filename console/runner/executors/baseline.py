"""The baseline's outage and its end: effects of their own, never hidden inside another step."""

from __future__ import annotations

from console.common.units import format_duration
from console.journal.state import Cause
from console.recovery.rollback import proof
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors import cutover
from console.runner.fault import point
from console.runner.finish import bring_back, wait_released
from console.runner.prepare.plan import PlannedStep
from console.runtime.probe import Health, health

SERVING = Health.SERVING


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Stop the baseline and wait for its GPU memory. The outage is in the journal first."""
    if _for_cutover(context, planned):
        cutover.answers(context, planned.service)
    else:
        context.services.can_start(planned.service)  # no outage for what could be known before
    before = proof.last(proof.proof_file(context.plan.site.name))
    context.record(
        "outage", planned.id, attempt.number, down=True, proof=before.at if before else 0.0
    )
    begun = context.clock.monotonic()
    stopped = context.services.stop("baseline", attempt)
    point("baseline_stopped")
    url = context.plan.site.model.baseline.url
    if not stopped and health(url, context.plan.site.model.baseline.ready.http)[0] is SERVING:
        raise StepFailed(Cause.PRECONDITION, f"what answers at {url} could not be stopped")
    released = wait_released(context, attempt)
    took = format_duration(context.clock.monotonic() - begun)
    return Done(f"baseline stopped in {took}; {released}")


def _for_cutover(context: Context, planned: PlannedStep) -> bool:
    rows = context.plan.steps
    after = rows[rows.index(planned) + 1 :]
    return bool(after) and after[0].kind == "cutover"


def restore(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Stop what the run left alive and bring the baseline back, by the rollback ladder itself."""
    point("before_restore")
    result = bring_back(context, planned.id, attempt.number)
    if not result.serving:
        raise StepFailed(
            Cause.NOT_READY, result.detail or "the baseline does not serve",
            lines=list(result.manual),
        )  # fmt: skip
    took = f" after {format_duration(result.restore_s)}" if result.restore_s is not None else ""
    slow = " DEGRADED: below its reference" if result.degraded else ""
    rate = f", {result.tok_s:.1f} tok/s" if result.tok_s is not None else ""
    return Done(f"baseline serving{took}{rate}{slow}")
