"""Stages ready and completion prove the baseline: its health path and a completion."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from console.common.errors import ConsoleError
from console.common.logs.cause import PORT, cause_of, last_words, may_be_taken
from console.common.text import one_line
from console.common.units import format_duration
from console.host.ports import has_clients, held_words, in_use, port_of, streams
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.observe import HAS_PORT, OWNER_S, another_process
from console.recovery.rollback.progress import StageName
from console.recovery.rollback.sealed_plan import Proof
from console.recovery.rollback.stages.held import held
from console.recovery.rollback.stages.load import Load
from console.recovery.rollback.stages.start import ADDRESS_S, Baseline
from console.recovery.rollback.stages.stop import sweep
from console.recovery.rollback.stages.whose import LEFT, Whose
from console.runtime.answers.completion import Completion, prove
from console.runtime.loading import Work
from console.runtime.probe import (
    DEAD,
    OVERLOADED,
    TLS,
    Health,
    busy,
    engine_dead,
    health,
    tells_slots,
    wrong_path,
)

FIRST_PAUSE_S = 0.005
LAST_PAUSE_S = 0.5
LOOK_S = 0.5
"""Seconds between two checks of whether the container still runs."""
HUNG_S = 60.0
"""Seconds without an answer after which a server that ran before this rollback counts as hung. The
first completion gets no more time, either. If it fails, and the health path does not answer either,
the server counts as hung; one that is only slow is asked again, with its whole timeout."""
QUICK_S = 15.0
"""Seconds for a completion of a server whose health path has been silent for as long as that."""
FAILED_S = 10.0
"""Seconds to wait for a container whose start failed, as the engine may just have been late."""
COMPLETION_TRIES = 2
ALIVE = (Health.SERVING, Health.REFUSING, Health.SLOW)
RESTARTS = "restarting it once"
LOADS = "it still loads and was left as it is"
AT_WORK = "clients are connected, and it computes"
STREAMS = "clients are connected, and it sends them answers"
SENDS = "it sends its answer, and is slow"
PASSING = frozenset({408, 425, 429}) | OVERLOADED
"""HTTP statuses that pass by themselves: it is busy, or what is behind it still starts. They are
asked again for as long as a completion may take."""
REFUSING_S = 30.0
"""Seconds for which the health path may refuse (HTTP 3xx or 4xx) before waiting for it is in vain.
A router answers 404 until what is behind it has loaded, so one that was just started gets the time
of its load."""
FORBIDS = ("HTTP 3", "HTTP 401", "HTTP 403", "HTTP 407", TLS)
"""Refusals that no load changes."""
MAX_STARTS = 3
"""Starts by its own supervisor that a wait sees through."""
READ_BACK, LAST_LINES = 200, 5
"""Lines of the baseline's log in which its end is explained, and that are shown besides."""
WORK_S = 1.0
"""Seconds within which a server that is at work for others is seen to compute."""


def waits_to_start_again(container: dict[str, Any]) -> bool:
    """Whether an inspected container has ended again and again, and waits for its engine to start
    it once more. One that runs may have been started anew by somebody, with all that it needs."""
    state, count = container.get("State"), container.get("RestartCount")
    waits = isinstance(state, dict) and state.get("Restarting") is True
    return waits and isinstance(count, int) and count >= MAX_STARTS


