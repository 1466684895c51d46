"""What a step does to the machine, in lines that an operator reads before starting. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from console.common.text import clean_lines, one_line, shown
from console.common.units import format_bytes, format_duration
from console.config.playbook.measuring_steps import ContractStep
from console.config.playbook.steps import (
    Build,
    Check,
    Gate,
    Manual,
    Run,
    Script,
    ServiceStep,
    Step,
    Where,
)
from console.host.process import ProcessSpec
from console.host.units import UnitSpec
from console.runtime import spec as limits
from console.runtime.spec import (
    BUILT_LABEL,
    ComposeSpec,
    ContainerSpec,
    ExistingContainer,
    ServiceSpec,
)


def effects(step: Step, services: dict[str, ServiceSpec]) -> Iterator[str]:
    """One line per effect: argv, where it runs, what it starts, what decides."""
    if not step.when:
        yield "skipped: not applicable (when is false)"
        return
    for check in step.requires:
        yield f"requires {check_words(check)}"
    if step.unless is not None:
        yield f"skipped if {_unless(step)}"
    yield from _kind(step, services)
    if within := step.environment.activation(Path()):
        yield f"  within {one_line(str(within))}"
    for name, output in step.outputs.items():
        unit = f" ({output.unit})" if output.unit else ""
        yield f"captures {step.id}.{name}{unit} from output matching {one_line(output.pattern)}"
    if step.figures is not None:
        yield f"reads {step.id}.tg_tok_s and {step.id}.pp_tok_s from what {step.figures} prints"
    if step.retry is not None:
        wait = format_duration(step.retry.backoff)
        yield f"retried up to {step.retry.attempts} attempts, {wait} apart"
    if step.on_failure != "stop":
        yield f"if it fails: {step.on_failure}"


def _kind(step: Step, services: dict[str, ServiceSpec]) -> Iterator[str]:
    """What its kind does; in words of its own (`Content.effects`) where its content says it all."""
    content = step.content
    match content:
        case Run(argv=argv):
            yield f"{_where(step.where)}$ {shown(argv)}"
        case Script(text=text):
            yield f"{_where(step.where)}$ sh -eu, a script of its own:"
            yield from (f"  | {line}" for line in clean_lines(text.rstrip()))
        case Build():
            yield from _build(step, content)
        case Check():
            yield f"checks {check_words(content)}"
        case Manual():
            yield from (f"the operator does: {line}" for line in clean_lines(content.do.rstrip()))
            if content.verify is not None:
                yield f"then checks {check_words(content.verify)}"
        case ServiceStep():
            yield from _service(content.verb, services.get(content.target))
        case Gate():
            yield from _gate(step, content)
        case _:
            yield from content.effects()
    if isinstance(content, ContractStep) and content.suite:
        yield f"{_where(step.where)}$ OMNI_URL=(of {content.server}) {shown(content.suite)}"
    if content.KIND.judges:
        lacks = "missing data" if isinstance(content, Gate) else "when a fact is not known"
        yield f"on NO-GO: {step.on_no_go}; on HOLD (also {lacks}): {step.on_hold}"


def _build(step: Step, build: Build) -> Iterator[str]:
    what = f", Dockerfile and {one_line(build.source)}" if build.source else " and Dockerfile"
    ends = "a known fault stops it" if build.preflight == "stop" else "faults are only said"
    yield f"reads the context{what} before it builds: {ends}"
    yield f"$ {shown(build_argv(step))}"


def _gate(step: Step, gate: Gate) -> Iterator[str]:
    yield from gate.effects()
    names = [
        f"{verdict} → {name}"
        for verdict, name in (
            ("GO", step.outcomes.go), ("NO-GO", step.outcomes.no_go), ("HOLD", step.outcomes.hold),
        )
        if name
    ]  # fmt: skip
    if names:
        yield f"decides: {', '.join(names)}"


def _service(verb: str, spec: ServiceSpec | None) -> Iterator[str]:
    if spec is None:
        return
    if verb == "stop":
        yield f"stops {spec.name}: SIGTERM, {format_duration(spec.grace_s)} later SIGKILL"
        return
    if verb == "start":
        yield from service_words(spec)
    stable = f", stable for {format_duration(spec.ready.stable_for_s)}"
    yield (
        f"ready when {spec.url}{spec.ready.path} answers 200"
        f"{stable if spec.ready.stable_for_s else ''}, "
        f"at most {format_duration(spec.ready.timeout_s)}"
    )


def service_words(spec: ServiceSpec) -> Iterator[str]:
    runs = spec.runs
    if isinstance(runs, ContainerSpec):
        command = shown((*runs.entrypoint, *runs.command))
        yield f"creates and starts a container of {runs.image}: {command or '(image command)'}"
        memory = limits.memory_words(runs.memory_bytes)
        ports = ", ".join(f"127.0.0.1:{h}→{c}" for h, c in runs.ports) or "no ports"
        gpus = ", ".join(runs.gpus) if runs.gpus else "no GPUs"
        yield f"  {memory}, no swap; {ports}; {gpus}; restart no; never pulled, never privileged"
        for mount in runs.mounts:
            mode = "ro" if mount.read_only else "rw"
            yield f"  mount {mount.source} → {mount.target} ({mode})"
    elif isinstance(runs, ComposeSpec):
        profile = "".join(f" --profile {p}" for p in runs.profiles)
        files = " ".join(f"-f {shlex.quote(str(f))}" for f in runs.files)
        yield (
            f"$ docker compose {files} -f OVERRIDE{profile} up -d --no-deps --no-build "
            f"--pull never --no-recreate {runs.service}"
        )
        memory = limits.memory_words(runs.memory_bytes)
        yield f"  OVERRIDE: restart no, {memory}, no swap, labels, capped logs"
        if runs.args:
            yield f"  and after the words of its command: {shown(runs.args)}"
    elif isinstance(runs, ProcessSpec):
        yield f"starts a host process: {shown(runs.argv)}"
        if runs.within:
            yield f"  within {one_line(str(runs.within))}"
        yield f"  {limits.containment(spec)}"
    elif isinstance(runs, ExistingContainer):
        yield f"starts the existing container {runs.name}"
    elif isinstance(runs, UnitSpec):
        yield f"$ {shown(runs.command('start'))}"


def build_argv(step: Step) -> list[str]:
    """The `docker build …` command as it is run."""
    build = step.build
    assert build is not None
    options = [
        ("-f", build.dockerfile), ("--target", build.target),
        ("--platform", build.platform), ("--label", f"{BUILT_LABEL}={build.tag}"),
        *(("--build-arg", f"{name}={value}") for name, value in sorted(build.args.items())),
    ]  # fmt: skip
    given = [word for option, value in options if value for word in (option, value)]
    return ["docker", "build", "-t", build.tag, *given, "--", build.context]


def _where(where: Where | None) -> str:
    if where is None:
        return ""
    if where.service is not None:
        return f"in {where.service} "
    gpus = f", GPUs {where.gpus if isinstance(where.gpus, str) else ', '.join(where.gpus)}"
    memory = f", {limits.memory_words(where.memory)}"
    return f"in a one-off container of {where.image}{gpus if where.gpus else ''}{memory} "


def check_words(check: Check) -> str:
    """A check as a question with its expected answer."""
    if check.http is not None:
        extra = f" matching {one_line(check.http.matches)}" if check.http.matches else ""
        return f"that {check.http.url} answers {check.http.status}{extra}"
    if check.output is not None:
        wants = f"matches {one_line(check.matches)}" if check.matches else ""
        wants += " and " if check.matches and check.not_matches else ""
        wants += f"does not match {one_line(check.not_matches)}" if check.not_matches else ""
        return f"that the output of `{shown(check.output)}` {wants}"
    if check.file is not None:
        size = f" with at least {format_bytes(check.min_bytes)}" if check.min_bytes else ""
        return f"that {one_line(check.file)} exists{size}"
    if check.port_free is not None:
        return f"that port {check.port_free} is free"
    if check.image is not None:
        platform = f" for {one_line(check.platform)}" if check.platform else ""
        return f"that image {one_line(check.image)} is here{platform}"
    return f"that the CPU has {one_line(check.cpu or '')}"


def _unless(step: Step) -> str:
    unless = step.unless
    assert unless is not None
    if unless.file is not None:
        size = f" with at least {format_bytes(unless.min_bytes)}" if unless.min_bytes else ""
        return f"{one_line(unless.file)} is there{size}"
    return f"`{shown(unless.run or [])}` succeeds"
