"""The runner: walks the plan one step at a time, each effect between an intent and a result.

It is the only writer of the journal. Verbs come through the control socket; nothing here draws.
"""

from __future__ import annotations

import contextlib
import queue

from console.common import crash
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.config.playbook.steps import Step
from console.journal import events
from console.journal.run_view import GateVerdict
from console.journal.state import STEP_ENDS, Cause, Pause, RunState, StepState
from console.runner.attempt import change_inputs, run_attempts
from console.runner.context import Context
from console.runner.control import Verb
from console.runner.disturbed import Restarts
from console.runner.executors import preload, remeasure
from console.runner.executors.gate import evidence_hash, outcome_name
from console.runner.fault import point
from console.runner.finish import TAIL, Ending, Flow
from console.runner.prepare.plan import BASELINE_MEASURE, PlannedStep

R = RunState


class Runner:
    """One run from its first step to its end."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.control = context.control
        self.failed = False
        self.restarts = Restarts()

    def run(self) -> None:
        """Walk, close, finish. Raises only for a bug or a journal that cannot be written."""
        preload(step.kind for step in self.context.plan.steps)
        state, ending = self.context.view.state, Ending(self.context)
        if state is R.ROLLING_BACK:
            ending.roll_back("continued: the runner died while rolling back")
        elif state is R.STOPPING:
            ending.close(Flow.ABORT, failed=False)
        elif not self.context.view.over:
            self.context.enter(R.RUNNING)
            point("run_started")
            flow = self._guarded_walk()
            ending.close(flow, failed=self.failed)
        if not self.context.view.finished:
            ending.run_finally()
            ending.look_again()
            ending.report()
            self.context.record(events.RunFinished())
        else:
            ending.report()  # a rollback came after the end: the report says what it has changed

    # -- forward ---------------------------------------------------------------------------

    def _guarded_walk(self) -> Flow:
        """Walk the steps; a bug of the console fails the step it occurs in: journal and report name
        it, and everything running is stopped."""
        try:
            return self._walk()
        except (ConsoleError, OSError):
            raise  # the journal cannot be written
        except Exception as error:
            with contextlib.suppress(OSError):
                crash.print_exception()
            self.failed, words = True, f"{type(error).__name__}: {error}"
            self.context.note(
                self.control.step, self.control.attempt, StepState.FAILED,
                cause=str(Cause.INTERNAL),
                detail=one_line(f"an error in this console: {words}", 300),
            )  # fmt: skip
            return Flow.ROLLBACK if self.context.view.outage else Flow.END

    def _walk(self) -> Flow:
        rows, at = list(self.context.plan.steps), 0
        ahead = [row for row in rows if not (row.final or row.id in TAIL)]
        while at < len(ahead):
            flow = self._at(ahead[at])
            if flow is Flow.AGAIN:
                at = self._first_open(ahead)
            elif flow is Flow.ON:
                at += 1
            else:
                return flow
        return Flow.END

    def _first_open(self, rows: list[PlannedStep]) -> int:
        """Where to go on after steps were opened again."""
        still = {v.id for v in self.context.view.steps if v.state is StepState.PENDING}
        return next(at for at, row in enumerate(rows) if row.id in still)

    def _at(self, planned: PlannedStep) -> Flow:
        """One step of the plan, from what the journal says of it."""
        view = self.context.view.step(planned.id)
        if view is not None and view.state in STEP_ENDS:
            # a gate that was judged before the runner died still decides; the rest is done
            done = view.state is StepState.SUCCEEDED
            return self._judged(planned) if done else Flow.ON
        if view is not None and view.state is StepState.IN_DOUBT:
            return self._doubt(planned)
        if view is not None and view.state is StepState.FAILED:
            return self._failed_before(planned, Cause(view.cause or Cause.INTERNAL))
        flow = self._before(planned)
        return self._step(planned) if flow is Flow.ON else flow

    def _before(self, planned: PlannedStep) -> Flow:
        """Pause, or stop for stepping; both take hold only between steps."""
        self.control.set(
            step=planned.id, attempt=0, is_gate=planned.kind == "gate", implicit=planned.implicit
        )
        if self.control.cancelled.is_set():
            return self._stop_flow()
        if _applies(planned) and (self.control.pause_asked or self.control.mode == "step"):
            self.control.set(pause_asked=False)
            verb = self._pause(Pause.OPERATOR, f"before {planned.id}")
            if verb.verb == "skip":
                return self._skip(planned, verb)
            if verb.verb in ("abort", "rollback"):
                return self._stop_flow()
        return Flow.ON

    def _step(self, planned: PlannedStep) -> Flow:
        """Run a step until it is settled; its end and the operator decide what follows."""
        view = self.context.view.step(planned.id)
        if view is not None and view.state is StepState.SKIPPED:
            return Flow.ON
        while True:
            self.restarts.look(self.context)
            failure = run_attempts(self.context, self.context.plan.at(planned.id))
            self.restarts.look(self.context)
            planned = self.context.plan.at(planned.id)
            if self.control.cancelled.is_set():
                return self._stop_flow()
            if failure is None:
                break
            if planned.kind == "restore":
                return Flow.ROLLBACK
            flow = self._on_failure(planned, failure)
            if flow is not None:
                return flow
        return self._judged(planned)

    def _on_failure(self, planned: PlannedStep, cause: Cause) -> Flow | None:
        """Apply the step's `on_failure`; None means: try again."""
        step = planned.step
        policy = step.on_failure if step is not None else "stop"
        up = self.context.view.outage or bool(self.context.view.services)
        if cause is Cause.EXPIRED and self.context.view.outage:
            return Flow.ROLLBACK  # nobody is there and the baseline is down
        if cause is Cause.GUARD and up:
            return Flow.ROLLBACK  # nothing goes on unwatched
        if planned.kind == "cutover":
            return Flow.ROLLBACK  # clients are waiting
        if policy == "continue":
            return Flow.ON
        if policy == "rollback":
            return Flow.ROLLBACK
        if self.context.meta.headless:
            self.failed = True
            return Flow.END
        reason = Pause.APPROVAL_EXPIRED if cause is Cause.EXPIRED else Pause.STEP_FAILED
        return self._settle(planned, self._pause(reason, f"{planned.id}: {cause}"))

    def _settle(self, planned: PlannedStep, verb: Verb) -> Flow | None:
        """Wait for the operator's decision on a failed step; None means: try again."""
        if verb.verb in ("abort", "rollback"):
            return self._stop_flow()
        if verb.verb == "skip":
            return self._skip(planned, verb)
        if verb.verb == "retry":
            self._take_inputs(verb)
        return None

    def _take_inputs(self, verb: Verb) -> None:
        """Go on with other inputs, where the verb brings any, and with a calm guard."""
        change_inputs(self.context, verb.args.get("inputs") or {}, verb.who, verb.why)
        if self.context.guard is not None:
            self.context.guard.again()

    def _failed_before(self, planned: PlannedStep, cause: Cause) -> Flow:
        """Ask again about a step that failed before the runner died; do not repeat it."""
        flow = self._on_failure(planned, cause)
        return self._step(planned) if flow is None else flow

    def _doubt(self, planned: PlannedStep) -> Flow:
        """Ask about a step in doubt: an effect that may have happened is never repeated alone."""
        if self.context.meta.headless:
            self.failed = True
            return Flow.END
        verb = self._pause(Pause.IN_DOUBT, f"{planned.id} may or may not have taken effect")
        flow = self._settle(planned, verb)
        return self._step(planned) if flow is None else flow

    def _judged(self, planned: PlannedStep) -> Flow:
        """Where a finished step leads; one that its `when` left out has judged nothing."""
        view = self.context.view.step(planned.id)
        skipped = view is not None and view.state is StepState.SKIPPED
        if planned.id == BASELINE_MEASURE and not (skipped or self.context.meta.headless):
            return self._baseline_measured(planned)
        if planned.step is None or skipped:
            return Flow.ON
        # a benchmark and a soak judge a server, too, where it answers garbage
        verdict = next((v for v in self.context.view.verdicts if v.step == planned.id), None)
        return Flow.ON if verdict is None else self._after_gate(planned, planned.step, verdict)

    def _baseline_measured(self, planned: PlannedStep) -> Flow:
        """Ask before an outage and a trial whose gate could only be HOLD, for want of samples of
        the baseline; without anybody to ask the run goes on."""
        few = remeasure.too_few_of_baseline(self.context)
        if not few:
            return Flow.ON
        self.control.set(step=planned.id, implicit=True, is_gate=False)
        verb = self._pause(Pause.FEW_BASELINE, few, remeasure.BASELINE_AGAIN)
        if verb.verb in ("abort", "rollback"):
            return self._stop_flow()
        if verb.verb in ("retry", "measure"):
            self._take_inputs(verb)
            self.context.record(events.Again(steps=[planned.id]), planned.id)
            return Flow.AGAIN
        return Flow.ON

    def _after_gate(self, planned: PlannedStep, step: Step, verdict: GateVerdict) -> Flow:
        if verdict.verdict == "NO-GO":
            if step.on_no_go == "rollback":
                return Flow.ROLLBACK
            return Flow.ON if step.on_no_go == "continue" else Flow.END
        if verdict.verdict == "HOLD":
            return self._hold(planned, step)
        if self.control.mode == "gate" and planned.kind == "gate":
            self.control.set(pause_asked=True)
        return Flow.ON

    def _hold(self, planned: PlannedStep, step: Step) -> Flow:
        if step.on_hold == "rollback":
            return Flow.ROLLBACK
        if self.context.meta.headless:
            return Flow.END
        self.control.set(evidence=evidence_hash(self.context.view))
        again = remeasure.offer(self.context, planned)
        reason = Pause.FEW_SAMPLES if again.steps else Pause.HOLD
        verb = self._pause(reason, again.detail, again.words)
        if verb.verb == "measure":
            self._take_inputs(verb)
            remeasure.begin(self.context, planned)
            return Flow.AGAIN
        if verb.verb == "approve":
            from console.config.playbook.verdict import Verdict

            self.context.record(
                events.Verdict(
                    verdict=str(Verdict.GO), outcome=outcome_name(step, Verdict.GO),
                    criteria=next(
                        v.criteria for v in self.context.view.verdicts if v.step == planned.id
                    ),
                    overridden=f"{verb.who}: {verb.why}",
                ), planned.id,
            )  # fmt: skip
            return Flow.ON
        flow = self._settle(planned, verb)
        return self._step(planned) if flow is None else flow

    def _skip(self, planned: PlannedStep, verb: Verb) -> Flow:
        detail = f"by {verb.who}: {verb.why}"
        self.context.note(planned.id, self.control.attempt, StepState.SKIPPED, detail=detail)
        return Flow.ON

    def _pause(self, reason: Pause, detail: str, offer: str = "") -> Verb:
        """Wait until a verb comes that moves on."""
        self.context.enter(R.PAUSED, str(reason), detail, offer)
        while True:
            try:
                verb = self.control.inbox.get(timeout=0.2)
            except queue.Empty:
                continue
            if verb.verb not in ("abort", "rollback"):
                self.context.enter(R.RUNNING)
            return verb

    def _stop_flow(self) -> Flow:
        verb = self.control.stop_verb
        return Flow.ROLLBACK if verb is not None and verb.verb == "rollback" else Flow.ABORT


def _applies(planned: PlannedStep) -> bool:
    """Whether a step is not left out by its `when`: before one that is, nobody has to decide."""
    return planned.step is None or planned.step.when