class Readiness(Whose):
    """Waits for the baseline and proves that it serves. It restarts it once, if that may help."""

    def __init__(self, context: RollbackContext, baseline: Baseline) -> None:
        super().__init__(context, baseline)
        self.restarted = False
        self.served = False
        """It was proven since its last start, so that silence does not mean loading any more."""
        self.begun = self.looked_at = 0.0
        """When the wait for it began, and when it was last looked at whether it runs, and where."""
        self.refuses = False
        """It is alive, and refuses or fails what it is asked: nothing ends it for that."""
        self.loads = False
        """It was not ready in time, and its processes still worked at its load: the same."""
        self.busy = False
        """It was seen at work on requests of others, and has answered none of this rollback: alive,
        and not proven."""
        self.loops = False
        """It ends soon after each start, and something starts it again: waiting has no end."""
        self.at_work = ""
        """The same, only that nobody sees it get on: clients are connected, and it computes, or it
        sends an answer that is not over in time."""
        self.answers = False
        """It has answered a completion though its health path says an error: that path says nothing
        of it, and nothing ends it for that."""
        self.tok_s: float | None = None
        """Rate of the completion that proved it last."""
        self._refusing_since: float | None = None
        self._address_since: float | None = None
        """Since when it has found its address in use though nobody listens there."""
        self._starts: set[object] = set()
        """What tells the starts apart that its own supervisor has made while it was waited for."""
        self._load = Load(baseline)

    def prove(self) -> bool:
        """Run the stages ready and completion, again after a restart; return whether it serves."""
        if self.baseline.gone:
            self.context.report.skipped("ready", "there is no container to wait for")
            return False
        if self.baseline.displaced:
            self.context.report.skipped("ready", "nothing was started")
            return False
        while True:
            self.misplaced = self.refuses = self.loads = self.busy = False
            self.answers = self.loops = False
            self.at_work = ""
            trouble = self._ready()
            trouble = trouble or self._completion(self.baseline.life())
            if not trouble:
                self.served = True
                return True
            if not self.restart(*trouble):
                return False

    def restart(self, stage: StageName, detail: str) -> bool:
        """Start the baseline anew because of this trouble, once in a rollback; else report the
        trouble as a failure and return False. What is alive or still loads is left alone, and so is
        whoever else has its address: what that one says is no trouble of the baseline."""
        if stage == "ready" and not self.misplaced and self.at_work in ("", SENDS):
            detail = self._asked_all_the_same(detail)
        if other := another_process(self.context.plan, HAS_PORT):
            self.misplaced = True
            self.context.fail(stage, f"{other}: {detail}")
            return False
        detail = self.judged_by_reach(detail)
        well = self.misplaced or self.refuses or self.loads or bool(self.at_work)
        if self.restarted or well or self.answers:
            self.context.fail(stage, detail)
            return False
        if self.plan.kind != "container" and (words := held(self.baseline)):
            self.context.fail(stage, f"{detail}; {words}")
            return False
        self.restarted, self.served = True, False
        again = "it was not started: trying once more" if self.baseline.failed else RESTARTS
        self.context.report.note(stage, f"{detail}; {again}")
        try:
            self.context.report.note("start", self.baseline.restart())
        except ConsoleError as error:
            before = "" if again != RESTARTS else f"; before the restart: {detail}"
            self.context.fail(stage, f"{error}{before}")
            return False
        return True

    def restart_if_dead(self, broken: str) -> bool:
        """Start the baseline anew whose streamed answers break, where it says itself that its
        engine is dead; else it answers, and is left alone. Return whether it was started."""
        answer = self.context.answer
        self.refuses = not (answer is not None and answer.dead)
        return self.restart("measure", f"{broken}; {LEFT}" if self.refuses else broken)

    def _asked_all_the_same(self, detail: str) -> str:
        """The trouble with its health path, and what it answers to a completion all the same."""
        answer = answer_all_the_same(self.baseline, quick=self.loads)
        if answer is None:
            return f"{detail}; {LOADS}" if self.loads else detail
        self.answers, self.refuses, self.loads = answer.ok, answer.refuses, False
        self.at_work = SENDS if answer.sends else ""
        path = self.plan.ready_path
        words = wrong_path(path) if answer.ok else f"asked for a completion: {answer.why}"
        return f"{detail.removesuffix(f'; {LEFT}')}; {words}; {LEFT}"

    def _ready(self) -> tuple[StageName, str] | None:
        """Poll the health path. Return None when the baseline serves, else stage and reason."""
        clock, report, plan = self.context.clock, self.context.report, self.plan
        limit_s = _limit_s(self.baseline)
        report.begin("ready", f"waiting for up to {format_duration(limit_s)}")
        self.ask()
        begun = self.looked_at = self.begun = clock.monotonic()
        hung_since, sent_at, pause = begun, float("-inf"), FIRST_PAUSE_S
        self.elsewhere_since = self._refusing_since = None
        self._load = Load(self.baseline)
        self._starts.clear()
        while True:
            state, detail = health(plan.url, plan.ready_path)
            now = clock.monotonic()
            if state is Health.SERVING and not self.baseline.is_ours(OWNER_S):
                if not self.baseline.may_be_published():
                    return "ready", self.explain_stranger()
                state = Health.LOADING
                detail = "a container holds its port, and its start script is still busy"
            if state is Health.SERVING:
                self.ok("ready", f"after {format_duration(now - begun)}")
                sweep(self.context, "after ready")
                return None
            self._load.look(state, detail)
            loads = (self.baseline.started or self.restarted) and not self.served
            if state not in (Health.UNHEALTHY, Health.SLOW) or loads:
                hung_since = now
            if state is Health.SLOW:
                sent_at = now
            if now - hung_since >= HUNG_S:
                sends = sent_at >= hung_since
                self.at_work = SENDS if sends else _works_for_others(self.baseline)
                what = "no whole answer" if sends else "no answer"
                what = "an error" if detail.startswith("HTTP") else what
                words = f"{what} for {format_duration(HUNG_S)}: {detail}"
                return "ready", f"{words}; {self.at_work}; {LEFT}" if self.at_work else words
            if in_vain := self._in_vain(state, now) or self._refused(state, detail, now, loads):
                return "ready", in_vain
            if now - self.begun >= limit_s:
                return "ready", self._late(state, detail, limit_s)
            clock.sleep(min(pause, max(0.001, self.begun + limit_s - now)))
            pause = min(LAST_PAUSE_S, pause * 1.1)

    def _in_vain(self, state: Health, now: float) -> str:
        """Why waiting is in vain: it has ended, or answers elsewhere; "" if it is not."""
        due = now - self.looked_at >= LOOK_S
        if not due and self.plan.kind != "process":
            return ""
        self.looked_at = now if due else self.looked_at
        if self.baseline.running() is False:
            return "" if self._starts_again(now) else self._ended_words()
        if loop := self._ends_each_time():
            return loop
        elsewhere = self.where_published()
        if not elsewhere and due and state is Health.REFUSED:
            elsewhere = self.where_it_answers(now)
        return elsewhere

    def _ends_each_time(self) -> str:
        """That its engine or systemd starts it again and again, and why it ends; "" if it does not.
        Each look finds it up or about to be, and waiting for it has no end."""
        unit, container = self.baseline.unit, self.baseline.inspected or {}
        start = unit.invocation if unit is not None else container.get("RestartCount")
        if start not in (None, ""):
            self._starts.add(start)
        if len(self._starts) <= MAX_STARTS and not waits_to_start_again(container):
            return ""
        self.loops = True
        who = "systemd" if unit is not None else "its container engine"
        return f"{who} starts it again and again: {self._ended_words(earlier=True)}"

    def _late(self, state: Health, detail: str, limit_s: float) -> str:
        """Why it is not ready in time: it refuses, it still loads, or nothing is seen of a load."""
        words = f"not ready after {format_duration(limit_s)}: {state}, {detail}"
        if state is Health.REFUSED and (elsewhere := self.where_it_answers(self.begun, late=True)):
            return f"{words}; {elsewhere}"
        self.refuses = state is Health.REFUSING
        self.loads = not self.refuses and self._load.goes_on(min(HUNG_S, limit_s / 2))
        if state is Health.SLOW and not self.loads:
            self.at_work = SENDS
            return f"{words}; {SENDS}; {LEFT}"
        return f"{words}; {LEFT}" if self.refuses else words

    def _refused(self, state: Health, detail: str, now: float, loads: bool) -> str:
        """Why waiting is in vain for a server whose health path refuses; "" if it may be ready
        soon."""
        if state is not Health.REFUSING:
            self._refusing_since = None
            return ""
        since = self._refusing_since = now if self._refusing_since is None else self._refusing_since
        if now - since < REFUSING_S or (loads and not detail.startswith(FORBIDS)):
            return ""
        self.refuses = True
        return f"its health path {self.plan.ready_path} refuses: {detail}; {LEFT}"

    def _starts_again(self, now: float) -> bool:
        """Start a baseline again that has ended because its address was in use, once it is free.

        An engine that does not set SO_REUSEADDR cannot listen while connections of its clients
        linger. That passes with time, not with tries: this counts for no restart.
        """
        base, clock, report = self.baseline, self.context.clock, self.context.report
        if not base.started or not base.address_lingers(base.last_lines(READ_BACK)):
            return False
        since = self._address_since = now if self._address_since is None else self._address_since
        until = since + ADDRESS_S
        if now >= until:
            return False
        words = "its address is in use, though nobody listens there; it is started again when free"
        report.note("ready", words)
        port = port_of(self.plan.url)
        while clock.monotonic() < until and in_use(port):
            clock.sleep(LAST_PAUSE_S)
        clock.sleep(LAST_PAUSE_S)
        self.begun = clock.monotonic()
        try:
            report.note("start", base.start())
        except ConsoleError as error:
            report.note("start", str(error))
            return False
        return True

    def _ended_words(self, *, earlier: bool = False) -> str:
        """Why it ended: who has its port, or the line of its log that explains; and what it wrote
        last, as far as that says more. `earlier`: it may have been started again meanwhile."""
        count = READ_BACK if self.baseline.started else LAST_LINES
        lines = self.baseline.last_lines(count, earlier=earlier)
        kills = self.baseline.oom_kills() if self.baseline.started else None
        self.baseline.ended_by, cause = cause_of(lines, self.baseline.exit_code(), kills)
        held = held_words(self.plan.url, self.baseline.pids()) if may_be_taken(lines) else ""
        # nothing of its own listens any more: whoever does keeps a restart from serving, too
        self.misplaced = bool(held)
        port, free = port_of(self.plan.url), ""
        if self.baseline.ended_by == PORT and not held and not in_use(port):
            free = f"port {port} is free: that is said of another port or socket"
        words = "; ".join(filter(None, (cause, held, free, "the baseline ended")))
        last = last_words(lines, LAST_LINES, cause)
        return words + (f"; its last lines: {one_line(last, 300)}" if last else "")

    def _completion(self, life: str) -> tuple[StageName, str] | None:
        """Ask for a completion. Return None if the baseline of this `life` gave one, or if a busy
        slot makes token progress; else stage and reason. Who has answered is asked first, then what
        it said is reported."""
        report, clock = self.context.report, self.context.clock
        report.begin("completion")
        begun, tries = clock.monotonic(), 0
        written: list[str] = []
        while True:
            self.ask()
            answer = _ask_proof(self.plan.completion, self.plan.url, tries)
            self.context.answer = answer
            tries += 1
            if answer.ok:
                if stranger := self.not_the_baseline(life):
                    return stranger
                self.tok_s = answer.decode_tok_s
                self.ok("completion", answer.detail)
                return None
            heard = answer.status or answer.sends
            if words := self.unreached() or (self.stranger() if heard else ""):
                return "completion", words
            waits = answer.status in PASSING and not answer.dead
            passes = waits and clock.monotonic() - begun < self.plan.completion.timeout_s
            self.refuses = answer.refuses and not passes
            if self.refuses:
                return "completion", f"{answer.why}; {LEFT}"
            if answer.garbled is None and busy(self.plan.url, clock=clock):
                if stranger := self.not_the_baseline(life):
                    return stranger
                self.busy = True
                words = "a busy slot makes token progress: alive, and not proven"
                self.ok("completion", f"{answer.detail}; {words}")
                return None
            state = health(self.plan.url, self.plan.ready_path)[0]
            if state is Health.UNHEALTHY or (tries >= COMPLETION_TRIES and not passes):
                return "completion", self._failed(answer, state, written)
            if answer.fails:
                written = self.baseline.last_lines(READ_BACK)
            report.note("completion", f"{answer.detail}; asking again")
            clock.sleep(LAST_PAUSE_S)

    def _failed(self, answer: Completion, state: Health, written: list[str]) -> str:
        """Why no completion came. A server that answers with an error of its own is alive if its
        health path is well, unless it wrote into its log since `written` that its engine is dead.
        """
        silent = answer.status == 0 and not answer.sends
        self.at_work = _works_for_others(self.baseline) if silent else ""
        if answer.sends:
            self.at_work = SENDS
        if self.at_work:
            return f"{answer.detail}; {self.at_work}; {LEFT}"
        if not answer.fails or state not in ALIVE:
            return answer.why if answer.dead else answer.detail
        lines = added(written, self.baseline.last_lines(READ_BACK))
        if dead := next(filter(None, map(engine_dead, lines)), ""):
            return f"{DEAD}, its log says “{dead}” ({answer.detail})"
        self.refuses = True
        return f"{answer.why}; {LEFT}"


