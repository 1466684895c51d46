"""Stages ready, completion and measure check the baseline: health, completion and speed."""

from __future__ import annotations

import contextlib
from pathlib import Path

from console.common.errors import ConsoleError
from console.common.logs.cause import PORT, cause_of
from console.common.progress import Figures
from console.common.text import one_line
from console.common.units import format_duration
from console.host.ports import held_words
from console.host.process import BASELINE_COOKIE
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.observe import OWNER_S
from console.recovery.rollback.progress import StageName
from console.recovery.rollback.stages.start import Baseline
from console.recovery.rollback.stages.stop import sweep
from console.runtime.engine_api import elsewhere_hint, published_elsewhere
from console.runtime.loading import Loading, of_service
from console.runtime.probe import Health, busy, complete, health
from console.runtime.spec import ExistingContainer, Handle

FIRST_PAUSE_S = 0.005
LAST_PAUSE_S = 0.5
LOOK_S = 0.5
"""Seconds between two checks of whether the container still runs."""
HUNG_S = 60.0
"""Seconds without an answer after which a server that ran before this rollback counts as hung. The
first completion gets no more time, either. If it fails, and the health path does not answer either,
the server counts as hung; one that is only slow is asked again, with its whole timeout."""
ELSEWHERE_S = 10.0
"""Seconds for which a process answers at another port, and nothing at its URL, before its URL
counts as wrong: a start script's engine may be ready before the proxy in front of it."""
FAILED_S = 10.0
"""Seconds to wait for a container whose start failed, as the engine may just have been late."""
BETWEEN_S = 5.0
"""Seconds for which a start script may run no client of its engine, between two of them."""
NOTE_S = 2.0
"""Seconds between two reports of how far a load is."""
COMPLETION_TRIES = 2
READ_BACK, LAST_LINES = 200, 5
"""Lines of the baseline's log in which its end is explained, and that are shown if none does."""
MEASURED_RUNS = 2
MEASURED_TOKENS = 64


