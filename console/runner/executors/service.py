"""Who serves. `service`: start, stop, or wait until ready. `cutover`: clients on the baseline's
port reach a candidate, are watched, and go back or stay.

The baseline's outage and its end are effects of their own, never hidden inside another step.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from console.common.progress import Figures
from console.common.text import one_line
from console.common.units import format_duration
from console.config.playbook.steps import CutoverStep, ServiceStep
from console.host.licence import Refused
from console.host.ports import held_words, listener
from console.journal import events
from console.journal.state import Cause
from console.runner import cutover
from console.runner.context import Attempt, Context, Done, StepFailed, outage, wait_released
from console.runner.fault import point
from console.runner.finish import bring_back
from console.runner.prepare.plan import PlannedStep
from console.runner.services import refuse_stranger
from console.runtime import proxy
from console.runtime.answers.completion import Completion, prove
from console.runtime.probe import Health, health
from console.runtime.spec import ContainerSpec, memory_limit

LOOK_S = 1.0
SETTLE_S = 0.1
"""A process that ends drops its connections a moment before it is gone."""
LOOKS = 3
"""Looks in a row without a good answer before it is the candidate and not a moment."""
MAX_GARBLED = 2
"""Garbled answers in a row that end a cutover, however many completions may fail."""


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Start and wait-ready, wait-ready alone, or stop. Raises StepFailed with cause and log."""
    step = planned.section(ServiceStep)
    name, verb = step.target, step.verb
    if verb == "stop":
        stopped = context.services.stop(name, attempt)
        return Done(f"{name} stopped" if stopped else f"{name} was not running")
    if verb == "start":
        if context.services.take_over(name, attempt):
            attempt.say(f"{name} runs already, with the same specification", always=True)
        else:
            refuse_answered(context, name)
            _warn_unlimited(context, name, attempt)
            context.services.start(name, attempt)
    waited = context.services.wait(name, attempt)
    refuse_stranger(context, name)
    return Done(f"{name} ready after {format_duration(waited)}")


def refuse_answered(context: Context, name: str) -> None:
    """Refuse to start a candidate while something answers at its address, since that would be
    measured in its place."""
    spec = context.services.spec(name)
    state, _ = health(spec.url, spec.ready.path)
    if state is not Health.REFUSED:
        held = held_words(spec.url)
        raise StepFailed(
            Cause.PRECONDITION, f"something answers at {spec.url} before {name} is started: "
            + (held or str(state)),
        )  # fmt: skip


def _warn_unlimited(context: Context, name: str, attempt: Attempt) -> None:
    runs = context.services.spec(name).runs
    if isinstance(runs, ContainerSpec) and memory_limit(runs.memory_bytes) is None:
        attempt.say(f"{name} has no memory limit: set `memory:` to protect the host", always=True)