def answer_all_the_same(baseline: Baseline, *, quick: bool) -> Completion | None:
    """What one answers, refuses or begins to send, whose health path answers with an error or not
    at all: it is alive, for that path may be another engine's, or say that a queue is full. None if
    it does none of these. A server that hangs as a whole, or still loads (`quick`), gets no long
    time for it."""
    plan = baseline.plan
    state, detail = health(plan.url, plan.ready_path)
    if state in (Health.SERVING, Health.REFUSED):
        return None
    slow = not quick and (detail.startswith("HTTP") or state is Health.LOADING)
    limit_s = HUNG_S if slow else QUICK_S
    proof = replace(plan.completion, timeout_s=min(limit_s, plan.completion.timeout_s))
    answer = _ask_proof(proof, plan.url, 0) if baseline.is_ours(OWNER_S) else None
    lives = answer is not None and (answer.ok or answer.refuses or answer.sends)
    return answer if lives else None


def _limit_s(baseline: Baseline) -> float:
    """The sealed timeout in seconds; less if the start failed, because nothing loads then."""
    plan = baseline.plan
    if not baseline.failed:
        return plan.ready_timeout_s
    return 0.0 if plan.kind == "process" else min(FAILED_S, plan.ready_timeout_s)


def _ask_proof(proof: Proof, url: str, tries: int) -> Completion:
    return prove(
        url, model=proof.model, prompt=proof.prompt, max_tokens=proof.max_tokens,
        timeout_s=try_timeout_s(proof.timeout_s, tries), expect=proof.expect,
    )  # fmt: skip


