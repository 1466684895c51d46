"""`run`, `script` and `build`: a command on the host, in a service's container, or in a one-off.

Commands are argv lists with stdin from /dev/null, in a session of their own, so that a stop reaches
the whole group: SIGINT → SIGTERM → SIGKILL, each one reported.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from console.common.files import write_atomically
from console.common.logs.cause import ended_words
from console.common.redact import Known
from console.common.text import one_line
from console.common.units import format_number
from console.config.playbook.captured import base_unit, read_output
from console.config.playbook.inputs import Secret, variable_of
from console.config.playbook.steps import Step
from console.config.site.service import mount
from console.host import cgroup
from console.host.activation import PLAIN, Activation
from console.host.licence import Licence, Reason, Refused, end_cgroup, stop_group
from console.host.memory import oom_kills, oom_kills_since
from console.host.process import (
    COOKIE,
    STEP_COOKIE,
    Group,
    by_cookie,
    environment,
    start_time,
)
from console.journal import events
from console.journal.state import Cause
from console.render.effects import build_argv
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.prepare.plan import PlannedStep, input_text
from console.runtime.spec import ContainerSpec, Handle, Launch

DRAIN_S = 1.0
GRACE = ((signal.SIGINT, 5.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0))


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Run the command to its end. Raises StepFailed (exit code, signal, timeout, start error)."""
    step = planned.written
    run_well(context, step, attempt)
    return Done(capture_figures(context, step, attempt), exit_code=0)


def run_well(
    context: Context, step: Step, attempt: Attempt, more: Mapping[str, str] | None = None
) -> None:
    """Run a step's command, which has to end with 0, and capture its outputs. Raises StepFailed."""
    kills = oom_kills()
    code = run_step(context, step, attempt, more)
    attempt.close()
    if code != 0:
        cause = Cause.SIGNAL if code < 0 else Cause.EXIT_CODE
        words = (
            ended_words(code if code < 0 else None, oom_kills_since(kills))
            or f"ended by exit code {code}"
        )
        raise StepFailed(cause, words, exit_code=code, lines=attempt.last_lines())
    capture_outputs(context, step, attempt)


def run_step(
    context: Context, step: Step, attempt: Attempt, more: Mapping[str, str] | None = None
) -> int:
    """Run a step's command where the step says, with its variables; returns the exit code."""
    env = {**_environment(context, step, attempt), **(more or {})}
    if step.where is not None:
        return _in_container(context, step, env, attempt)
    cwd = context.path(step.cwd) if step.cwd else context.plan.playbook.base
    within = step.environment.activation(context.plan.playbook.base)
    return run_host(context, _argv(context, step, attempt), env, str(cwd), attempt, within)


def _argv(context: Context, step: Step, attempt: Attempt) -> list[str]:
    if step.run is not None:
        return list(step.run)
    if step.contract is not None:
        return list(step.contract.suite)
    if step.build is not None:
        return build_argv(step)
    path = attempt.path.with_suffix(".sh")
    write_atomically(path, step.script or "", 0o600)
    return ["/bin/sh", "-eu", str(path)]


def _environment(context: Context, step: Step, attempt: Attempt) -> dict[str, str]:
    """The step's own variables: inputs as OMNI_INPUT_*, the site's cards as OMNI_GPUS, then `env`
    with its secrets read now."""
    env = {
        variable_of(name): input_text(value) for name, value in context.plan.playbook.inputs.items()
    }
    env |= {"OMNI_RUN_DIR": str(context.run.path), "OMNI_STEP": step.id}
    env |= context.plan.site.compose_env
    if step.build is not None:
        env["BUILDKIT_PROGRESS"] = "plain"  # as a flag, a client without buildx refuses it
    for name, value in step.env.items():
        if isinstance(value, Secret):
            env[name] = context.secret(value)
            attempt.hide(env[name])
        else:
            env[name] = value
    return env


def run_host(
    context: Context, argv: list[str], env: dict[str, str], cwd: str, attempt: Attempt,
    within: Activation = PLAIN,
) -> int:  # fmt: skip
    """A host command with its output in the attempt log; returns the exit code (−N: signal N)."""
    attempt.remaining()
    added = [*docker_environment(context), (STEP_COOKIE, attempt.step), *env.items()]
    given = environment(added, context.run.id, within=within)
    for secret in Known.of(given).values if within.file else ():
        attempt.hide(secret)
    try:
        child = cgroup.popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=given,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise StepFailed(Cause.START_ERROR, f"{one_line(argv[0])}: {words} (in {cwd})") from error
    start = start_time(child.pid) or 0
    try:
        context.alive(Handle(attempt.step, "process", pid=child.pid, start=start), kind="step")
        _pump(child, attempt)
        while child.poll() is None:  # it closed its output and goes on silently
            attempt.pause(0.1)
        return child.returncode
    except StepFailed as failed:
        failed.lines = failed.lines or attempt.last_lines()
        raise
    finally:
        _end(context, child, start, attempt)
        if child.stdout is not None:
            child.stdout.close()


def docker_environment(context: Context) -> list[tuple[str, str]]:
    """Variables with which the docker command reaches the run's engine."""
    given = {"DOCKER_HOST": context.plan.site.model.engine.host}
    names = ("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT")
    return [(n, v) for n in names if (v := given.get(n) or os.environ.get(n, ""))]


