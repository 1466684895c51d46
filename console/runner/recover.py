"""A run whose runner died: settles what its journal left open before anything continues."""

from __future__ import annotations

import contextlib
import os

from console.common.errors import BaselineNotReady, ConsoleError, InvalidFile, UsageError
from console.config.playbook.steps import KINDS
from console.host import cgroup, process
from console.host.licence import Licence, Reason, Refused, stop_group
from console.journal import events
from console.journal.breach import step_cause
from console.journal.run_dir import RunDir
from console.journal.run_files import read_view, unrecorded_end
from console.journal.run_view import StepView
from console.journal.state import ENDS, Cause, RunState, StepState
from console.recovery.guard.config import ALLOCATION
from console.recovery.rollback import live
from console.recovery.rollback.progress import (
    PROGRESS_FILE,
    SCRIPT,
    read_lines,
    result_of,
    who_asked,
)
from console.recovery.rollback.sealed_plan import of_run
from console.recovery.rollback.stages.fence import marked
from console.recovery.rollback.standby import LEASE
from console.runner.context import Context
from console.runner.finish import record_result, restored
from console.runner.guard.client import WHO, record_breach, unrecorded_breach
from console.runner.guard.process import is_watched
from console.runner.services import handle_of
from console.runtime import proxy
from console.runtime.docker.client import ask
from console.runtime.docker.engine_state import stop_container
from console.runtime.spec import RUN_LABEL, SERVICE_LABEL, Handle, role_label

UP = ("process", "step")
"""Kinds in live.jsonl that must never be left without a guard."""
LEFTOVER_GRACE_S = 2.0
OPEN = frozenset({StepState.RUNNING, StepState.RETRY_WAIT})


def settle_intents(context: Context, from_step: str = "") -> None:
    """Settle each intent without a result: repeatable steps run again, and so do those with
    `unless`; the others become in_doubt for the operator. From `from_step` on all run again."""
    again = False
    for view in list(context.view.steps):
        if context.view.over and not view.final:
            continue  # the outcome stands; only `finally` is still owed
        again = again or view.id == from_step
        if again:
            _note(context, view, StepState.PENDING, "resumed from here")
            continue
        if view.state not in OPEN and view.state is not StepState.CANCELLED:
            continue
        end_leftovers(context, view.id)
        planned = context.plan.at(view.id)
        step = planned.step
        proven = step is not None and (step.idempotent or step.unless is not None)
        if KINDS[planned.kind].repeatable or proven:
            _note(context, view, StepState.PENDING, f"{planned.kind}: run again")
        else:
            words = "the runner died during it: it may or may not have taken effect"
            _note(context, view, StepState.IN_DOUBT, words)


def end_leftovers(context: Context, step: str) -> None:
    """End what a dead runner's step left running, before its second attempt starts."""
    for pid, start in process.by_cookie(context.run.id, step):
        _end(context, Licence(Reason.STEP, context.run.id), pid, start)
    planned = context.plan.at(step)
    if planned.step is None or planned.step.where is None or planned.step.where.image is None:
        return
    labels = [f"{RUN_LABEL}={context.run.id}", f"{SERVICE_LABEL}={step}", f"{role_label()}=oneoff"]
    client = context.services.client
    containers = ask("Listing leftovers", lambda: client.containers.list(filters={"label": labels}))
    for container in containers:
        handle = Handle(step, "oneoff", container=str(container.id), name=str(container.name))
        why = Licence(Reason.STEP, context.run.id)
        stop_container(client, why, handle, LEFTOVER_GRACE_S, context.clock)


def end_unrecorded(context: Context) -> None:
    """End processes and containers with the run's mark but no record: the runner died between
    starting a candidate and naming it, and nothing else would ever end or adopt it. A container is
    recorded before it starts, so processes inside one do not count."""
    entries = [entry for entry in live.read(context.run.live) if entry.pid]
    known = {os.getpid(), *(entry.pid for entry in entries)}
    for entry in entries:
        known |= {
            member.pid for member in process.members(entry.pid, entry.start, cookie=context.run.id)
        }
        group = cgroup.of(entry.group, entry.pid, entry.start) if entry.group else None
        known |= set(cgroup.pids(group.path)) if group is not None else set()
    for pid, start in marked(context.run.id):
        if not known & process.ancestry(pid):
            _end(context, Licence(Reason.COOKIE, context.run.id), pid, start)


def _end(context: Context, why: Licence, pid: int, start: int) -> None:
    """End what the run left running; what has no licence is named, and left alone."""
    try:
        stop_group(why, pid, start, grace_s=LEFTOVER_GRACE_S, clock=context.clock)
    except Refused as error:
        context.record(events.RunNote(text=str(error)))


