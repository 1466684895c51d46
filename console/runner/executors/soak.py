"""`soak`: send requests for a long time and record how the server fares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from console.bench.answers import Answers, Garbage
from console.bench.benchmark import model_of
from console.bench.beside.users import Users
from console.bench.client import PROMPTS
from console.bench.metrics import SOAK_REQUEST_S
from console.bench.soak import End, Soak, SoakPlan
from console.bench.soak_requests import Asker, Growth, context_of
from console.bench.soak_stats import Patience, Tally, patience
from console.bench.statistics import finite
from console.common.logs.output import Output, of_process
from console.common.logs.tail import read_last
from console.common.paths import baseline_log
from console.common.progress import Figures
from console.common.units import format_duration
from console.config.playbook.measuring_steps import SoakStep
from console.journal import events
from console.journal.samples import SoakFile
from console.journal.state import Cause
from console.render.report.soak import flags, live_words, summary
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.benchmark import refused, users_of
from console.runner.executors.soak_monitor import (
    FASTEST_S,
    SLOWEST_S,
    ContainerEyes,
    CriticalLog,
    ProcessEyes,
    SoakWatch,
)
from console.runner.prepare.plan import PlannedStep
from console.runtime.spec import Handle

SAY_S = 5.0
LOOKS = 60
"""Looks at the server over a soak, at least, if that is not more than one a second."""
MIN_SHARE = 0.5
"""Share of the duration that has to be observed."""
LAST_LINES = 20
FULLEST = 0.95
"""Share of the server's context that a conversation may fill: its next step is an estimate."""
LOST = "a new runner found that it had ended"


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Soak a service. Figures are recorded however it ends; raises StepFailed with the cause. A
    server that answers garbage gets a NO-GO of the step's own."""
    soak = planned.section(SoakStep)
    file = SoakFile(context.run, planned.id, attempt.number, context.clock.now())
    tally, users = file.tally, users_of(context, soak.service)
    early, answers = "stopped before its end", Answers()
    try:
        end = _run(context, soak, attempt, file, users, answers)
        early = str(end) if end is End.GARBLED else ""
    except StepFailed as failed:
        early = failed.detail
        raise _too_little(soak, tally, failed) from failed
    finally:
        try:
            if tally.began:
                _record(context, soak.service, attempt, file, users, answers, early)
        finally:
            file.close(early or "done")
    garbage = _garbage(tally, answers)
    if garbage is not None and garbage.mostly:
        return refused(context, planned, attempt, f"{soak.service}: {garbage}")
    return Done(summary(tally), warned=garbage is not None)


def _garbage(tally: Tally, answers: Answers) -> Garbage | None:
    """What was garbled of a soak; with the answers since this runner began, if these together fall
    apart."""
    return answers.garbage if answers.fall_apart else tally.garbage


def _run(
    context: Context, soak: SoakStep, attempt: Attempt, file: SoakFile, users: Users,
    answers: Answers,
) -> End:  # fmt: skip
    """Soak for the full duration. Raises StepFailed for any other end."""
    service, tally = soak.service, file.tally
    handle = context.services.find(service)
    if handle is None:
        if file.resumed:
            gone = {"t": tally.t, "event": "gone", "at": context.clock.now(), "what": LOST}
            file.keep(gone)
            tally.take(gone)
        lines = read_last(context.run.log(service), LAST_LINES)
        raise StepFailed(
            Cause.PRECONDITION, f"{service} has not been started, or died", lines=lines
        )
    with _followed(context, service, handle) as log:
        watch = _watch(context, soak, handle, log, tally)
        end = _soak(context, soak, attempt, file, watch, users, answers)
    _conclude(context, soak, handle, tally, end)
    return end