class Readiness:
    """Waits for the baseline and proves that it serves. It restarts it once, if that may help."""

    def __init__(self, context: RollbackContext, baseline: Baseline) -> None:
        self.context = context
        self.baseline = baseline
        self.plan = context.plan.baseline
        self.restarted = False
        self.served = False
        """It was proven since its last start, so that silence does not mean loading any more."""
        self.elsewhere_since: float | None = None
        """Since when the baseline answers at another port; None while it does not."""
        self.looked_at = 0.0
        """When it was last looked at whether it runs, and where."""
        self.misplaced = False
        """The baseline runs, but at another port, or something else has its port. A restart would
        only load the model again and change nothing."""
        self._far: Figures | None = None
        self._far_at = 0.0
        self._loads: tuple[str, Loading] | None = None

    def prove(self) -> bool:
        """Run the stages ready and completion, again after a restart; return whether it serves."""
        if self.baseline.gone:
            self.context.report.skipped("ready", "there is no container to wait for")
            return False
        while True:
            self.misplaced = False
            trouble = self._ready()
            life = self.baseline.life()
            trouble = trouble or self._completion() or self._not_the_baseline(life)
            if not trouble:
                self.served = True
                return True
            stage, detail = trouble
            if self.restarted or self.misplaced:
                self.context.fail(stage, detail)
                return False
            self.restarted, self.served = True, False
            self.context.report.note(stage, f"{detail}; restarting it once")
            try:
                self.context.report.note("start", self.baseline.restart())
            except ConsoleError as error:
                self.context.fail(stage, f"{error}; before the restart: {detail}")
                return False

    def _ready(self) -> tuple[StageName, str] | None:
        """Poll the health path. Return None when the baseline serves, else stage and reason."""
        clock, report, plan = self.context.clock, self.context.report, self.plan
        limit_s = self._limit_s()
        report.begin("ready", f"waiting for up to {format_duration(limit_s)}")
        begun = self.looked_at = clock.monotonic()
        hung_since, pause, said = begun, FIRST_PAUSE_S, ""
        self.elsewhere_since = None
        while True:
            state, detail = health(plan.url, plan.ready_path)
            now = clock.monotonic()
            if state is Health.SERVING and not self.baseline.is_ours(OWNER_S):
                if not self.baseline.may_be_published():
                    return "ready", self._explain_stranger()
                state, detail = (
                    Health.LOADING,
                    "a container holds its port, and its start script is still busy",
                )
            if state is Health.SERVING:
                report.ok("ready", f"after {format_duration(now - begun)}")
                sweep(self.context, "after ready")
                return None
            said = self._tell(said, state, detail)
            loads = (self.baseline.started or self.restarted) and not self.served
            if state is not Health.UNHEALTHY or loads:
                hung_since = now
            if now - hung_since >= HUNG_S:
                return "ready", f"no answer for {format_duration(HUNG_S)}: {detail}"
            if in_vain := self._in_vain(state, now):
                return "ready", in_vain
            if now - begun >= limit_s:
                waited = format_duration(limit_s)
                return "ready", f"not ready after {waited}: {state}, {detail}"
            clock.sleep(min(pause, max(0.001, begun + limit_s - now)))
            pause = min(LAST_PAUSE_S, pause * 1.1)

    def _in_vain(self, state: Health, now: float) -> str:
        """Why waiting is in vain: it has ended, or answers elsewhere; "" if it is not."""
        due = now - self.looked_at >= LOOK_S
        if not due and self.plan.kind != "process":
            return ""
        self.looked_at = now if due else self.looked_at
        if self.baseline.running() is False:
            return self._ended_words()
        elsewhere = self._where_published()
        if not elsewhere and due and state is Health.REFUSED:
            elsewhere = self._where_it_answers(now)
        return elsewhere

    def _tell(self, said: str, state: Health, detail: str) -> Health:
        """Report a state that has changed, and every NOTE_S how far the load is. A fault here must
        not end the wait."""
        now = self.context.clock.monotonic()
        if state != said:
            self._far_at = now
            self.context.report.note("ready", f"{state}: {detail}")
        elif now - self._far_at >= NOTE_S:
            self._far_at = now
            with contextlib.suppress(Exception):
                far = self._load().look()
                if far is not None and far != self._far:
                    self._far = far
                    fields = {"done": far.done, "total": far.total, "unit": far.unit}
                    self.context.report.say("ready", "note", f"{state}: {detail}", fields)
        return state

    def _load(self) -> Loading:
        """The load of what was started last, as far as that is known: nothing is asked for it."""
        known = self.baseline.inspected or {}
        life = f"{self.baseline.process} {(known.get('State') or {}).get('StartedAt')}"
        if self._loads is None or self._loads[0] != life:
            pid, start = self.baseline.process or (0, 0)
            handle = Handle("baseline", self.plan.kind, str(known.get("Id") or ""), "", pid, start)
            load = of_service(
                handle, self.plan.process or ExistingContainer(""),
                Path(self.plan.log) if self.plan.log else None, self.context.clock,
                cookie=BASELINE_COOKIE, inspected=lambda: known,
            )  # fmt: skip
            self._loads = (life, load)
        return self._loads[1]

    def _limit_s(self) -> float:
        """The sealed timeout in seconds; less if the start failed, because nothing loads then."""
        if not self.baseline.failed:
            return self.plan.ready_timeout_s
        return 0.0 if self.plan.kind == "process" else min(FAILED_S, self.plan.ready_timeout_s)

    def _not_the_baseline(self, life: str) -> tuple[StageName, str] | None:
        """Return None if the baseline gave all answers without a restart; else stage and reason.

        It may have ended because its address was taken, or its engine may restart it repeatedly.
        """
        until = self.context.clock.monotonic() + BETWEEN_S
        while not self.baseline.is_ours(OWNER_S):
            if not self.baseline.may_be_published() or self.context.clock.monotonic() >= until:
                return "completion", self._explain_stranger()
            self.context.clock.sleep(LAST_PAUSE_S)
        now = self.baseline.life()
        if life and now and now != life:
            return "completion", "the baseline was restarted during its proof"
        return None

    def _where_published(self) -> str:
        """Say where the container is published instead of at its URL, as the engine last described
        it; "" if it is published there, or if that is not known."""
        port = published_elsewhere(self.baseline.inspected or {}, self.plan.url)
        if not port:
            return ""
        self.misplaced = True
        hint = elsewhere_hint(port)
        return f"the container is published at {port}, and not at {self.plan.url}: {hint}"

    def _where_it_answers(self, now: float) -> str:
        """Say at which port the process answers instead of at its URL, once that has lasted; "" if
        it does not. Nothing is wrong with the process then, and no restart would help."""
        port = self.baseline.other_port()
        if port is None:
            self.elsewhere_since = None
            return ""
        self.elsewhere_since = self.elsewhere_since or now
        if now - self.elsewhere_since < ELSEWHERE_S:
            return ""
        self.misplaced = True
        return (
            f"the baseline runs and answers at port {port}, and the site file's url is "
            f"{self.plan.url}: correct `url`; it was left as it is"
        )

    def _explain_stranger(self) -> str:
        # A container that its engine is just restarting is not misplaced.
        runs = self.baseline.can_answer(OWNER_S) is True
        self.misplaced = runs and not self.baseline.is_ours(OWNER_S)
        if self.misplaced and (elsewhere := self._where_published()):
            return elsewhere
        held = held_words(self.plan.url)
        name = f": {held}" if held else ""
        return f"something else answers at the baseline's address, {self.plan.url}{name}"

    def _ended_words(self) -> str:
        """Why it ended: who has its port, or the line of its log that explains, before the rest."""
        lines = self.baseline.last_lines(READ_BACK if self.baseline.started else LAST_LINES)
        kind, cause = cause_of(lines)
        held = held_words(self.plan.url) if kind == PORT else ""
        # nothing of its own listens any more: whoever does keeps a restart from serving, too
        self.misplaced = bool(held)
        words = "; ".join(filter(None, (cause, held, "the baseline ended")))
        last = " | ".join(lines[-LAST_LINES:])
        return words + (f"; its last lines: {one_line(last, 300)}" if last and not cause else "")

    def _completion(self) -> tuple[StageName, str] | None:
        """Ask for a completion. Return None if one came, or if a busy slot makes token progress;
        else stage and reason."""
        report, proof = self.context.report, self.plan.completion
        report.begin("completion")
        detail = ""
        for attempt in range(COMPLETION_TRIES):
            answer = complete(
                self.plan.url,
                model=proof.model,
                prompt=proof.prompt,
                max_tokens=proof.max_tokens,
                timeout_s=_try_timeout_s(proof.timeout_s, attempt),
            )
            if answer.ok:
                report.ok("completion", answer.detail)
                return None
            if busy(self.plan.url, clock=self.context.clock):
                report.ok("completion", f"{answer.detail}; a busy slot makes token progress")
                return None
            detail = answer.detail
            if health(self.plan.url, self.plan.ready_path)[0] is Health.UNHEALTHY:
                break
            if attempt + 1 < COMPLETION_TRIES:
                report.note("completion", f"{detail}; asking again")
                self.context.clock.sleep(LAST_PAUSE_S)
        return "completion", detail


