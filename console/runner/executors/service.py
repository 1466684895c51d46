"""`service`: start, stop, or wait until ready.

The baseline's outage and its end are effects of their own, never hidden inside another step.
"""

from __future__ import annotations

from console.common.units import format_duration
from console.config.playbook.steps import ServiceStep
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed, outage, wait_released
from console.runner.executors import cutover
from console.runner.fault import point
from console.runner.finish import bring_back
from console.runner.prepare.plan import PlannedStep
from console.runner.services import refuse_stranger
from console.runtime.probe import Health, health
from console.runtime.spec import ContainerSpec, memory_limit


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Start and wait-ready, wait-ready alone, or stop. Raises StepFailed with cause and log."""
    step = planned.asked(ServiceStep)
    name, verb = step.target, step.verb
    if verb == "stop":
        stopped = context.services.stop(name, attempt)
        return Done(f"{name} stopped" if stopped else f"{name} was not running")
    if verb == "start":
        if context.services.take_over(name, attempt):
            attempt.say(f"{name} runs already, with the same specification", always=True)
        else:
            _refuse_answered(context, name)
            _warn_unlimited(context, name, attempt)
            context.services.start(name, attempt)
    waited = context.services.wait(name, attempt)
    refuse_stranger(context, name)
    return Done(f"{name} ready after {format_duration(waited)}")


def _refuse_answered(context: Context, name: str) -> None:
    """Refuse to start a candidate while something answers at its address, since that would be
    measured in its place."""
    spec = context.services.spec(name)
    state, _ = health(spec.url, spec.ready.path)
    if state is not Health.REFUSED:
        raise StepFailed(
            Cause.PRECONDITION, f"something answers at {spec.url} before {name} is started: {state}"
        )


def _warn_unlimited(context: Context, name: str, attempt: Attempt) -> None:
    runs = context.services.spec(name).runs
    if isinstance(runs, ContainerSpec) and memory_limit(runs.memory_bytes) is None:
        attempt.say(f"{name} has no memory limit: set `memory:` to protect the host", always=True)


def stop_baseline(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Stop the baseline and wait for its GPU memory; the journal has the outage beforehand."""
    if _for_cutover(context, planned):
        cutover.answers(context, planned.service)
    else:
        context.services.can_start(planned.service)  # no outage for what could be known before
    outage(context, attempt)
    begun = context.clock.monotonic()
    stopped = context.services.stop("baseline", attempt)
    point("baseline_stopped")
    url = context.plan.site.model.baseline.url
    if (
        not stopped
        and health(url, context.plan.site.model.baseline.ready.http)[0] is Health.SERVING
    ):
        raise StepFailed(Cause.PRECONDITION, f"the server at {url} could not be stopped")
    released = wait_released(context, attempt)
    took = format_duration(context.clock.monotonic() - begun)
    return Done(f"baseline stopped in {took}; {released}")


def _for_cutover(context: Context, planned: PlannedStep) -> bool:
    rows = context.plan.steps
    after = rows[rows.index(planned) + 1 :]
    return bool(after) and after[0].kind == "cutover"


def restore(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Stop what the run left running and bring the baseline back, by the rollback procedure."""
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
