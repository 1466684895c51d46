"""The rollback procedure: fence, stop, memory, start, ready, completion, serving, measure, done.

It is idempotent. Every stage has its own deadline, and an error in one does not end the rollback.
Nothing is ever removed. One rollback runs at a time: a second caller follows the lines of the first
and returns its result.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from console.common import paths
from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError, EngineError, EngineTimeout
from console.common.logs.cause import NEXT
from console.host import licence, process
from console.host.ports import listener
from console.host.process import COOKIE, ProcessSpec
from console.recovery.rollback import evidence, live, restores
from console.recovery.rollback import trigger as trigger_fifo
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.context import FAILED, RollbackContext, engine_of
from console.recovery.rollback.observe import (
    ANSWERS,
    HAS_PORT,
    OWNER_S,
    another_process,
    of_another,
    renamed,
)
from console.recovery.rollback.progress import (
    PROGRESS_FILE,
    Emit,
    Follower,
    Report,
    Result,
    StageName,
    Trigger,
    new_trigger,
    quiet_limit,
    unfinished,
)
from console.recovery.rollback.script.write import (
    ANSWERED,
    ITS_ENGINE_IS_DEAD,
    LOOPS,
    WAIT,
    commands,
)
from console.recovery.rollback.sealed_plan import SealedPlan
from console.recovery.rollback.stages import drain, fence, left, measure, stop, verify
from console.recovery.rollback.stages.measure import Measured
from console.recovery.rollback.stages.start import Baseline
from console.recovery.rollback.trigger import Lock
from console.runtime import probe
from console.runtime.answers.completion import Completion

FOLLOW_PAUSE_S = 0.02
STOPPED_S = 2.0
"""How often, during silence, the process of the other rollback is checked, in seconds. If it was
stopped (SIGSTOP), it is no longer waited for."""
PROOFS = 3
"""How often a baseline is proven at most: one that ends right after its proof is proven again."""
ENGINE_REPORT_S = 1.5
"""Seconds after which a hung engine is reported, even while the fence is still at work."""

ANOTHER = (
    "which proves nothing of the baseline: it was left alone, and nothing was started beside it"
)


def load() -> None:
    """Import now what a rollback would otherwise import later.

    By then the interpreter's files may be gone, or not readable for the user that root becomes.
    """
    import encodings.idna  # noqa: F401
    import hashlib  # noqa: F401
    import ssl  # noqa: F401

    with contextlib.suppress(probe.ProbeError):
        # Nothing answers at port 9, but the attempt does every import that a request needs.
        probe.fetch("http://127.0.0.1:9/", timeout_s=0.2)


class Procedure:
    """One rollback of one sealed plan. `run()` never raises: every outcome is a Result."""

    def __init__(
        self,
        plan: SealedPlan,
        *,
        clock: Clock | None = None,
        trigger: Trigger | None = None,
        emit: Emit | None = None,
        oom_score: int | None = None,
        settle: Callable[[], None] | None = None,
    ) -> None:
        """`settle` is called right before the last line: it drops the requests that came until
        then, since this rollback answers them."""
        self.plan = plan
        self.clock = clock or SystemClock()
        self.trigger = trigger or new_trigger(self.clock)
        self.emit = emit
        self.oom_score = oom_score
        self.settle = settle
        self.path = plan.rollback_dir / PROGRESS_FILE

    def run(self) -> Result:
        """Roll back, or follow a rollback that is already running. Return the result either way."""
        with contextlib.suppress(OSError):
            paths.make(self.plan.rollback_dir)
        lock = Lock(self.plan.rollback_dir)
        try:
            while not lock.taken():
                result = self._follow(lock)
                if result is not None:
                    return result
                if lock.given_up:
                    break
            return self._run_stages()
        except Exception as error:  # whatever failed, the caller gets a result with the commands
            words = f"{type(error).__name__}: {error}"
            return Result(serving=False, manual=commands(self.plan), detail=words)
        finally:
            lock.close()

    def _follow(self, lock: Lock) -> Result | None:
        """Return the other rollback's result; None if it hangs or releases the lock without one."""
        follower = Follower(
            self.path, unfinished(self.path), self.emit, emergency=self.trigger.emergency
        )
        heard, seen = self.clock.monotonic(), 0
        ask_at = heard + STOPPED_S
        while True:
            result = follower.poll()
            if result is not None:
                return result
            if lock.taken():
                result = follower.poll()
                if result is None:
                    lock.release()
                return result
            now = self.clock.monotonic()
            if follower.seen != seen:
                heard, seen, ask_at = now, follower.seen, now + STOPPED_S
            is_stopped = False
            if now >= ask_at:
                is_stopped, ask_at = lock.holder_is_stopped(), now + STOPPED_S
            # Two rollbacks at the same time do no harm, but waiting for one that hangs does.
            if is_stopped or now - heard >= quiet_limit(self.plan):
                lock.given_up = True
                return None
            self.clock.sleep(FOLLOW_PAUSE_S)

    def _run_stages(self) -> Result:
        report = Report(self.path, self.trigger, self.clock, self.emit, self.plan.secrets)
        context = RollbackContext(
            self.plan, self.clock, report, engine_of(self.plan, report), self.oom_score,
            manual=lambda: commands(self.plan),
        )  # fmt: skip
        baseline = Baseline(context)
        self._ping_engine(context)
        if self.trigger.emergency:
            self._stage(context, "fence", lambda: fence.fence(context))
        else:
            report.skipped("fence", "the runner itself asked for this rollback")
        self._stage(context, "stop", lambda: stop.stop(context))
        self._stage(context, "memory", lambda: drain.memory(context, stop.lives_on(context)))
        self._stage(context, "start", lambda: _start(context, baseline))
        readiness = verify.Readiness(context, baseline)
        result = self._prove_and_measure(context, readiness)
        hide = self.plan.secrets.text
        result = replace(result, detail=hide(result.detail), manual=tuple(map(hide, result.manual)))
        seen = self._of_other_process(self._seen(result, context, readiness), context)
        if unkept := evidence.record(self.plan, seen):
            report.note("serving", f"how this ended {unkept}")
        if self.settle is not None:
            self.settle()
        report.done(result)
        if self.trigger.emergency:
            if result.serving and not result.left:
                _dismiss(self.plan, self.trigger)
            _start_closer(self.plan)
        return result

    def _prove_and_measure(self, context: RollbackContext, readiness: verify.Readiness) -> Result:
        """Prove and measure the baseline; do both again if it has ended in the meantime."""
        baseline = readiness.baseline
        for _ in range(PROOFS):
            if not self._stage(context, "ready", readiness.prove):
                self._another(context, readiness)
                break
            if self._another(context, readiness):
                break
            result, measured = self._measured_result(context, readiness)
            if measured.garbled:
                if not readiness.restart("measure", f"garbled, {measured.garbled}"):
                    break
                continue
            if measured.broken:
                if not readiness.restart_if_dead(measured.broken):
                    break
                continue
            answered = measured.tok_s is not None and measured.bound is None
            still_serves = baseline.is_ours(OWNER_S) if answered else baseline.serving()
            if self._another(context, readiness):
                break
            if still_serves:
                return self._beside(context, result)
            context.report.note("serving", "not any more: the baseline ended after its completion")
        return self._failed_result(context, readiness)

    def _another(self, context: RollbackContext, readiness: verify.Readiness) -> bool:
        """Whether another process with other flags answers: then that is reported, and not that the
        baseline serves."""
        answer = context.answer
        other = another_process(self.plan, _does(answer))
        if other:
            readiness.misplaced = True
            wrong = f" ({answer.why})" if answer is not None and not answer.ok else ""
            context.fail("serving", f"{other}{wrong}, {ANOTHER}; {_advice(context.plan)}")
        return bool(other)

    def _beside(self, context: RollbackContext, result: Result) -> Result:
        """The result of a baseline that serves, with what still runs beside it. Where that may not
        be, two engines are loaded: one of them may end at any moment, and somebody has to act."""
        survivor, before = stop.survivor_of(context), left.kept(self.plan)
        own = [survivor] if survivor is not None and self.plan.exclusive else []
        left.keep(self.plan, [*own, *before])
        survivor = survivor or next(iter(before), None)
        if survivor is None:
            return result
        beside = survivor.words
        words = f"{result.detail}; {beside} still runs beside it"
        if not (own or before):
            return replace(result, detail=words)
        context.report.failed("stop", f"{beside} still runs beside the baseline, which serves")
        beside = self.plan.secrets.text(beside)
        return replace(result, detail=words, left=beside, nothing_to_do=False)

    def _of_other_process(self, seen: Evidence, context: RollbackContext) -> Evidence:
        """What this rollback has learnt, as what another process says where that has the address:
        nothing of it is a word of the baseline."""
        answer = context.answer
        other = another_process(self.plan, _does(answer))
        if other and answer is not None and answer.ok:
            seen = replace(seen, kind=Kind.ANSWERS, word=Word.SERVING)
        elif other and answer is not None:
            seen = evidence.of_completion(answer, seen.witness, seen.at, seen.life)
        elif other:
            seen = replace(seen, detail="")  # why nothing was started: it has the port
        return of_another(seen, other)

    def _seen(
        self, result: Result, context: RollbackContext, readiness: verify.Readiness
    ) -> Evidence:
        """What this rollback has learnt of the baseline, well or not."""
        at, answer = self.clock.now(), context.answer
        by = Witness.ROLLBACK if self.trigger.emergency else Witness.RESTORE
        if not result.serving:
            word = Word.REFUSING if readiness.refuses else Word.DOWN
            word = Word.LOADING if readiness.loads else word
            word = Word.UNKNOWN if readiness.at_work or readiness.answers else word
            was_asked = bool(context.failures) and context.failures[-1][0] in (
                "completion",
                "measure",
            )
            # whether one that answers HTTP 5xx is alive is judged by its health path, not here
            judged = readiness.refuses or readiness.answers or bool(readiness.at_work)
            judged = judged or (answer is not None and answer.fails)
            dead = False
            if answer is not None and not answer.ok and was_asked and not judged:
                completion_evidence = evidence.of_completion(answer, by, at)
                word, dead = completion_evidence.word, completion_evidence.dead
            why = result.detail.removeprefix(f"{FAILED['completion']}: ")
            life = readiness.baseline.life()
            return Evidence(Kind.FAILED, word, at, by, why, life=life, dead=dead)
        if readiness.busy:
            words, life = "requests of others are under way", readiness.baseline.life()
            return Evidence(Kind.ANSWERS, Word.SERVING, at, by, words, life=life)
        kind = Kind.PROOF if result.tok_s is None and not result.degraded else Kind.MEASURED
        return Evidence(
            kind, Word.SERVING, at, by, result.detail, result.tok_s, result.degraded,
            life=readiness.baseline.life(), beside=result.beside, remark=result.remark,
            container=readiness.baseline.container_words(),
        )  # fmt: skip

    def _stage(
        self, context: RollbackContext, name: StageName, act: Callable[[], bool | None]
    ) -> bool:
        """Run one stage. Whatever goes wrong in it is reported, and the rollback goes on."""
        try:
            return act() is True
        except ConsoleError as error:
            context.fail(name, str(error))
        except Exception as error:  # an unforeseen error must cost only this stage
            context.fail(name, f"{type(error).__name__}: {error}")
        return False

    def _ping_engine(self, context: RollbackContext) -> None:
        """Ping the engine in a thread while the fence runs, so that a hang is reported early."""
        engine = context.engine
        if engine is None:
            return

        def ping() -> None:
            with contextlib.suppress(EngineError):  # the stage that needs it says the rest at once
                try:
                    engine.ping(ENGINE_REPORT_S)
                except EngineTimeout as error:
                    context.report.note("stop", str(error))

        # If no thread can be started, the stage that needs the engine reports the hang later.
        with contextlib.suppress(OSError, RuntimeError):
            threading.Thread(target=ping, name="engine-ping", daemon=True).start()

    def _measured_result(
        self, context: RollbackContext, readiness: verify.Readiness
    ) -> tuple[Result, Measured]:
        report, plan, baseline = context.report, self.plan.baseline, readiness.baseline
        seconds = report.elapsed_s()
        restore_s = round(seconds, 3) if baseline.started else None
        report.ok("serving", f"{plan.name} serves at {plan.url}")
        if restore_s is not None and self.plan.memory_file:
            with contextlib.suppress(OSError):
                memory = Path(self.plan.memory_file)
                restores.remember_restore(memory, plan.name, restore_s, self.clock.now())
        measured = Measured()
        try:
            if readiness.busy:
                report.skipped("measure", "requests of others are under way")
            else:
                measured = measure.measure(context, readiness.tok_s, readiness.stranger)
        except Exception as error:  # the baseline serves even where the measurement fails
            report.failed("measure", f"{type(error).__name__}: {error}")
        nothing = not context.stopped and not baseline.started and not context.failures
        words = "nothing to do, the baseline serves" if nothing else f"{plan.name} serves"
        if readiness.busy:
            words += "; not proven: it has answered others, and not this rollback"
        if context.failures:
            words += f"; failures: {len(context.failures)}, the first: {context.failures[0][1]}"
        tok_s, hide = measured.tok_s, self.plan.secrets.text
        result = Result(
            serving=True,
            degraded=measured.degraded,
            tok_s=None if tok_s is None else round(tok_s, 3),
            reference=plan.reference_tok_s,
            restore_s=restore_s,
            nothing_to_do=nothing,
            detail=("DEGRADED: " if measured.degraded else "") + words,
            beside=measured.beside,
            remark=hide(measured.remark),
        )
        return result, measured

    def _failed_result(self, context: RollbackContext, readiness: verify.Readiness) -> Result:
        detail = context.failures[-1][1] if context.failures else "the baseline does not serve"
        if survivor := stop.survivor_of(context):
            detail += f"; {survivor.words} still runs"
        # one that answers elsewhere is well: only the site file is to be corrected
        well = readiness.elsewhere_since is not None
        lives = readiness.refuses or readiness.misplaced or bool(readiness.at_work)
        lives = lives or readiness.answers
        runs = not lives and readiness.baseline.running() is True
        ended_by = "" if lives or runs else readiness.baseline.ended_by
        by_hand = commands(
            self.plan, lives=lives, runs=runs,
            why=ITS_ENGINE_IS_DEAD if probe.DEAD in detail else ANSWERED if "garbled" in detail
            else LOOPS if readiness.loops else WAIT,
            container=readiness.baseline.container,
        )  # fmt: skip
        first = (f"# {NEXT[ended_by]}; then omni-console rollback",) if ended_by else ()
        return Result(
            serving=False,
            reference=self.plan.baseline.reference_tok_s,
            manual=() if well else (*first, *by_hand),
            detail=detail,
        )


