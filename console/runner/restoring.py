"""Bringing the baseline back from inside a run: by the same ladder that an emergency uses."""

from __future__ import annotations

import math
from typing import Any

from console.common.errors import ConsoleError
from console.journal.state import StepState
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback import standby
from console.recovery.rollback.lock import is_held
from console.recovery.rollback.procedure import Ladder
from console.recovery.rollback.progress import (
    LADDER,
    Follower,
    Result,
    new_trigger,
    quiet_limit,
    size_of,
)
from console.recovery.rollback.stages import vram
from console.runner.context import Attempt, Context
from console.runner.prepare.plan import RESTORE

WARM_WORD_S = 2.0
LOOK_S = 0.25
"""How often it is looked whether the ladder that speaks still climbs."""
VRAM_S = 5.0


def bring_back(context: Context, step: str, attempt: int) -> Result:
    """Stop what is alive, start the baseline, prove it; every rung goes into the journal.

    The warm ladder does it; when that is gone, this process climbs itself. The sentinel only
    warns meanwhile: what fills the memory now is the baseline.
    """
    if context.guard is None:
        return _bring_back(context, step, attempt)
    context.guard.advisory(True)
    try:
        return _bring_back(context, step, attempt)
    finally:
        context.guard.advisory(False)


def restored(context: Context, seconds: float | None) -> None:
    """The plan's last row is done when a rollback did it: nobody is to wait for it."""
    view = context.view.step(RESTORE)
    if view is not None and view.state is StepState.PENDING:
        context.record(
            "step.state", RESTORE, state=str(StepState.SUCCEEDED), duration_s=seconds,
            detail="done by the rollback",
        )  # fmt: skip


def _bring_back(context: Context, step: str, attempt: int) -> Result:

    def emit(line: dict[str, Any]) -> None:
        context.record("rung", step, attempt, **line)

    result = _by_warm(context, emit)  # it holds the plan in memory, should the file be gone
    if result is None:
        plan = sealed.read(context.run.sealed)
        trigger = new_trigger(context.clock, emergency=False)
        result = Ladder(plan, clock=context.clock, trigger=trigger, emit=emit).run()
    for name in list(context.fleet.handles):
        context.fleet.gone(name)
    if context.view.cutover:
        context.run.switched.unlink(missing_ok=True)
        context.record("cutover", step, attempt, what="rolled back")
    if result.serving:
        context.record("outage", step, attempt, down=False, restore_s=result.restore_s)
        context.record(
            "serving", step, attempt, tok_s=result.tok_s, degraded=result.degraded,
            reference=result.reference,
        )  # fmt: skip
    return result


def _by_warm(context: Context, emit: Any) -> Result | None:
    """What the warm ladder made of it; None where there is none, or it was stopped or got stuck."""
    directory = context.run.rollback
    begin = size_of(directory / LADDER)
    follower = Follower(directory / LADDER, begin, emit, emergency=False)
    if not standby.is_warm(directory) or not standby.trigger(directory, standby.ASKED):
        return None
    heard, seen, most_s = context.clock.monotonic(), 0, _most_quiet_s(context)
    looked = heard
    while True:
        result = follower.poll()
        if result is not None:
            return result
        if not standby.is_warm(directory, running=True):
            return follower.poll()
        now = context.clock.monotonic()
        if seen and now - looked >= LOOK_S:
            looked = now
            if not is_held(directory):  # it is through; a full disk did not take its last line
                return follower.poll()
        if follower.seen != seen:
            heard, seen = now, follower.seen
        if now - heard > (most_s if seen else WARM_WORD_S):
            return None
        context.clock.sleep(0.01)


def _most_quiet_s(context: Context) -> float:
    """Seconds a ladder that climbs may say nothing; without a plan on the disk nobody else could
    climb, and it is waited for."""
    try:
        return quiet_limit(sealed.read(context.run.sealed))
    except ConsoleError:
        return math.inf


def wait_released(context: Context, attempt: Attempt) -> str:
    """Wait while the GPUs' used memory falls; what was seen, in words."""
    uuids = [gpu.uuid for gpu in context.plan.site.model.gpus]
    if not uuids:
        return "no GPUs in the site file"
    return vram.released(uuids, context.clock, lambda: attempt.pause(1.0), VRAM_S)