def _recorded(context: Context) -> dict[str, Handle]:
    """Services that may be alive: those of the journal, and those found only in live.jsonl because
    the runner died between the effect and its event."""
    handles: dict[str, Handle] = {}
    for entry in live.read(context.run.live):
        if entry.kind in ("process", "container") and entry.name in context.plan.services:
            handles[entry.name] = Handle(
                entry.name, entry.kind, entry.container, entry.name, entry.pid, entry.start
            )
    for name, service in context.view.services.items():
        handle = handle_of(service)
        if handle is not None:  # nobody can say what it is: what live.jsonl knows of it stands
            handles[name] = handle
    return handles


def adopt_services(context: Context) -> None:
    """Take over services that survived their runner, with a new tailer each."""
    for name, handle in _recorded(context).items():
        try:
            alive = context.services.driver(name).status(handle).alive
        except ConsoleError:
            alive = False
        if alive:
            context.services.adopt(name, handle)
        else:
            context.record(events.Service(service=name, alive=False))


def refuse_resume(run: RunDir) -> None:
    """Refuse to resume a run that a rollback ended without the journal (which still lists its
    services as up), and any run while clients of its baseline are at another run's candidate.
    Raises UsageError and BaselineNotReady."""
    try:
        view = read_view(run)
    except (ConsoleError, OSError):
        return  # the journal is read once more, with the run announced, and speaks for itself
    if end := unrecorded_end(run, view):
        closing = ("its journal is being closed", "omni-console show; start a new run")
        if str(end.get("trigger")).startswith(SCRIPT):  # it needs no Python, so it starts none
            closing = ("rollback.sh does not close its journal", "omni-console rollback does")
        raise UsageError(f"a rollback has ended run {run.id}", *closing)
    with contextlib.suppress(InvalidFile, OSError):
        url = of_run(run.path).baseline.url
        other = proxy.at(url)
        if other is not None and other.run not in ("", run.id):
            raise BaselineNotReady(
                "no run resumes: the baseline does not serve",
                f"{other.service} answers at {url}, by the cutover of {other.run}",
                "omni-console rollback ends that cutover",
            )


def is_unguarded(run: RunDir) -> bool:
    """Whether an unfinished run has something up, or the baseline down, and no sentinel. An
    unreadable journal counts as yes: a needless rollback does no harm."""
    if is_watched(run):
        return False
    try:
        view = read_view(run)
    except Exception:
        return True
    alive = (process.alive(e.pid, e.start) for e in live.read(run.live) if e.kind in UP)
    up = view.outage or bool(view.services) or not view.seq or any(alive)
    return up and not view.over


def close_after_rollback(context: Context) -> None:
    """Record in the journal what an emergency rollback did without a runner."""
    lines, _ = read_lines(context.run.rollback / PROGRESS_FILE)
    last = [line for line in lines if line.get("rung") == "done"]
    if not last:
        raise ConsoleError("no rollback is recorded for this run", str(context.run.path))
    trigger = last[-1].get("trigger")
    breach = unrecorded_breach(context)
    detail, cause, why = "stopped by the rollback", "", "emergency"
    if str(trigger).startswith(f"{LEASE}-"):  # the standby counted it: no sentinel lived
        detail, cause, why = "stopped by the lease", str(Cause.EXPIRED), LEASE
    if breach is not None:
        actor = {LEASE: "the lease", ALLOCATION: "Slurm"}.get(breach.cause, WHO)
        detail, cause = f"stopped by {actor}: {breach.words}", str(step_cause(breach))
        why = breach.cause
        record_breach(context, breach)
    for view in context.view.steps:
        if view.state in OPEN:
            _note(context, view, StepState.CANCELLED, detail, cause)
    result = result_of(last[-1])
    healed = context.view.state is RunState.ROLLBACK_FAILED and result.serving
    ended = context.view.state in ENDS and not healed
    who = who_asked(context.run.rollback) or "the emergency key"
    who, reason = (WHO, breach.words) if breach is not None else (who, why)
    context.record(events.Verb(verb="rollback", who=who, why=reason))
    if not ended:
        context.record(events.RunStateChange(state=RunState.ROLLING_BACK, reason=why))
    for line in lines:
        if line.get("trigger") == trigger:
            context.record(events.rung_of(line))
    record_result(context, result)
    if result.serving:
        restored(context, result.restore_s)
    if not ended:
        state = RunState.ROLLED_BACK if result.serving else RunState.ROLLBACK_FAILED
        context.record(events.RunStateChange(state=state, reason=why, detail=result.detail))
    context.control.set(state=context.view.state)


def _note(context: Context, view: StepView, state: StepState, detail: str, cause: str = "") -> None:
    context.note(view.id, view.attempt, state, detail=detail, cause=cause)
