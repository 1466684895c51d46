"""`cutover`: connect clients of the baseline's port to a candidate, watch, go back or stay."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from queue import SimpleQueue

from console.common.text import one_line
from console.common.units import format_duration
from console.config.playbook.steps import CutoverStep
from console.host.ports import listener
from console.journal.state import Cause
from console.runner import cutover
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.fault import point
from console.runner.prepare.plan import PlannedStep
from console.runtime import proxy
from console.runtime.probe import Completion, Health, complete, health

LOOK_S = 1.0
SETTLE_S = 0.1
"""Wait before a failed look counts: an ending process drops connections before it is gone."""
LOOKS = 3
"""Failed looks in a row that count as the candidate's failure and not as a passing one."""


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Start the relay, prove it, watch, go back or stay. Raises StepFailed; the loop rolls back."""
    cut, url = planned.asked(CutoverStep), context.plan.site.model.baseline.url
    answers(context, cut.to)
    _take_the_port(context, cut, attempt)
    _record(context, attempt, cut, "switched")
    point("cut_over", planned.id)
    context.services.wait(proxy.NAME, attempt)
    proof = _ask(context, url)  # the way a client asks
    if not proof.ok:
        raise StepFailed(Cause.NOT_READY, f"no completion by {cut.to} at {url}: {proof.detail}")
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


def answers(context: Context, name: str) -> None:
    """Prove the candidate at its own address before any client is connected to it."""
    if context.services.find(name) is None:
        raise StepFailed(Cause.PRECONDITION, f"{name} does not run: nothing to cut over to")
    spec = context.services.spec(name)
    done = _ask(context, spec.url)
    if not done.ok:
        raise StepFailed(
            Cause.PRECONDITION, f"{name} answers no completion at {spec.url}: {done.detail}"
        )


def _take_the_port(context: Context, cut: CutoverStep, attempt: Attempt) -> None:
    """Start the relay on the baseline's port, or take over that of a dead runner."""
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
    """Ask for the same completion as from the baseline, but with the candidate's model name."""
    ask = context.plan.site.model.baseline.completion
    return complete(url, prompt=ask.prompt, max_tokens=ask.max_tokens, timeout_s=ask.timeout)


def _record(
    context: Context, attempt: Attempt, cut: CutoverStep, what: str, **more: object
) -> None:
    site = context.plan.site
    to = context.services.spec(cut.to).url
    if what == "back":
        context.run.switched.unlink(missing_ok=True)
    else:
        context.run.switched.touch()
    context.record(
        "cutover", attempt.step, attempt.number, what=what, service=cut.to,
        url=site.model.baseline.url, to=to, **more,
    )  # fmt: skip


@dataclass
class _Watch:
    """Looks once a second, with a completion now and then, until the time is over."""

    context: Context
    cut: CutoverStep
    attempt: Attempt
    asked: int = 0
    errors: int = 0
    missed: int = 0
    seen: int = 0
    slowest_s: float = 0.0
    answers: SimpleQueue[Completion] = field(default_factory=SimpleQueue)
    waiting: bool = False

    def run(self) -> None:
        """Watch to the end. Raises StepFailed if the candidate serves badly, Cancelled on a
        stop."""
        clock = self.context.clock
        begun = clock.monotonic()
        due = begun + self.cut.every
        while (now := clock.monotonic()) - begun < self.cut.watch:
            if now >= due and not self.waiting:
                due = now + self.cut.every
                self._ask()
            left = self.cut.watch - (now - begun)
            self._turn(format_duration(left) + " left", min(LOOK_S, max(0.01, left)))
        if not self.waiting:
            self._ask()
        while self.waiting:
            self._turn("the last one is out", LOOK_S / 10)

    def _turn(self, words: str, pause_s: float) -> None:
        self._look()
        self.attempt.say(f"{self.words()}, {words}")
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
        """Ask in a thread, so that a completion that hangs does not stop the watch."""
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
        self.asked += 1
        self.slowest_s = max(self.slowest_s, done.elapsed_s)
        if done.ok:
            return
        self.errors += 1
        self.attempt.say(f"a completion failed: {one_line(done.detail)}", always=True)
        self.attempt.pause(SETTLE_S)
        self._all_live()
        if self.errors > self.cut.max_errors:
            most = f"at most {self.cut.max_errors} may"
            words = f"{self.errors} of {self.asked} completions failed ({most}): {done.detail}"
            raise StepFailed(Cause.OUTPUT_INVALID, words)

    def words(self) -> str:
        good = self.asked - self.errors
        slow = f", the slowest {format_duration(self.slowest_s)}" if self.asked else ""
        return f"{good} of {self.asked} completions answered{slow}, {self.seen} looks"