def stop_baseline(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Stop the baseline and wait for its GPU memory; the journal has the outage beforehand."""
    if _for_cutover(context, planned):
        _answers(context, planned.service)
    elif planned.service:
        context.services.can_start(planned.service)  # no outage for what could be known before
    outage(context, attempt.step, attempt.number)
    begun = context.clock.monotonic()
    try:
        stopped = context.services.stop("baseline", attempt)
    except Refused as error:
        # nothing has been signalled: it serves as before
        context.record(events.Outage(down=False), attempt.step, attempt.number)
        raise StepFailed(Cause.PRECONDITION, str(error)) from error
    point("baseline_stopped")
    url = context.plan.site.model.baseline.url
    if (
        not stopped
        and health(url, context.plan.site.model.baseline.ready.http)[0] is Health.SERVING
    ):
        raise StepFailed(Cause.PRECONDITION, f"the server at {url} could not be stopped")
    released = wait_released(context, attempt)
    took = format_duration(context.clock.monotonic() - begun)
    return Done(f"baseline stopped in {took}; {released}")


def _for_cutover(context: Context, planned: PlannedStep) -> bool:
    rows = context.plan.steps
    after = rows[rows.index(planned) + 1 :]
    return bool(after) and after[0].kind == "cutover"


def restore(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Stop what the run left running and bring the baseline back, by the rollback procedure."""
    point("before_restore")
    result = bring_back(context, planned.id, attempt.number)
    if not result.serving or result.left:
        raise StepFailed(
            Cause.NOT_READY, result.detail or "the baseline does not serve",
            lines=list(result.manual),
        )  # fmt: skip
    took = f" after {format_duration(result.restore_s)}" if result.restore_s is not None else ""
    slow = " DEGRADED: below its reference" if result.degraded else ""
    rate = f", {result.tok_s:.1f} tok/s" if result.tok_s is not None else ""
    return Done("; ".join([f"baseline serving{took}{rate}{slow}", *result.notes]))


def cut_over(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Relay up, completion, watch, then back or stay. Raises StepFailed; its caller rolls back."""
    cut, url = planned.section(CutoverStep), context.plan.site.model.baseline.url
    _answers(context, cut.to)
    _take_the_port(context, cut, attempt)
    _record(context, attempt, cut, "switched")
    point("cut_over", planned.id)
    context.services.wait(proxy.NAME, attempt)
    refuse_stranger(context, proxy.NAME)  # who shares the port would get a part of the clients
    proof = _ask(context, url)  # the way a client asks
    if not proof.ok:
        what = "garbage from" if proof.garbled is not None else "no completion by"
        raise StepFailed(Cause.NOT_READY, f"{what} {cut.to} at {url}: {proof.why}")
    _record(context, attempt, cut, "proven", tok_s=proof.decode_tok_s)
    attempt.say(f"clients reach {cut.to}: {proof.detail}", always=True)
    point("in_watch", planned.id)
    watch = _Watch(context, cut, attempt)
    watch.run()
    words = f"{watch.words()} at {url}"
    if cut.stays:
        _record(context, attempt, cut, "stays")
        return Done(f"clients stay at {cut.to}, not promoted; {words}")
    context.services.stop(proxy.NAME, attempt)
    _record(context, attempt, cut, "back")
    return Done(f"{words}; the relay ended, the baseline is next")


def _answers(context: Context, name: str) -> None:
    """No client is given what does not answer at its own address. Raises StepFailed."""
    if context.services.find(name) is None:
        raise StepFailed(Cause.PRECONDITION, f"{name} does not run: nothing to cut over to")
    spec = context.services.spec(name)
    done = _ask(context, spec.url)
    if not done.ok:
        what = "garbage" if done.garbled is not None else "no completion"
        raise StepFailed(Cause.PRECONDITION, f"{name} answers {what} at {spec.url}: {done.why}")


def _take_the_port(context: Context, cut: CutoverStep, attempt: Attempt) -> None:
    """The relay listens where the baseline did; one of a dead runner is taken over."""
    services, site = context.services, context.plan.site
    services.use(cutover.relay_spec(site, cut, services.spec(cut.to)))
    if services.take_over(proxy.NAME, attempt):
        attempt.say("the relay is there already", always=True)
        return
    url = site.model.baseline.url
    state, detail = health(url, site.model.baseline.ready.http)
    if state is not Health.REFUSED:
        who = listener(url)
        what = f"process {who.pid} ({who.words})" if who else "something"
        raise StepFailed(
            Cause.PRECONDITION, f"{what} holds the production port {url}: {one_line(detail)}"
        )
    services.start(proxy.NAME, attempt)


def _ask(context: Context, url: str) -> Completion:
    """The completion that proves a baseline; the candidate has its own model's name."""
    ask = context.plan.site.model.baseline.completion
    return prove(
        url, prompt=ask.prompt, max_tokens=ask.max_tokens, timeout_s=ask.timeout, expect=ask.expect
    )


def _record(context: Context, attempt: Attempt, cut: CutoverStep, what: str, **proof: Any) -> None:
    site = context.plan.site
    to = context.services.spec(cut.to).url
    if what == "back":
        context.run.switched.unlink(missing_ok=True)
    else:
        context.run.switched.write_text(f"{cut.to}\n")
    context.record(
        events.Cutover(what=what, service=cut.to, url=site.model.baseline.url, to=to, **proof),
        attempt.step, attempt.number,
    )  # fmt: skip


@dataclass
class _Watch:
    """Looks once a second, a completion now and then, until the time is over."""

    context: Context
    cut: CutoverStep
    attempt: Attempt
    completions: int = 0
    errors: int = 0
    garbled: int = 0
    """Garbled answers in a row."""
    missed: int = 0
    seen: int = 0
    slowest_s: float = 0.0
    answers: SimpleQueue[Completion] = field(default_factory=SimpleQueue)
    waiting: bool = False

    def run(self) -> None:
        """Raises StepFailed where clients are not served well, Cancelled when it is stopped."""
        clock = self.context.clock
        begun = clock.monotonic()
        due = begun + self.cut.every
        while (now := clock.monotonic()) - begun < self.cut.watch:
            if now >= due and not self.waiting:
                due = now + self.cut.every
                self._ask()
            left = self.cut.watch - (now - begun)
            words = format_duration(left) + " left"
            self._turn(words, min(LOOK_S, max(0.01, left)), now - begun)
        if not self.waiting:
            self._ask()
        while self.waiting:
            self._turn("the last request is still out", LOOK_S / 10, self.cut.watch)

    def _turn(self, words: str, pause_s: float, gone_s: float) -> None:
        self._look()
        self.attempt.say(f"{self.words()}, {words}", Figures(gone_s, self.cut.watch, "s"))
        self.attempt.pause(pause_s)
        while not self.answers.empty():
            self._take(self.answers.get())

    def _look(self) -> None:
        services, base = self.context.services, self.context.plan.site.model.baseline
        self._all_live()
        state, detail = health(base.url, services.spec(self.cut.to).ready.path)
        self.seen += 1
        self.missed = 0 if state is Health.SERVING else self.missed + 1
        if self.missed:
            self.attempt.pause(SETTLE_S)
            self._all_live()
        if self.missed >= LOOKS:
            words = f"{self.missed} looks at {base.url} in a row: {state}, {detail}"
            raise StepFailed(Cause.NOT_READY, words)

    def _all_live(self) -> None:
        for name in (self.cut.to, proxy.NAME):
            failed = self.context.services.explain(name)
            if failed is not None:
                raise failed

    def _ask(self) -> None:
        """In a thread: a completion that hangs must not keep anybody from looking."""
        self.waiting = True
        url = self.context.plan.site.model.baseline.url

        def ask() -> None:
            try:
                done = _ask(self.context, url)
            except Exception as error:  # the thread's last line of defence: it is an answer too
                done = Completion(False, f"{type(error).__name__}: {error}", "", 0, 0.0, None)
            self.answers.put(done)

        threading.Thread(target=ask, name="cutover-ask", daemon=True).start()

    def _take(self, done: Completion) -> None:
        self.waiting = False
        self.completions += 1
        self.slowest_s = max(self.slowest_s, done.elapsed_s)
        self.garbled = self.garbled + 1 if done.garbled is not None else 0
        if done.ok:
            return
        self.errors += 1
        self.attempt.say(f"a completion failed: {one_line(done.why)}", always=True)
        self.attempt.pause(SETTLE_S)
        self._all_live()
        if self.errors > self.cut.max_errors:
            most = f"at most {self.cut.max_errors} may"
            words = f"{self.errors} of {self.completions} completions failed ({most}): {done.why}"
            raise StepFailed(Cause.OUTPUT_INVALID, words)
        if self.garbled >= MAX_GARBLED:
            words = f"{self.garbled} answers of {self.cut.to} in a row are garbage: {done.why}"
            raise StepFailed(Cause.OUTPUT_INVALID, words)

    def words(self) -> str:
        good = self.completions - self.errors
        slow = f", the slowest {format_duration(self.slowest_s)}" if self.completions else ""
        return f"{good} of {self.completions} completions answered{slow}, {self.seen} looks"