def _start(context: RollbackContext, baseline: Baseline) -> None:
    stop.sweep(context, "before the start")
    if baseline.serving():
        context.report.skipped("start", another_process(context.plan) or "already serving")
        _report_unrecorded(context)
        _report_renamed(context, baseline)
        return
    base = context.plan.baseline
    if base.process is not None and context.baseline_process() is None:
        records = context.plan.records_dir
        for older in licence.baselines(records):
            if older.site == records.name:
                context.report.note(
                    "start", f"process {older.pid}, a baseline of an earlier site file, still runs "
                    "and holds its memory; it is left alone"
                )  # fmt: skip
    context.report.begin("start")
    context.report.ok("start", baseline.start())
    _report_renamed(context, baseline)


def _report_renamed(context: RollbackContext, baseline: Baseline) -> None:
    """Report a container that was found by its id and has another name than the plan knows."""
    if other := renamed(context.plan.baseline, baseline.inspected or {}):
        context.report.note("start", other)


def _report_unrecorded(context: RollbackContext) -> None:
    """Report a process that answers but has no record. No run could stop it, so no run starts."""
    if context.plan.baseline.kind == "process" and context.baseline_process() is None:
        url = context.plan.baseline.url
        who = listener(url)
        pid = f"process {who.pid}" if who else "a process"
        if other := another_process(context.plan):
            context.report.note("start", f"{other}, {ANOTHER}; {_advice(context.plan)}")
        context.report.note(
            "start", f"{pid} answers there, and no record says that the console started it from "
            f"this site file or took it over, so no run will start; {_advice(context.plan)}"
        )  # fmt: skip