def _works_for_others(baseline: Baseline) -> str:
    """What shows that one that gave no answer in time may be at work for others: clients hold
    connections to it, and it computes or streams. An engine without slots shows no more than that.
    "" for nothing."""
    url = baseline.plan.url
    if not is_used_silently(url):
        return ""
    work, clock = Work(), baseline.context.clock
    with contextlib.suppress(OSError):
        work.look(baseline.own_pids(), clock.monotonic())
    sends = streams(url, clock.sleep)
    clock.sleep(0.0 if sends else WORK_S)
    with contextlib.suppress(OSError):
        work.look(baseline.own_pids(), clock.monotonic())
    if work.seen_at is not None:
        return AT_WORK
    return STREAMS if sends else ""


def is_used_silently(url: str) -> bool:
    """Whether clients are connected to a server that does not say what it does for them."""
    return has_clients(url) and not tells_slots(url)


def added(before: list[str], now: list[str]) -> list[str]:
    """The last lines of a log that are newer than its last lines of before; none if those are not
    known."""
    if not before:
        return []
    for count in range(len(now)):
        kept = now[: len(now) - count]
        if before[-len(kept) :] == kept:
            return now[len(kept) :]
    return now


def try_timeout_s(timeout_s: float, attempt: int) -> float:
    """Seconds for a completion. Only a retry gets the whole timeout: the server was merely slow."""
    return timeout_s if attempt else min(HUNG_S, timeout_s)