def _soak(
    context: Context, soak: SoakStep, attempt: Attempt, file: SoakFile, watch: SoakWatch,
    users: Users, answers: Answers,
) -> End:  # fmt: skip
    """Run the loop from where the soak's file ends."""
    service, tally = soak.service, file.tally
    url = context.services.spec(service).url
    model = context.services.model(service, soak.model)
    live = _Live(attempt, soak, tally)
    asker = Asker(
        url, soak.max_tokens, model or model_of(url), min(SOAK_REQUEST_S, attempt.limit_s),
        growth=_growth(soak, url, attempt), users=users, answers=answers,
    )  # fmt: skip
    running = Soak(
        plan_of(soak), context.clock, asker, watch, file.keep, live, tally,
        patience_for(context, service),
    )  # fmt: skip
    if file.resumed:
        away = format_duration(tally.gaps[-1][1] - tally.gaps[-1][0])
        attempt.say(
            f"continues at {format_duration(tally.observed)}; not observed for {away}", always=True
        )
    try:
        with watch:
            end = running.run()
    finally:
        running.take_looks()
    live.say(tally.observed, always=True)
    return end


def _growth(soak: SoakStep, url: str, attempt: Attempt) -> Growth | None:
    """The conversation that fills the context, if one is asked for. Raises StepFailed if the
    server does not tell its context, or the answer alone fills it."""
    if soak.context is None:
        return None
    size = context_of(url)
    limit = soak.limit(size)
    if limit is None:
        hint = "its context is not in /props and not in /v1/models: give context: as tokens"
        raise StepFailed(Cause.PRECONDITION, f"{soak.service} does not tell its context: {hint}")
    if limit <= 2 * soak.max_tokens or (size is not None and limit > FULLEST * size):
        size_words = f"{limit} tokens of context with max_tokens: {soak.max_tokens}"
        of = f", and the server has {size}: at most {FULLEST:.0%} of it" if size is not None else ""
        raise StepFailed(Cause.PRECONDITION, f"no conversation fits: {size_words}{of}")
    of = f" of {size}" if size is not None else ""
    attempt.say(f"conversations grow to {limit}{of} tokens", always=True)
    return Growth(limit, soak.max_tokens)


def plan_of(soak: SoakStep) -> SoakPlan:
    """The step's settings for the loop that sends the requests."""
    prompts = tuple(soak.prompts) or PROMPTS
    return SoakPlan(soak.duration, soak.every, soak.arrivals, prompts, soak.max_errors)


def patience_for(context: Context, service: str) -> Patience:
    """How long to wait for an answer, by the slowest first token, warm or cold, that benchmarks of
    this run saw from the service. The baseline's do not count: it is another server."""
    slowest: list[float] = []
    for _, step in context.plan.playbook.steps():
        bench = step.benchmark
        if bench is None or bench.service != service:
            continue
        cold = context.view.measurement(step.id).benchmark.get("cold") or {}
        warm = context.view.metrics.get(step.id, {}).get("ttft_s") or {}
        slowest += finite([cold.get("ttft_s"), warm.get("max")])
    return patience(max(slowest, default=None))


@contextmanager
def _followed(context: Context, service: str, handle: Handle) -> Iterator[Path]:
    """Yield the file with a service's log; the baseline's log is followed only here."""
    path = context.run.log(service)
    if service != "baseline":
        yield path
    elif not handle.container:
        output = of_process(handle.pid) if handle.pid else Output()
        yield output.path or baseline_log(context.plan.site.name)
    else:
        from console.runtime.service_logs import Tailer

        tailer = Tailer(
            context.services.client, handle, path, since=context.clock.now(),
            known=context.plan.known,
        )  # fmt: skip
        tailer.start()
        try:
            yield path
        finally:
            tailer.stop()


def _watch(context: Context, soak: SoakStep, handle: Handle, log: Path, tally: Tally) -> SoakWatch:
    server, run = tally.start.get("process", ""), context.run.id
    eyes: ProcessEyes | ContainerEyes = ProcessEyes(handle, server, cookie=run)
    if handle.container:
        eyes = ContainerEyes(context.services.client, handle)
    return SoakWatch(
        context.services.spec(soak.service).url, context.services.driver(soak.service), handle,
        CriticalLog(log, soak.critical), eyes=eyes, clock=context.clock,
        gpus=lambda: context.peaks.gpu if context.peaks is not None else None,
        every_s=min(SLOWEST_S, max(FASTEST_S, soak.duration / LOOKS)),
    )  # fmt: skip