def _pump(child: subprocess.Popen[bytes], attempt: Attempt) -> None:
    """Copy output until the command itself ends, even if a grandchild keeps the pipe open."""
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    ended: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            ready = selector.select(min(0.1, attempt.remaining()))
            data = os.read(child.stdout.fileno(), 65536) if ready else None
            if data:
                attempt.hear(data)
            if data == b"":
                return
            if child.poll() is not None:
                ended = ended or attempt.context.clock.monotonic()
                late = attempt.context.clock.monotonic() - ended > DRAIN_S
                if data is None or late:  # all is read, or a grandchild goes on talking
                    return


def _end(context: Context, child: subprocess.Popen[bytes], start: int, attempt: Attempt) -> None:
    """End every process of the command, in its session or in one that it made for itself (found by
    the step's cookie)."""
    _end_session(context, child, start, attempt)
    why = Licence(Reason.STEP, context.run.id)
    for pid, born in by_cookie(context.run.id, attempt.step):
        try:
            stop_group(why, pid, born, grace_s=1.0, clock=context.clock)
        except Refused as error:
            context.record(events.RunNote(text=str(error)))
    end_cgroup(why, cgroup.of_process(child.pid, start), child.pid, start)


def _end_session(
    context: Context, child: subprocess.Popen[bytes], start: int, attempt: Attempt
) -> None:
    group = Group(child.pid, start, context.run.id, attempt.step)
    for number, wait_s in GRACE:
        ended = child.poll() is not None
        if not group.members() and ended:
            return
        attempt.context.record(
            events.StepSay(text=f"stopping: {number.name}"), attempt.step, attempt.number
        )
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            child.poll()
        except PermissionError:
            return
        deadline = context.clock.monotonic() + wait_s
        while context.clock.monotonic() < deadline:
            if child.poll() is not None and not group.members():
                return
            context.clock.sleep(0.02)


def _in_container(context: Context, step: Step, env: dict[str, str], attempt: Attempt) -> int:
    from console.runtime.docker.exec import run_in, run_oneoff

    where = step.where
    assert where is not None
    argv = ["sh", "-eu", "-c", step.script] if step.script else _argv(context, step, attempt)
    env = {**env, COOKIE: context.run.id}
    if where.service is not None:
        handle = context.services.find(where.service)
        if handle is None or not handle.container:
            raise StepFailed(Cause.PRECONDITION, f"{where.service} is not a running container")
        return run_in(
            context.services.client, handle.container, argv, env=env, workdir=step.cwd,
            timeout_s=attempt.remaining(), cancelled=attempt.cancelled, sink=attempt.hear,
        )  # fmt: skip
    spec = ContainerSpec(
        image=where.image or "",
        command=tuple(argv),
        mounts=tuple(mount(text, context.plan.playbook.base) for text in where.mounts),
        env=tuple(sorted(env.items())),
        gpus=("all",) if where.gpus == "all" else tuple(where.gpus),
        memory_bytes=where.memory,
        network=where.network,
        workdir=step.cwd,
    )
    return run_oneoff(
        context.services.client, spec, service=step.id,
        launch=Launch(context.run.id, attempt.path, context.alive, context.plan.site.name),
        timeout_s=attempt.remaining(), cancelled=attempt.cancelled, sink=attempt.hear,
        say=partial(attempt.say, always=True),
    )  # fmt: skip


def capture_outputs(context: Context, step: Step, attempt: Attempt) -> None:
    """Read numbers from the output by named pattern: the last match of each, in base units.

    Raises StepFailed (output_invalid) for one that is missing, truncated, or in another unit.
    """
    metrics: dict[str, dict[str, object]] = {}
    text = "\n".join(attempt.output())
    for name, output in step.outputs.items():
        try:
            number = read_output(output.pattern, output.unit, text, attempt.find)
        except ValueError as error:
            words = f"output '{name}': {error}"
            raise StepFailed(Cause.OUTPUT_INVALID, words, lines=attempt.last_lines()) from error
        metrics[name] = {
            "value": number, "unit": base_unit(output.unit), "n": int(number is not None),
        }  # fmt: skip
    if metrics:
        context.record(events.Metrics(metrics=metrics), step.id, attempt.number)


def capture_figures(context: Context, step: Step, attempt: Attempt) -> str:
    """Record figures printed by llama.cpp's benchmark; return them in words. Raises StepFailed."""
    if step.figures is None:
        return ""
    from console.bench.llama_bench import read_figures

    try:
        figures = read_figures("\n".join(attempt.output()), step.figures)
    except ValueError as error:
        lines = attempt.last_lines()
        raise StepFailed(Cause.OUTPUT_INVALID, one_line(str(error), 300), lines=lines) from error
    benchmark = {"model": figures.model, "build": figures.build, "flags": figures.flags,
                 "source": step.figures}  # fmt: skip
    context.record(
        events.Metrics(metrics=figures.metrics, benchmark=benchmark), step.id, attempt.number
    )
    words = [
        f"{name.removesuffix('_tok_s')} {format_number(metric['value'], metric['unit'])}"
        for name, metric in figures.metrics.items()
        if metric["value"] is not None
    ]
    return ", ".join(words)


def succeeds(
    context: Context, argv: list[str], attempt: Attempt, cwd: Path, within: Activation
) -> bool:
    """Whether a short command ends with 0; for `unless`."""
    try:
        return run_host(context, argv, {}, str(cwd), attempt, within) == 0
    except StepFailed as failed:
        if failed.cause is Cause.TIMEOUT:
            raise
        return False
