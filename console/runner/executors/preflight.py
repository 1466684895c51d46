"""`checkpoint`, `gguf`, `host`, `imports`: look, write the sums down, judge as a gate does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from console.checks.preflight import checkpoint as fitting
from console.checks.preflight.architecture import check
from console.checks.preflight.architecture.check import (
    build_of,
    loader_for,
    machine_for,
)
from console.checks.preflight.checkpoint import Ask, Preflight, finding_lines
from console.checks.preflight.compatibility import Loader
from console.checks.preflight.host import HostAsk, findings
from console.checks.preflight.image import check_image, check_imports
from console.common.errors import Finding, Level, worst
from console.common.text import one_line
from console.config.playbook.measuring_steps import CheckpointStep
from console.config.playbook.steps import Step
from console.config.playbook.verdict import Verdict
from console.journal.state import Cause
from console.models.sizing.assessment import Verdict as Fit
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.gate import evidence_hash, outcome_name
from console.runner.prepare import admission
from console.runner.prepare.plan import PlannedStep
from console.runtime.spec import RUN_LABEL, ServiceSpec

if TYPE_CHECKING:
    from console.checks.preflight.architecture.check import Command

T = TypeVar("T")
JUDGED = {
    Fit.GO: Verdict.GO, Fit.STREAMING: Verdict.GO, Fit.TIGHT: Verdict.HOLD,
    Fit.UNKNOWN: Verdict.HOLD, Fit.NO_GO: Verdict.NO_GO,
}  # fmt: skip
LEVELS = {
    Level.OK: Verdict.GO, Level.WARN: Verdict.GO, Level.UNKNOWN: Verdict.HOLD,
    Level.FAIL: Verdict.NO_GO,
}  # fmt: skip
POLL_S = 0.1


def checkpoint(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Judge a checkpoint; the arithmetic goes to the step's output, the envelope to the journal."""
    step, found = _step(planned), look_up(context, planned, attempt)
    if found.assessment is not None:
        context.record(
            "envelope", step.id, attempt.number, envelope=found.assessment.envelope.to_json()
        )
    _write(attempt, found.lines())
    words = f"{found.verdict}: {found.because}"
    done = _judge(context, step, attempt, JUDGED[found.verdict], [(str(found.verdict), words)])
    if context.guard is not None:
        context.guard.renew()  # the sentinel holds the load to what was predicted
    return done


def look_up(context: Context, planned: PlannedStep, attempt: Attempt) -> Preflight:
    """The preflight of a checkpoint step, in a thread that a cancel does not wait for."""
    step = _step(planned)
    asked = step.checkpoint
    assert asked is not None
    site = context.plan.site.model
    to = context.path(asked.to) if asked.to else None
    ask = Ask(
        asked.repo, _loader(context, asked), tuple(asked.include), tuple(asked.exclude), to,
        beside=asked.beside,
    )  # fmt: skip

    def work() -> Preflight:
        machine = machine_for(site, to, beside=asked.beside)
        return fitting.preflight(ask, machine, site)

    attempt.say(f"looking {one_line(asked.repo, 100)} up", always=True)
    return waited(attempt, work)


