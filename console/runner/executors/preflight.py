"""`checkpoint`, `gguf`, `host`, `imports`: inspect, record the arithmetic, judge as a gate does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from console.checks.preflight import Finding, Level, image, of_site, worst
from console.checks.preflight.architecture import check
from console.checks.preflight.checkpoint import Preflight, finding_lines
from console.checks.preflight.host import HostAsk
from console.checks.preflight.of_site import FITS, LEVELS
from console.checks.preflight.sources.assistant import BuildAsk
from console.checks.preflight.sources.of_playbook import ask_of, source_ask
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.config.playbook.preflight_steps import (
    CheckpointStep,
    GgufStep,
    HostStep,
    ImportsStep,
)
from console.config.playbook.steps import Step
from console.config.playbook.verdict import Verdict
from console.journal import events
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.command import execute
from console.runner.executors.gate import evidence_hash, outcome_name
from console.runner.prepare.plan import PlannedStep
from console.runtime.spec import RUN_LABEL, ServiceSpec

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
POLL_S = 0.1


def checkpoint(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Judge a checkpoint; the arithmetic goes to the step's output, the envelope to the journal."""
    preflight = look_up(context, planned.section(CheckpointStep), attempt)
    if preflight.assessment is not None:
        envelope = preflight.assessment.envelope.to_json()
        context.record(events.Envelope(envelope=envelope), planned.id, attempt.number)
    _write(attempt, preflight.lines())
    words = f"{preflight.verdict}: {preflight.because}"
    done = _judge(
        context, planned, attempt, FITS[preflight.verdict], [(str(preflight.verdict), words)]
    )
    if context.guard is not None:
        context.guard.renew()  # the sentinel holds the load to what was predicted
    return done


def look_up(context: Context, step: CheckpointStep, attempt: Attempt) -> Preflight:
    """Run the preflight of a checkpoint step in a thread, so that a cancel need not wait for it."""
    lent = _command(context, step.service) if step.service else None

    def work() -> Preflight:
        return of_site.checkpoint(
            context.plan.site.model, step.repo, kind=step.loader or "",
            engine=step.engine or "", args=step.args, ctx=step.ctx, lent=lent,
            own=check.of_baseline(context.plan.site.baseline_spec()),
            include=step.include, exclude=step.exclude,
            to=context.path(step.to) if step.to else None, beside=step.beside,
            build=lambda: of_site.build_here(
                context.plan.site, lambda: context.services.client, step.service or "baseline",
                context.plan.services,
            ),
        )  # fmt: skip

    attempt.say(f"looking {one_line(step.repo, 100)} up", always=True)
    return waited(attempt, work)


