"""`service`: start, stop, or wait until ready."""

from __future__ import annotations

from console.run.context import Attempt, Context, Done
from console.run.plan import PlannedStep
from console.services.base import ContainerSpec
from console.units import format_duration


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Start and wait-ready, wait-ready alone, or stop. Raises StepFailed with cause and log."""
    step = planned.step
    assert step is not None
    assert step.service is not None
    name, verb = step.service.target, step.service.verb
    if verb == "stop":
        stopped = context.fleet.stop(name, attempt)
        return Done(f"{name} stopped" if stopped else f"{name} was not running")
    if verb == "start":
        found = context.fleet.find(name)
        if found is not None:
            context.alive(found)
            context.fleet.adopt(name, found)
            attempt.say(f"{name} runs already, with the same specification", always=True)
        else:
            _warn_unlimited(context, name, attempt)
            context.fleet.start(name, attempt)
    waited = context.fleet.wait(name, attempt)
    return Done(f"{name} ready after {format_duration(waited)}")


def _warn_unlimited(context: Context, name: str, attempt: Attempt) -> None:
    runs = context.fleet.spec(name).runs
    if isinstance(runs, ContainerSpec) and runs.memory_bytes is None:
        attempt.say(f"{name} has no memory limit: set `memory:` to protect the host", always=True)