def gguf(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Ask the build whether it accepts the file's architecture."""
    step = _step(planned)
    asked = step.gguf
    assert asked is not None
    what = asked.file
    if not what.startswith(("http://", "https://", "hf://")) and context.path(what).exists():
        what = str(context.path(what))

    def work() -> check.Answer:
        engine = build_of(
            _specs(context), lambda: context.services.client, service=asked.service or "baseline",
            image=asked.image, labels={RUN_LABEL: context.run.id},
            binary=str(context.path(asked.binary)) if "/" in asked.binary else asked.binary,
        )  # fmt: skip
        return check.check(what, engine, include=tuple(asked.include), cancelled=attempt.cancelled)

    answer = waited(attempt, work)
    _write(attempt, answer.lines())
    finding = answer.finding()
    assert finding is not None
    return _judge(context, step, attempt, LEVELS[finding.level], [(finding.title, finding.text)])


def host(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Ask this machine."""
    step = _step(planned)
    asked = step.host
    assert asked is not None
    site = context.plan.site.model
    disk = context.path(asked.disk.path) if asked.disk is not None else None
    ask = HostAsk(
        method=asked.method, ports=tuple(asked.ports), images=tuple(asked.images),
        compose=tuple(context.path(one) for one in asked.compose), disk=disk,
        need=asked.disk.free if asked.disk is not None else None, sched_ext=asked.sched_ext,
        gpus=tuple(gpu.uuid for gpu in site.gpus) if asked.gpus else (), compute=asked.compute,
        torch=tuple(asked.torch), cuda=asked.cuda, driver=asked.driver or "",
        engine=site.engine.host,
        compose_env=tuple(context.plan.site.compose_env.items()),
    )  # fmt: skip
    return _found(
        context, step, attempt,
        lambda: list(findings(ask, machine_for(site, disk), lambda: context.services.client)),
    )  # fmt: skip


def import_chain(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Import an image's modules, all the way down."""
    step = _step(planned)
    asked = step.imports
    assert asked is not None

    def work() -> Sequence[Finding]:
        image = asked.image or _command(context, asked.service).image
        if not image:
            raise StepFailed(Cause.PRECONDITION, f"{asked.service} runs in no container")
        found = check_image(context.services.client, image)
        if worst(found) is Level.FAIL:
            return found
        return check_imports(
            context.services.client, image, asked.modules, python=asked.python,
            cancelled=attempt.cancelled, labels={RUN_LABEL: context.run.id},
        )  # fmt: skip

    return _found(context, step, attempt, work)


def waited(attempt: Attempt, work: Callable[[], T]) -> T:
    """What `work` gives, in a daemon thread: the step's deadline and a cancel hold meanwhile."""
    result: list[T] = []
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # handed on to the runner's thread
            trouble.append(error)

    thread = threading.Thread(target=run, name=f"look-{attempt.step}", daemon=True)
    thread.start()
    while thread.is_alive():
        attempt.remaining()
        thread.join(POLL_S)
    if trouble:
        raise trouble[0]
    return result[0]


def _step(planned: PlannedStep) -> Step:
    assert planned.step is not None
    return planned.step


def _loader(context: Context, asked: CheckpointStep) -> Loader:
    lent = _command(context, asked.service) if asked.service else None
    return loader_for(
        context.plan.site.model, asked.loader or "", asked.engine or "", asked.args, asked.ctx, lent
    )


def _command(context: Context, service: str) -> Command:
    return check.command_of(_specs(context)[service], lambda: context.services.client)


def _specs(context: Context) -> dict[str, ServiceSpec]:
    return {**context.plan.services, "baseline": context.plan.site.baseline_spec()}


def _found(
    context: Context, step: Step, attempt: Attempt, work: Callable[[], Sequence[Finding]]
) -> Done:
    plan = context.plan
    rows = [replace(one, hint=admission.fitting(plan, one.hint)) for one in waited(attempt, work)]
    _write(attempt, [line for one in rows for line in finding_lines(one)])
    level = worst(rows)
    return _judge(
        context, step, attempt, LEVELS[level],
        [(one.title, one.text) for one in rows if one.level is level] or [("", "nothing asked")],
    )  # fmt: skip


def _write(attempt: Attempt, lines: Iterable[str]) -> None:
    attempt.sink("".join(f"{line}\n" for line in lines).encode())


def _judge(
    context: Context, step: Step, attempt: Attempt, verdict: Verdict, why: list[tuple[str, str]]
) -> Done:
    """The verdict as an event of its own, as a gate's is."""
    attempt.close()
    context.record(
        "verdict", step.id, attempt.number, verdict=str(verdict),
        outcome=outcome_name(step, verdict), evidence=evidence_hash(context.view),
        criteria=[
            {"metric": one_line(name, 80), "verdict": str(verdict), "why": one_line(words, 400)}
            for name, words in why
        ],
    )  # fmt: skip
    return Done("; ".join(one_line(words, 300) for _, words in why))