def _advice(plan: SealedPlan) -> str:
    from console.runtime.discovery import adoption  # late: no rollback waits for it

    return adoption.advice(plan.baseline.process, plan.baseline.url)


def _does(answer: Completion | None) -> str:
    """What another process in the baseline's place is seen to do, by the newest answer."""
    heard = answer is not None and (answer.ok or answer.status or answer.sends)
    return ANSWERS if heard else HAS_PORT


def _dismiss(plan: SealedPlan, trigger: Trigger) -> None:
    """Tell the standby and the sentinel to quit: nobody needs another rollback of this run.

    The closer may be unable to tell them, and their lease would then count the outage of the next
    run. A sentinel that asked for this rollback still has to write its breach; it quits by itself.
    """
    trigger_fifo.trigger(plan.rollback_dir, trigger_fifo.QUIT)
    if plan.run_dir and not trigger.id.startswith("sentinel-"):
        trigger_fifo.say(Path(plan.run_dir, *trigger_fifo.INBOX), b'{"do": "quit"}\n')


def _start_closer(plan: SealedPlan) -> None:
    """Start the closer, which completes the killed run's journal. It runs detached and may fail.

    It is recorded in live.jsonl at once, so that whoever follows the run waits for it.
    """
    if not plan.finish_argv:
        return
    prefixes = ("OMNI_", "PYTHON", "DOCKER_", "VIRTUAL_ENV")
    extra = [
        (k, v) for k, v in os.environ.items()
        if (k.startswith(prefixes) or k in plan.finish_env) and k != COOKIE
    ]  # fmt: skip
    spec = ProcessSpec(plan.finish_argv)
    for log in (plan.rollback_dir / "finish.log", Path("/dev/null")):
        with contextlib.suppress(ConsoleError):
            pid, start = process.spawn(spec, log=log, cookie="finish", extra_env=extra)
            with contextlib.suppress(OSError):  # on a full disk the closer tries it again
                live.append(plan.rollback_dir / live.LIVE, live.closer(pid, start))
            return
