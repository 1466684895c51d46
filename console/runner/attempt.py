"""One step from its first attempt to its last: intent, effect, result, retries, changed inputs.

A retry may change inputs: they are checked like a new file, recorded, and sealed anew.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import Any

from console.common import crash, redact
from console.common.errors import ConsoleError, EngineTimeout, InvalidFile
from console.common.logs.cause import cause_of
from console.common.text import clean, one_line
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import Step
from console.host.children import Cancelled
from console.journal import events
from console.journal.state import Cause, StepState
from console.journal.store import JournalError
from console.rehearsal.rewrite import of_run
from console.runner import peaks
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors import executor
from console.runner.executors.check import requires
from console.runner.executors.command import succeeds
from console.runner.fault import point
from console.runner.prepare.plan import Plan, PlannedStep, make_plan, own_playbook, targets
from console.runner.prepare.seal import seal
from console.runner.services import keep_baseline_down

RETRYABLE = frozenset(
    {Cause.EXIT_CODE, Cause.SIGNAL, Cause.TIMEOUT, Cause.START_ERROR, Cause.OUTPUT_INVALID,
     Cause.NOT_READY, Cause.OOM_KILL}
)  # fmt: skip
"""Causes of failure that may be retried: never a guard, cancel, gate or precondition."""

LOSSES = RETRYABLE - {Cause.TIMEOUT}
"""Causes that a step reports when its service or command was killed from outside."""


def input_error(context: Context, changes: dict[str, Any], why: str) -> str:
    """Return why these inputs are refused, or "" when they are accepted.

    A change that moves a gate's threshold needs a reason, because it overrides the decision.
    """
    try:
        fresh = make_plan(_load(context, changes), context.plan.site, context.view.restore_s)
    except ConsoleError as error:
        return one_line(str(error), 300)
    moved = moved_thresholds(context.plan, fresh)
    if moved and not why.strip():
        gate, words = moved[0]
        return f"this changes what gate {gate} asks for ({words}): it needs a reason"
    return ""


def moved_thresholds(before: Plan, after: Plan) -> list[tuple[str, str]]:
    """List (gate, `METRIC >= 500 tok/s -> >= 5 tok/s`) for every criterion that has changed."""
    changes = []
    nothing: dict[str, Any] = {}
    pairs = zip_longest(targets(before), targets(after), fillvalue=nothing)
    for was, now in pairs:
        if was != now:
            known = now or was
            words = f"{known['metric']} {_target_words(was)} -> {_target_words(now)}"
            changes.append((str(known["gate"]), one_line(words, 300)))
    return changes


def _target_words(target: dict[str, Any]) -> str:
    sides = [("", "go"), ("no-go ", "no_go")]
    words = [f"{head}{target[key]}" for head, key in sides if target.get(key)]
    if (target.get("min_samples") or 1) > 1:
        words.append(f"of {target['min_samples']}")
    return ", ".join(words) or "not asked"


def change_inputs(context: Context, changes: dict[str, Any], who: str, why: str) -> None:
    """Continue with other inputs, and stop services whose specification changed with them."""
    if not changes:
        return
    fresh, before = _load(context, changes), context.plan
    # what a service was started with is in its output for as long as it runs
    fresh = replace(fresh, known=fresh.known | before.playbook.known)
    for name, value in _texts(changes).items():
        shown = one_line(fresh.known.text(redact.named(name, value)))
        context.record(events.Input(name=one_line(name), value=shown))
    context.meta.inputs.update(_texts(changes))
    context.run.write_meta(context.meta)
    context.plan = make_plan(fresh, context.plan.site, context.view.restore_s)
    moved = [
        events.MovedTarget(gate=gate, words=words, who=who, why=why)
        for gate, words in moved_thresholds(before, context.plan)
    ]
    context.record(events.Targets(targets=targets(context.plan), moved=moved))
    context.services.change(context.plan.services)
    seal(context, context.way_back().baseline)


def _texts(changes: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in changes.items()}


def _load(context: Context, changes: dict[str, Any]) -> Playbook:
    site, base = context.plan.site, context.plan.playbook.base
    rewrite = of_run(context.run.path, site.model.engine.host)
    inputs = {**context.meta.inputs, **_texts(changes)}
    return own_playbook(context.run.playbook, site, inputs, base, rewrite)


def run_attempts(context: Context, planned: PlannedStep) -> Cause | None:
    """Run a step with its retries; None when it succeeded, was skipped or was cancelled."""
    step = planned.step
    tries = step.retry.attempts if step is not None and step.retry is not None else 1
    view = context.view.step(planned.id)
    first = (view.attempt if view is not None else 0) + 1
    for number in range(first, first + tries):
        cause = _once(context, planned, number)
        if cause is None or cause not in RETRYABLE or number == first + tries - 1:
            return cause
        assert step is not None
        assert step.retry is not None
        context.note(planned.id, number, StepState.RETRY_WAIT, cause=str(cause))
        if context.clock.wait(context.control.cancelled, step.retry.backoff):
            context.note(planned.id, number, StepState.CANCELLED, cause=str(cause))
            return None
    return None


def _in_outage(context: Context, planned: PlannedStep) -> bool:
    """Whether this step of the playbook runs while the baseline has to be down."""
    return planned.baseline_down and not (planned.implicit or planned.final) and context.view.outage


def _once(context: Context, planned: PlannedStep, number: int) -> Cause | None:
    point("before_intent", planned.id)
    context.control.set(
        step=planned.id, attempt=number, is_gate=planned.kind == "gate", implicit=planned.implicit
    )
    attempt = Attempt(context, planned.id, number, planned.limit_s)
    effects = list(planned.effects)
    context.note(planned.id, number, StepState.RUNNING, effects=effects, log=str(attempt.path))
    point("after_intent", planned.id)
    try:
        done = _skip_reason(context, planned.step, attempt)
        if done is None and planned.kind == "gate":
            peaks.before_gate(context, planned, number)
        if done is None and context.guard is not None:
            context.guard.require(planned, attempt)
        if done is None and _in_outage(context, planned):
            step = planned.step
            starts = step is not None and step.content.loaded is not None
            keep_baseline_down(context, attempt, starts=starts)
        done = done or executor(planned.kind)(context, planned, attempt)
        point("after_effect", planned.id)
    except Cancelled:
        _cancelled(attempt, planned)
        return None
    except StepFailed as failed:
        return _fail(attempt, planned, failed)
    except JournalError:
        raise  # nothing can be recorded: the run ends, and the standby brings the baseline back
    except ConsoleError as error:
        return _fail(attempt, planned, _translate(context.plan, error))
    except Exception as error:  # a bug, a full disk: it costs the step, not the runner
        crash.print_exception()
        words = one_line(f"{type(error).__name__}: {error}", 300)
        return _fail(attempt, planned, StepFailed(Cause.INTERNAL, words))
    finally:
        attempt.close()
    state = StepState.SKIPPED if done.skipped else StepState.SUCCEEDED
    warned = {"warned": True} if done.warned else {}
    _end(attempt, planned, state, detail=done.detail, exit_code=done.exit_code, **warned)
    point("after_result", planned.id)
    return None


def _skip_reason(context: Context, step: Step | None, attempt: Attempt) -> Done | None:
    """Skip if `when` is false, fail if `requires` is false, skip if `unless` is true."""
    if step is None:
        return None
    if not step.when:
        return Done("not applicable", skipped=True)
    requires(context, step, attempt)
    if step.unless is None:
        return None
    if step.unless.file is not None:
        path = context.path(step.unless.file)
        least = step.unless.min_bytes or 0
        there = path.is_file() and path.stat().st_size >= least
    else:
        argv = list(step.unless.run or [])
        base = context.plan.playbook.base
        there = succeeds(context, argv, attempt, base, step.environment.activation(base))
    return Done("already done", skipped=True) if there else None


def _cancelled(attempt: Attempt, planned: PlannedStep) -> None:
    """Record the step as cancelled, with the cause if the guard stopped it."""
    verb = attempt.context.control.stop_verb
    data = {"detail": "stopped by the operator"}
    if verb is not None and verb.cause:
        data = {"cause": verb.cause, "detail": f"stopped by {verb.who}: {verb.why}"}
    _end(attempt, planned, StepState.CANCELLED, **data)


def _translate(plan: Plan, error: ConsoleError) -> StepFailed:
    cause = Cause.TIMEOUT if isinstance(error, EngineTimeout) else Cause.START_ERROR
    cause = Cause.PRECONDITION if isinstance(error, InvalidFile) else cause
    lines = [plan.fitting(error.hint)] if error.hint else []
    return StepFailed(cause, one_line(str(error), 400), lines=lines)


def _fail(attempt: Attempt, planned: PlannedStep, failed: StepFailed) -> Cause:
    attempt.close()
    guard = attempt.context.guard
    if guard is not None and failed.cause in LOSSES and guard.struck(attempt):
        failed = StepFailed(Cause.GUARD, f"the sentinel stopped the load; {failed.detail}")
    _end(
        attempt, planned, StepState.FAILED, cause=str(failed.cause), detail=_led(attempt, failed),
        exit_code=failed.exit_code, lines=[clean(line, 400) for line in failed.lines if line][-20:],
    )  # fmt: skip
    return failed.cause


def _led(attempt: Attempt, failed: StepFailed) -> str:
    """A failure's detail, led by the line of the log that explains it."""
    log_line = cause_of([*failed.lines, *attempt.output()])[1] if failed.cause in LOSSES else ""
    return (
        f"{log_line}; {failed.detail}"
        if log_line and log_line not in failed.detail
        else failed.detail
    )


def _end(attempt: Attempt, planned: PlannedStep, state: StepState, **data: object) -> None:
    took = attempt.context.clock.monotonic() - attempt.begun
    peaks.record(attempt.context, planned.id, attempt.number)
    detail = data.pop("detail", "")
    attempt.context.note(
        planned.id, attempt.number, state, duration_s=round(took, 3),
        detail=clean(str(detail), 500), **data,
    )  # fmt: skip