def gguf(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Check whether the engine's build accepts the file's architecture."""
    step = planned.section(GgufStep)
    what = step.file
    if not what.startswith(("http://", "https://", "hf://")) and context.path(what).exists():
        what = str(context.path(what))

    def work() -> check.Answer:
        engine = check.build_of(
            _specs(context), lambda: context.services.client, service=step.service or "baseline",
            image=step.image, labels={RUN_LABEL: context.run.id},
            binary=str(context.path(step.binary)) if "/" in step.binary else step.binary,
        )  # fmt: skip
        return check.check(what, engine, include=tuple(step.include), cancelled=attempt.cancelled)

    answer = waited(attempt, work)
    _write(attempt, answer.lines())
    finding = answer.finding()
    assert finding is not None
    return _judge(context, planned, attempt, LEVELS[finding.level], [(finding.title, finding.text)])


def host(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Check this machine."""
    spec, site = planned.section(HostStep), context.plan.site
    ask = HostAsk(
        method=spec.method, ports=tuple(spec.ports), images=tuple(spec.images),
        compose=tuple(context.path(file) for file in spec.compose),
        disk=context.path(spec.disk.path) if spec.disk is not None else None,
        need=spec.disk.free if spec.disk is not None else None, sched_ext=spec.sched_ext,
        gpus=tuple(gpu.uuid for gpu in site.model.gpus) if spec.gpus else (),
        compute=spec.compute, torch=tuple(spec.torch), cuda=spec.cuda,
        driver=spec.driver or "", tools=tuple(spec.tools), headers=tuple(spec.headers),
        within=planned.written.environment.activation(context.plan.playbook.base),
    )  # fmt: skip

    def client() -> docker.DockerClient:
        return context.services.client

    def work() -> Sequence[Finding]:
        rows = of_site.host(site, ask, client)
        for step in (context.plan.at(name).written for name in spec.builds):
            if not (done := _is_built(context, step)):
                rows += of_site.build(site, ask_build(context, step), client)
            rows += done
        if spec.source:
            rows += of_site.build(site, source_ask(context.plan.playbook, spec.source), client)
        return rows

    return _judge_findings(context, planned, attempt, work)


def _is_built(context: Context, step: Step) -> list[Finding]:
    """That a build step will be skipped, because its image is here; else nothing."""
    assert step.build is not None
    if step.unless is None or not step.when:
        return [] if step.when else [Finding(Level.OK, f"build {step.id}", "does not apply here")]
    try:
        there = image.look(context.services.client, step.build.tag)
    except ConsoleError:
        return []
    words = f"{step.build.tag} is here, so it is not built"
    return [Finding(Level.OK, f"build {step.id}", words)] if there else []


def ask_build(context: Context, step: Step) -> BuildAsk:
    """The question about a build step; lint's rules that this run overrides are not asked again."""
    judged = (str(row.get("rule")) for row in context.meta.lint if row.get("override"))
    return ask_of(step, context.plan.playbook, judged)


def build(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Run a build to its end, unless something is known that stops it. Raises StepFailed."""
    _before_build(context, planned.written, attempt)
    return execute(context, planned, attempt)


def _before_build(context: Context, step: Step, attempt: Attempt) -> None:
    """List what is known to stop a build of hours, and fail where something does."""
    assert step.build is not None
    if context.plan.rehearsal is not None:
        return  # its image is a stand-in, and nothing is compiled
    request, site = ask_build(context, step), context.plan.site
    attempt.say("reading what is built", always=True)
    rows = waited(attempt, lambda: of_site.build(site, request, lambda: context.services.client))
    report_lines = [
        line for finding in rows if finding.level is not Level.OK for line in finding_lines(finding)
    ]
    _write(attempt, report_lines)
    grave = [finding for finding in rows if finding.level is Level.FAIL]
    if grave and step.build.preflight == "stop":
        count = f"{len(grave)} faults are" if len(grave) > 1 else "a fault is"
        words = "; ".join(
            one_line(finding.text.removeprefix(f"{finding.level:<7} "), 300) for finding in grave
        )
        lines = [
            line for finding in rows if finding.level is not Level.OK for line in _lines(finding)
        ]
        raise StepFailed(
            Cause.PRECONDITION, one_line(f"{count} known, so it was not begun: {words}", 2000),
            lines=lines,
        )  # fmt: skip


def _lines(finding: Finding) -> list[str]:
    return [finding.text, *([f"        hint: {finding.hint}"] if finding.hint else [])]


def import_chain(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Import an image's modules and everything that they import."""
    step = planned.section(ImportsStep)

    def work() -> Sequence[Finding]:
        image = step.image or _command(context, step.service).image
        if not image:
            raise StepFailed(Cause.PRECONDITION, f"{step.service} runs in no container")
        return of_site.imports(
            context.services.client, image, step.modules, python=step.python,
            cancelled=attempt.cancelled, labels={RUN_LABEL: context.run.id},
        )  # fmt: skip

    return _judge_findings(context, planned, attempt, work)


def waited(attempt: Attempt, work: Callable[[], T]) -> T:
    """The result of `work`, done in a daemon thread while deadline and cancel still apply."""
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


def _command(context: Context, service: str) -> check.Command:
    return check.command_of(_specs(context)[service], lambda: context.services.client)


def _specs(context: Context) -> dict[str, ServiceSpec]:
    return of_site.services(context.plan.site, context.plan.services)


def _judge_findings(
    context: Context, planned: PlannedStep, attempt: Attempt, work: Callable[[], Sequence[Finding]]
) -> Done:
    hint = context.plan.fitting
    rows = [replace(row, hint=hint(row.hint)) for row in waited(attempt, work)]
    _write(attempt, [line for row in rows for line in finding_lines(row)])
    level = worst(rows)
    return _judge(
        context, planned, attempt, LEVELS[level],
        [(row.title, row.text) for row in rows if row.level is level] or [("", "nothing asked")],
    )  # fmt: skip


def _write(attempt: Attempt, lines: Iterable[str]) -> None:
    attempt.sink("".join(f"{line}\n" for line in lines).encode())


def _judge(
    context: Context, planned: PlannedStep, attempt: Attempt, verdict: Verdict,
    why: list[tuple[str, str]],
) -> Done:  # fmt: skip
    """Record the verdict as an event of its own, as a gate does."""
    attempt.close()
    context.record(
        events.Verdict(
            verdict=str(verdict), outcome=outcome_name(planned.written, verdict),
            evidence=evidence_hash(context.view),
            criteria=[
                {"metric": one_line(name, 80), "verdict": str(verdict), "why": one_line(words, 400)}
                for name, words in why
            ],
        ), planned.id, attempt.number,
    )  # fmt: skip
    return Done("; ".join(one_line(words, 300) for _, words in why))
