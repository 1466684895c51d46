"""The end of a run: what is alive is stopped, the baseline is back, and the end is on record."""

from __future__ import annotations

import threading
import traceback
from enum import Enum

from console.common.text import one_line
from console.host.ports import foreign
from console.host.process_spec import ProcessSpec
from console.journal.state import STEP_ENDS, Cause, Decision, RunState, StepState
from console.render.report.document import write_report
from console.runner.attempt import run_attempts
from console.runner.context import Context
from console.runner.executors.doubt import doubt
from console.runner.fault import point
from console.runner.prepare.plan import BASELINE_AGAIN, BASELINE_MEASURE, RESTORE
from console.runner.restoring import bring_back, restored
from console.runtime import proxy
from console.runtime.probe import Health, health

R = RunState
ATTEMPTED = STEP_ENDS | {StepState.FAILED, StepState.IN_DOUBT}
"""A final step is attempted once, and never again by a rollback after the end."""
LOOKS, LOOK_S = 3, 1.0
"""A baseline counts as down after so many looks in vain, with so many seconds between."""
TAIL = (RESTORE, BASELINE_AGAIN)
"""Rows that belong to the end of a run, whatever became of the steps before."""


class Flow(Enum):
    """Where to go after a step."""

    ON = "on"
    END = "end"
    ROLLBACK = "rollback"
    ABORT = "abort"


class Ending:
    """From the last step to the last line of the journal."""

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
                self.context.record(
                    "step.state", RESTORE, state=str(StepState.SKIPPED), detail="nothing is up"
                )
            elif planned.id == BASELINE_AGAIN and not failed and self._measured_before():
                run_attempts(self.context, planned)
                doubt(self.context)
        if not stays and self._must_restore():
            self.roll_back("something is still up, or the baseline does not answer")
        elif self.context.desk.cancelled.is_set():
            self.context.enter(R.CANCELLED, "abort")
        else:
            self.context.enter(R.FAILED if failed else R.SUCCEEDED)

    def _must_restore(self) -> bool:
        """Whether something is up that ends with the run, or the baseline does not answer: it may
        have died without this run's doing, or with the runner that this one goes on for."""
        view = self.context.view
        keeps = {name for name, spec in self.context.plan.services.items() if spec.keep}
        return view.outage or bool(set(view.services) - keeps) or self._is_down()

    def _is_down(self) -> bool:
        base = self.context.plan.site.baseline_spec()
        for number in range(LOOKS):
            if number:
                self.context.clock.sleep(LOOK_S)
            there = health(base.url, base.ready.path)[0] is Health.SERVING
            if there and not (isinstance(base.runs, ProcessSpec) and foreign(base.url) is not None):
                return False
        return True

    def _stays(self) -> bool:
        """Whether the run ends with clients at a candidate: no step is left, nothing speaks
        against it, and candidate and relay live."""
        view, cut = self.context.view, self.context.view.cutover
        if cut.get("what") not in ("stays", "promoted") or self.context.desk.cancelled.is_set():
            return False
        ahead = [p for p in self.context.plan.steps if not (p.final or p.id in TAIL)]
        done = all((s := view.step(p.id)) and s.state is not StepState.PENDING for p in ahead)
        alive = all(self.context.fleet.find(n) for n in (cut["service"], proxy.NAME))
        return done and alive and view.decision in (Decision.GO, Decision.NONE)

    def _stay(self) -> None:
        words = f"clients stay at {self.context.view.cutover['service']}"
        for planned in self.context.plan.steps:
            if planned.id in TAIL:
                self.context.record(
                    "step.state", planned.id, state=str(StepState.SKIPPED), detail=words
                )

    def _measured_before(self) -> bool:
        before = self.context.view.step(BASELINE_MEASURE)
        return before is not None and before.state is StepState.SUCCEEDED

    def _why(self) -> str:
        verb = self.context.desk.stop_verb
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
            self.context.enter(R.ROLLED_BACK, why, "DEGRADED" if result.degraded else "")
        else:
            self.context.enter(R.ROLLBACK_FAILED, why, one_line(result.detail, 300))

    def run_finally(self) -> None:
        """Last, in every case, with their own budget; they cannot change the outcome."""
        point("before_finally")
        self.context.desk.set(cancelled=threading.Event(), step="", attempt=0)
        for planned in self.context.plan.steps:
            view = self.context.view.step(planned.id)
            owed = view is not None and view.state not in ATTEMPTED
            if planned.final and owed:
                run_attempts(self.context, planned)

    def report(self) -> None:
        """Every run leaves a report, whether its playbook asks for one or not; those it asked
        for are written anew, now that the end is known."""
        steps = [p.step for p in self.context.plan.steps if p.kind == "report"]
        copies = [self.context.path(s.report.to) for s in steps if s and s.report and s.report.to]
        try:
            for copy in [None, *copies]:
                write_report(self.context.run, self.context.view, copy)
        except OSError as error:
            text = f"the report could not be written: {error.strerror}"
            self.context.record("run.note", text=text)
        except Exception as error:  # a bug in prose must not keep a run from its end
            traceback.print_exc()
            words = one_line(f"{type(error).__name__}: {error}", 300)
            self.context.record("run.note", text=f"the report could not be written: {words}")
