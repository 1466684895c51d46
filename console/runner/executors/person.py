"""`approval` and `manual`: a person answers within the time, on the evidence shown; Enter alone
never does. `note` and `report`: words for a person."""

from __future__ import annotations

import queue

from console.common.text import one_line
from console.common.units import format_duration
from console.config.playbook.steps import Approval, Manual, Report
from console.host import process
from console.host.children import Cancelled
from console.host.memory import pids_of_container
from console.journal import events
from console.journal.state import Cause, RunState
from console.render.report.document import write_report
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.check import ask
from console.runner.executors.gate import evidence_hash
from console.runner.fault import point
from console.runner.prepare.plan import PlannedStep

POLL_S, LOOK_S = 0.2, 2.0
"""Seconds between two looks for an answer, and between two at what the question is about."""


def approve(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Wait for approve or reject. Raises StepFailed: rejected, or expired."""
    step = planned.section(Approval)
    if context.meta.yes:
        approval = events.Verb(verb="approve", who=context.meta.owner, why="--yes")
        context.record(approval, planned.id, attempt.number)
        return Done("approved by --yes")
    return wait(context, attempt, step.prompt, step.expires, step.confirm)


def manual(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """The operator acts elsewhere and says so; then the step's check confirms that it is done."""
    step = planned.section(Manual)
    if context.meta.yes and step.verify is not None:
        done = Done("--yes: only verified")
    elif context.meta.yes:
        raise StepFailed(
            Cause.PRECONDITION, "--yes cannot do a manual step that has nothing to verify it"
        )
    else:
        done = wait(context, attempt, step.do, step.expires, "")
    if step.verify is not None:
        return Done(f"{done.detail}; {ask(context, step.verify, attempt)}")
    return done


def wait(context: Context, attempt: Attempt, prompt: str, expires_s: float, confirm: str) -> Done:
    """Ask, and wait for approve or reject; `confirm`, if not empty, has to be typed."""
    control, clock = context.control, context.clock
    begun = clock.monotonic()
    deadline, look_at, ended = begun + expires_s, begun, set[str]()
    # before the journal says so: whoever reads the question there may answer it at once
    control.set(
        state=RunState.WAITING_APPROVAL, evidence=evidence_hash(context.view), confirm=confirm
    )
    try:
        context.record(
            events.RunStateChange(
                state=RunState.WAITING_APPROVAL, detail=one_line(prompt, 300),
                until=clock.now() + expires_s,
            )
        )  # fmt: skip
        point("in_approval", attempt.step)
        while True:
            attempt.remaining()
            try:
                verb = control.inbox.get(timeout=POLL_S)
            except queue.Empty:
                if clock.monotonic() >= look_at:
                    ended |= _say_ended(context, attempt, ended)
                    look_at = clock.monotonic() + LOOK_S
                if clock.monotonic() >= deadline:
                    text = f"nobody answered within {format_duration(expires_s)}"
                    raise StepFailed(Cause.EXPIRED, text) from None
                continue
            if verb.verb == "approve":
                return Done(f"approved by {verb.who}" + (f": {verb.why}" if verb.why else ""))
            if verb.verb == "reject":
                raise StepFailed(Cause.GATE, f"rejected by {verb.who}: {verb.why or 'no reason'}")
            if verb.verb in ("abort", "rollback"):
                raise Cancelled(attempt.step)
    finally:
        control.set(evidence="", confirm="", state=RunState.RUNNING)
        context.record(events.RunStateChange(state=RunState.RUNNING))


def _say_ended(context: Context, attempt: Attempt, named_services: set[str]) -> set[str]:
    """Say which services of the run have ended while the question is open: whoever answers it
    believes that they serve. An engine that hangs must not keep an answer waiting, so it is asked
    only why one ended, once."""
    ended = set[str]()
    for name, handle in context.services.handles.items():
        runs = process.alive(handle.pid, handle.start) if handle.pid else True
        if handle.container:
            runs = bool(pids_of_container(handle.container))
        if runs or name in named_services:
            continue
        ended.add(name)
        if why := context.services.explain(name):
            attempt.say(f"meanwhile {why.detail}", always=True)
    return ended


def note(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Show a note and keep it in the journal."""
    return Done(one_line(planned.section(str), 300))


def report(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Write the run's report into its directory, and to `to` if given."""
    to = planned.section(Report).to
    copy = context.path(to) if to else None
    try:
        path = write_report(context.run, context.view, copy)
    except OSError as error:
        where = one_line(str(error.filename or copy))
        raise StepFailed(Cause.OUTPUT_INVALID, f"{where}: {error.strerror}") from error
    return Done(str(path))