def _conclude(context: Context, soak: SoakStep, handle: Handle, tally: Tally, end: End) -> None:
    """Raises StepFailed unless the soak ran to its end and something was answered, or what was
    answered is mostly garbage."""
    if end is End.GONE or tally.gone:
        raise _died(context, soak.service, handle, tally)
    if tally.garbage is not None and tally.garbage.mostly:
        return
    classes = ", ".join(f"{count} {name}" for name, count in sorted(tally.errors.items()))
    failed = f"{sum(tally.errors.values())} of {len(tally.requests)} requests failed: {classes}"
    last = [f"the last one: {tally.last_error}"] if tally.last_error else []
    if end is End.ERRORS:
        what = f"after {format_duration(tally.observed)}: {failed}; at most {soak.max_errors} may"
        raise StepFailed(Cause.OUTPUT_INVALID, what, lines=last)
    if not tally.good:
        raise StepFailed(Cause.OUTPUT_INVALID, f"no request was answered; {failed}", lines=last)


def _died(context: Context, service: str, handle: Handle, tally: Tally) -> StepFailed:
    """Return the crash: its time, cause as the service's driver tells it, and last log lines."""
    when = f"after {format_duration(tally.observed)} of the soak"
    explanation = context.services.explain(service)
    if explanation is not None:
        return StepFailed(
            explanation.cause, f"{explanation.detail}, {when}", lines=explanation.lines
        )
    lines = context.services.driver(service).last_lines(handle, LAST_LINES)
    return StepFailed(Cause.NOT_READY, f"{service} died: {tally.gone}, {when}", lines=lines)


def _too_little(soak: SoakStep, tally: Tally, failed: StepFailed) -> StepFailed:
    """Fail a soak that timed out with hardly anything observed."""
    if failed.cause is not Cause.TIMEOUT or tally.observed >= soak.duration * MIN_SHARE:
        return failed
    seen = f"{format_duration(tally.observed)} of {format_duration(soak.duration)} observed"
    return StepFailed(Cause.OUTPUT_INVALID, f"{seen}: {failed.detail}")


def _record(
    context: Context, service: str, attempt: Attempt, file: SoakFile, users: Users,
    answers: Answers, early: str,
) -> None:  # fmt: skip
    """Record figures and events in the journal. An early end makes every figure void."""
    tally = file.tally
    garbage = _garbage(tally, answers)
    figures = tally.void_figures(f"it ended early: {early}") if early else tally.figures()
    soak_facts = {
        "service": service,
        "file": str(file.path), "gaps": tally.gaps, "restarts": tally.restarts,
        "errors": tally.errors, "hangs": tally.hangs, "critical": tally.critical,
        "early": early, "began": tally.began, "late": tally.late, "missed": tally.missed,
        "last_error": tally.last_error, "anon_growth": tally.anon_growth,
        "transport_retries": tally.transport_retries, "flags": flags(tally) + users.flags(),
        "requests": users.close(),
        "gone": tally.gone, "answers": [asdict(answer) for answer in answers.kept],
        "garbled": None if garbage is None else str(garbage),
    }  # fmt: skip
    context.record(
        events.Metrics(scope=attempt.step, metrics=figures, soak=soak_facts),
        attempt.step, attempt.number,
    )  # fmt: skip


class _Live:
    """Progress for viewers, at most once in SAY_S, and the check of the step's deadline."""

    def __init__(self, attempt: Attempt, soak: SoakStep, tally: Tally) -> None:
        self._attempt = attempt
        self._soak = soak
        self._tally = tally
        self._said_at = float("-inf")
        self._silent = False

    def __call__(self, t: float, silent_s: float) -> None:
        """Handle one beat. Raises Cancelled and StepFailed (timeout)."""
        self._attempt.remaining()
        changed = bool(silent_s) is not self._silent
        if t - self._said_at >= SAY_S or changed:
            self.say(t, silent_s)

    def say(self, t: float, silent_s: float = 0.0, *, always: bool = False) -> None:
        self._said_at, self._silent = t, bool(silent_s)
        words = live_words(self._tally, t, self._soak.duration, silent_s)
        progress = Figures(min(t, self._soak.duration), self._soak.duration, "s")
        self._attempt.say(f"{self._soak.service}: {words}", progress, always=always)
