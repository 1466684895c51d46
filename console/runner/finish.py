"""The end of a run: stop what is running, bring the baseline back, and record the outcome.

The baseline comes back by the same rollback procedure that an emergency uses.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from console.common import crash
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.host.ports import foreign
from console.host.process import ProcessSpec
from console.host.units import UnitSpec
from console.journal import events
from console.journal.state import LOST_AFTER_LAST, STEP_ENDS, Cause, Decision, RunState, StepState
from console.recovery.rollback import observe
from console.recovery.rollback.baseline_state import BY, Witness
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import (
    Result,
    new_trigger,
    quiet_limit,
    through_standby,
)
from console.render.report.document import write_report
from console.runner.attempt import run_attempts
from console.runner.context import Context, outage
from console.runner.executors.gate import doubt
from console.runner.fault import point
from console.runner.prepare.plan import BASELINE_AGAIN, BASELINE_MEASURE, RESTORE
from console.runtime import proxy
from console.runtime.probe import Health, health

STANDBY_WORD_S = 2.0


def bring_back(context: Context, step: str, attempt: int) -> Result:
    """Stop what is running, start and prove the baseline; record every stage in the journal.

    The standby does it, or this process if the standby is gone. The sentinel only warns meanwhile,
    because it is the baseline that fills the memory now.
    """
    if context.guard is None:
        return _bring_back(context, step, attempt)
    context.guard.advisory(True)
    try:
        return _bring_back(context, step, attempt)
    finally:
        context.guard.advisory(False)


def restored(context: Context, seconds: float | None) -> None:
    """Mark the plan's restore row as done after a rollback, so that nobody waits for it."""
    view = context.view.step(RESTORE)
    if view is not None and view.state is StepState.PENDING:
        context.record(
            events.StepStateChange(
                state=StepState.SUCCEEDED, duration_s=seconds, detail="done by the rollback"
            ), RESTORE,
        )  # fmt: skip


def _bring_back(context: Context, step: str, attempt: int) -> Result:

    def emit(line: dict[str, Any]) -> None:
        context.record(events.rung_of(line), step, attempt)

    # The standby holds the plan in memory, should the file be gone.
    result = through_standby(
        context.run.rollback, emit, context.clock,
        first_line_s=STANDBY_WORD_S, quiet_s=lambda: _max_silence_s(context), emergency=False,
    )  # fmt: skip
    if result is None:
        plan = context.way_back()
        trigger = new_trigger(context.clock, emergency=False)
        result = Procedure(plan, clock=context.clock, trigger=trigger, emit=emit).run()
    for name in list(context.services.handles):
        context.services.gone(name)
    record_result(context, result, step, attempt, by=BY[Witness.RESTORE])
    return result


def record_result(
    context: Context, result: Result, step: str = "", attempt: int = 0, *,
    by: str = BY[Witness.ROLLBACK],
) -> None:  # fmt: skip
    """Record in the journal how things stand after a rollback, whoever did it."""
    for name in list(context.view.services):
        context.record(events.Service(service=name, alive=False), step, attempt)
    if context.view.cutover:
        context.run.switched.unlink(missing_ok=True)
        context.record(events.Cutover(what="rolled back"), step, attempt)
    if result.serving:
        context.record(events.Outage(down=False, restore_s=result.restore_s), step, attempt)
        left = {"left": result.left} if result.left else {}
        context.record(
            events.Serving(
                tok_s=result.tok_s, degraded=result.degraded, reference=result.reference, by=by,
                notes=result.notes, **left,
            ), step, attempt,
        )  # fmt: skip
    elif not context.view.outage:
        outage(context, step, attempt)  # whoever took it down, nothing proves it any more


def _max_silence_s(context: Context) -> float:
    """Seconds of silence after which the standby counts as stuck; infinite without a sealed plan on
    disk, because then only the standby can roll back."""
    try:
        return quiet_limit(context.way_back())
    except ConsoleError:
        return math.inf


