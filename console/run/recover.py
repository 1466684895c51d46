"""A run whose runner died: what its journal left open is settled before anything goes on."""

from __future__ import annotations

from typing import Any

from console.errors import ConsoleError
from console.rollback.report import LADDER, read_lines, result_of, who_asked
from console.run.context import Context
from console.run.plan import PlannedStep
from console.run.state import ENDS, RunState, StepState
from console.services.base import Handle

REPEATABLE = frozenset(
    {"check", "gate", "note", "report", "benchmark", "approval", "manual", "service", "build",
     "baseline:measure", "baseline:stop", "restore"}
)  # fmt: skip
"""Kinds whose repetition changes nothing: they ask first, or only look."""
OPEN = frozenset({StepState.RUNNING, StepState.RETRY_WAIT})


def settle_intents(context: Context, from_step: str = "") -> None:
    """An intent without a result: repeatable kinds run again, `unless` may prove the rest done;
    what remains is in_doubt, and the operator decides. From `from_step` on all run again."""
    again = False
    for view in list(context.view.steps):
        if context.view.over and not view.final:
            continue  # the outcome stands; only `finally` is still owed
        again = again or view.id == from_step
        if again:
            _note(context, view.id, view.attempt, StepState.PENDING, "resumed from here")
            continue
        if view.state is StepState.CANCELLED:
            _note(context, view.id, view.attempt, StepState.PENDING, "to be run again")
        elif view.state in OPEN and _repeatable(planned := context.plan.at(view.id)):
            _note(context, view.id, view.attempt, StepState.PENDING, f"{planned.kind}: run again")
        elif view.state in OPEN:
            _note(context, view.id, view.attempt, StepState.IN_DOUBT,
                  "the runner died during it: it may or may not have happened")  # fmt: skip


def _repeatable(planned: PlannedStep) -> bool:
    step = planned.step
    if planned.kind in REPEATABLE:
        return True
    return step is not None and (step.idempotent or step.unless is not None)


def adopt_services(context: Context) -> None:
    """Services that survived their runner are taken over, with a new tailer each."""
    for name, data in list(context.view.services.items()):
        handle = Handle(
            name, data["kind"], data.get("container", ""), data.get("name", ""),
            data.get("pid", 0), data.get("start", 0),
        )  # fmt: skip
        try:
            alive = context.fleet.driver(name).status(handle).alive
        except ConsoleError:
            alive = False
        if alive:
            context.fleet.adopt(name, handle)
        else:
            context.record("service", service=name, alive=False)


def close_after_rollback(context: Context) -> None:
    """Write into the journal what an emergency rollback did while no runner was there."""
    lines, _ = read_lines(context.run.rollback / LADDER)
    last = [line for line in lines if line.get("rung") == "done"]
    if not last:
        raise ConsoleError("no rollback is recorded for this run", str(context.run.path))
    trigger = last[-1].get("trigger")
    for view in context.view.steps:
        if view.state in OPEN:
            _note(context, view.id, view.attempt, StepState.CANCELLED, "stopped by the rollback")
    ended = context.view.state in ENDS
    who = who_asked(context.run.rollback) or "the emergency key"
    context.record("verb", verb="rollback", who=who, why="emergency")
    if not ended:
        context.record("run.state", state=str(RunState.ROLLING_BACK), reason="emergency")
    _rungs(context, [line for line in lines if line.get("trigger") == trigger])
    result = result_of(last[-1])
    for name in list(context.view.services):
        context.record("service", service=name, alive=False)
    if result.serving:
        context.record("outage", down=False, restore_s=result.restore_s)
        context.record(
            "serving", tok_s=result.tok_s, degraded=result.degraded, reference=result.reference
        )
    if not ended:
        state = RunState.ROLLED_BACK if result.serving else RunState.ROLLBACK_FAILED
        context.record("run.state", state=str(state), reason="emergency", detail=result.detail)
    context.desk.set(state=context.view.state)


def _rungs(context: Context, lines: list[dict[str, Any]]) -> None:
    for line in lines:
        context.record("rung", **line)


def _note(context: Context, step: str, attempt: int, state: StepState, detail: str) -> None:
    context.record("step.state", step, attempt, state=str(state), detail=detail)
