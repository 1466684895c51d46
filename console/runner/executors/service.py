"""`service`: start, stop, or wait until ready."""

from __future__ import annotations

from console.common.units import format_duration
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.prepare.plan import PlannedStep
from console.runtime.probe import Health, health
from console.runtime.spec import ContainerSpec, memory_limit


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Start and wait-ready, wait-ready alone, or stop. Raises StepFailed with cause and log."""
    step = planned.step
    assert step is not None
    assert step.service is not None
    name, verb = step.service.target, step.service.verb
    if verb == "stop":
        stopped = context.services.stop(name, attempt)
        return Done(f"{name} stopped" if stopped else f"{name} was not running")
    if verb == "start":
        found = context.services.find(name)
        if found is not None:
            context.alive(found)
            context.services.adopt(name, found)
            attempt.say(f"{name} runs already, with the same specification", always=True)
        else:
            _nobody_there(context, name)
            _warn_unlimited(context, name, attempt)
            context.services.start(name, attempt)
    waited = context.services.wait(name, attempt)
    return Done(f"{name} ready after {format_duration(waited)}")


def _nobody_there(context: Context, name: str) -> None:
    """Whoever answers at the candidate's address before it starts is somebody else, and would be
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