R = RunState
ATTEMPTED = STEP_ENDS | {StepState.FAILED, StepState.IN_DOUBT}
"""States of a final step that was attempted; a rollback after the end does not repeat it."""
LOOKS, LOOK_S = 3, 1.0
"""A baseline counts as down after so many looks in vain, with so many seconds between."""
TAIL = (RESTORE, BASELINE_AGAIN)
"""Rows that belong to the end of a run, however the steps before ended."""


class Flow(Enum):
    """Where to go after a step."""

    ON = "on"
    END = "end"
    ROLLBACK = "rollback"
    ABORT = "abort"
    AGAIN = "again"
    """Back to the first step that is open again."""


class Ending:
    """What a run does after its last step, up to the last line of the journal."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def close(self, flow: Flow, *, failed: bool) -> None:
        """Bring the run to one of its end states."""
        view = self.context.view
        if flow is Flow.ROLLBACK:
            self.roll_back(self._why())
        elif flow is Flow.ABORT and (view.outage or view.services or self._is_down()):
            self.context.enter(R.STOPPING, "abort")
            self.roll_back("abort")
        elif flow is Flow.ABORT:
            self.context.enter(R.CANCELLED, "abort")
        else:
            self._forward(failed)

    def _forward(self, failed: bool) -> None:
        """Restore what the plan undoes at its end, measure the baseline again, and say the end."""
        stays = not failed and self._stays()
        if stays:
            self._stay()
        for planned in self.context.plan.steps if not stays else ():
            if planned.id == RESTORE and self._must_restore():
                if run_attempts(self.context, planned) is not None:
                    self.context.enter(R.ROLLING_BACK, "restore failed")
                    self.context.enter(R.ROLLBACK_FAILED, "the baseline does not serve")
                    return
            elif planned.id == RESTORE:
                self.context.note(RESTORE, 0, StepState.SKIPPED, detail="nothing is up")
            elif planned.id == BASELINE_AGAIN and not failed and self._measured_before():
                run_attempts(self.context, planned)
                doubt(self.context)
        verb = self.context.control.stop_verb  # it may have come while the baseline came back
        reason = self._why() if verb is not None and verb.verb == "rollback" else ""
        if (reason or not stays) and self._must_restore():
            self.roll_back(reason or "something is still up, or the baseline does not answer")
        elif reason:
            self.context.enter(R.ROLLED_BACK, reason)
        elif self.context.control.cancelled.is_set():
            self.context.enter(R.CANCELLED, "abort")
        else:
            self.context.enter(R.FAILED if failed else R.SUCCEEDED)

    def _must_restore(self) -> bool:
        """Whether something is up that ends with the run, or the baseline does not answer: it may
        have died by itself, or together with an earlier runner of this run."""
        view = self.context.view
        keeps = {name for name, spec in self.context.plan.services.items() if spec.keep}
        return view.outage or bool(set(view.services) - keeps) or self._is_down()

    def _is_down(self) -> bool:
        return not self._tried(self._is_there)

    def _tried(self, answers: Callable[[], bool]) -> bool:
        """Whether it does, at one of so many looks."""
        for number in range(LOOKS):
            if number:
                self.context.clock.sleep(LOOK_S)
            if answers():
                return True
        return False

    def _is_there(self) -> bool:
        base = self.context.plan.site.baseline_spec()
        there = health(base.url, base.ready.path)[0] is Health.SERVING
        local = there and isinstance(base.runs, ProcessSpec | UnitSpec)
        strange = local and foreign(base.url, here=True) is not None
        ours = not strange or observe.answers(self.context.way_back(), known=False)
        return there and ours

    def _stays(self) -> bool:
        """Whether the run ends with clients at a candidate: all steps done, not cancelled, the
        decision is not against it, and candidate and relay are alive."""
        view, cut = self.context.view, self.context.view.cutover
        if cut.what not in ("stays", "promoted") or self.context.control.cancelled.is_set():
            return False
        ahead = [p for p in self.context.plan.steps if not (p.final or p.id in TAIL)]
        done = all((s := view.step(p.id)) and s.state is not StepState.PENDING for p in ahead)
        alive = all(self.context.services.find(n) for n in (cut.service, proxy.NAME))
        return done and alive and view.decision in (Decision.GO, Decision.NONE)

    def _stay(self) -> None:
        words = f"clients stay at {self.context.view.cutover.service}"
        for planned in self.context.plan.steps:
            if planned.id in TAIL:
                self.context.note(planned.id, 0, StepState.SKIPPED, detail=words)

    def _measured_before(self) -> bool:
        before = self.context.view.step(BASELINE_MEASURE)
        return before is not None and before.state is StepState.SUCCEEDED

    def _why(self) -> str:
        verb = self.context.control.stop_verb
        if verb is not None:
            return verb.cause or f"{verb.verb} by {verb.who}"
        step = self.context.view.current
        if step is not None and step.cause == Cause.GUARD:
            return str(Cause.GUARD)
        return f"{step.id}: {step.cause or 'gate'}" if step is not None else ""

    def roll_back(self, why: str) -> None:
        self.context.enter(R.ROLLING_BACK, why)
        point("rolling_back")
        result = bring_back(self.context, "", 0)
        if result.serving:
            restored(self.context, result.restore_s)
            words = ["DEGRADED"] if result.degraded else []
            words += [f"{result.left} still runs beside it"] if result.left else []
            self.context.enter(R.ROLLED_BACK, why, one_line("; ".join(words), 300))
        else:
            self.context.enter(R.ROLLBACK_FAILED, why, one_line(result.detail, 300))

    def look_again(self) -> None:
        """Look at what the end rests on once more, after the last step that could change it: a
        script of `finally` may have stopped the baseline, or the candidate that clients stay at."""
        view, url = self.context.view, self.context.plan.site.model.baseline.url
        if view.state is R.ROLLBACK_FAILED:
            return
        if view.cutover:
            if not self._clients_are_served():
                self.roll_back("the candidate that clients stay at does not answer any more")
            return
        if self._must_restore():
            self.roll_back(LOST_AFTER_LAST)
            return
        known, names = view.serving.fields(), ("tok_s", "degraded", "reference", "by")
        figures = {name: known[name] for name in names if known.get(name) is not None}
        self.context.record(events.Serving(**figures, looked=url))

    def _clients_are_served(self) -> bool:
        services, name = self.context.services, self.context.view.cutover.service
        url, path = self.context.plan.site.model.baseline.url, services.spec(name).ready.path
        alive = all(services.find(service_name) for service_name in (name, proxy.NAME))
        return alive and self._tried(lambda: health(url, path)[0] is Health.SERVING)

    def run_finally(self) -> None:
        """Run the final steps in every case, with their own budget; the outcome stays."""
        point("before_finally")
        self.context.control.set(cancelled=threading.Event(), step="", attempt=0)
        for planned in self.context.plan.steps:
            view = self.context.view.step(planned.id)
            owed = view is not None and view.state not in ATTEMPTED
            if planned.final and owed:
                run_attempts(self.context, planned)

    def report(self) -> None:
        """Write the report that every run leaves; rewrite the ones that its playbook asked for, now
        that the end is known."""
        steps = [p.step for p in self.context.plan.steps if p.kind == "report"]
        copies = [self.context.path(s.report.to) for s in steps if s and s.report and s.report.to]
        try:
            for copy in [None, *copies]:
                write_report(self.context.run, self.context.view, copy)
        except OSError as error:
            text = f"the report could not be written: {error.strerror}"
            self.context.record(events.RunNote(text=text))
        except Exception as error:  # a bug in prose must not keep a run from its end
            crash.print_exception()
            words = one_line(f"{type(error).__name__}: {error}", 300)
            self.context.record(events.RunNote(text=f"the report could not be written: {words}"))