def _try_timeout_s(timeout_s: float, attempt: int) -> float:
    """Seconds for a completion. Only a retry gets the whole timeout: the server was merely slow."""
    return timeout_s if attempt else min(HUNG_S, timeout_s)


def measure(context: RollbackContext) -> tuple[float | None, bool]:
    """Return the median decode rate (tokens a second) of two completions of 64 tokens, None if no
    rate was measured; and whether it is degraded: below the reference by more than the tolerance.

    A baseline that has hung since its proof is waited for only once."""
    plan, report = context.plan.baseline, context.report
    report.begin("measure")
    rates: list[float] = []
    for number in range(MEASURED_RUNS):
        answer = complete(
            plan.url,
            model=plan.completion.model,
            prompt=plan.completion.prompt,
            max_tokens=MEASURED_TOKENS,
            timeout_s=_try_timeout_s(plan.completion.timeout_s, number),
        )
        if answer.ok and answer.decode_tok_s is not None:
            rates.append(answer.decode_tok_s)
            continue
        report.note("measure", answer.detail)
        if health(plan.url, plan.ready_path)[0] is Health.UNHEALTHY:
            break
    if not rates:
        report.failed("measure", "no rate was measured; the baseline serves, its speed is unknown")
        return None, False
    rates.sort()
    rate = (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2
    reference = plan.reference_tok_s
    if reference is None:
        report.ok("measure", f"{rate:.2f} tok/s; no reference to compare with")
        return rate, False
    degraded = rate < reference * (1 - plan.tolerance)
    words = f"{rate:.2f} tok/s, reference {reference:.2f}"
    report.ok("measure", f"DEGRADED: {words}" if degraded else words)
    return rate, degraded
