"""What a step does to the machine, in lines that an operator reads before starting. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from console.bench.metrics import PROMPT_ROUNDS
from console.common import redact
from console.common.text import clean_lines, one_line
from console.common.units import format_bytes, format_duration
from console.config.playbook import measuring_steps as measuring
from console.config.playbook.kinds import LOOKS
from console.config.playbook.steps import Check, Step, Where
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


def _look(step: Step) -> Iterator[str]:
    """What preflight steps do: nothing is downloaded, started or written."""
    if step.checkpoint is not None:
        yield from _checkpoint(step.checkpoint)
    elif step.gguf is not None:
        yield _gguf(step.gguf)
    elif step.host is not None:
        yield f"looks at this machine: {', '.join(_host(step.host)) or 'memory, CPU, GPUs'}"
    elif step.imports is not None:
        yield _imports(step.imports)
    yield f"on NO-GO: {step.on_no_go}; on HOLD (also when a fact is not known): {step.on_hold}"


def _checkpoint(checkpoint: measuring.CheckpointStep) -> Iterator[str]:
    which = f" {' '.join(checkpoint.include)}" if checkpoint.include else ""
    yield f"looks up {one_line(checkpoint.repo)}{one_line(which)}: listing and headers only"
    how = checkpoint.engine or {"mmap": "llama.cpp"}.get(checkpoint.loader or "", "")
    parts = [how, checkpoint.loader or "", f"context {checkpoint.ctx}" if checkpoint.ctx else ""]
    if checkpoint.service:
        parts.append(f"the arguments of {checkpoint.service}")
    if checkpoint.args:
        parts.append(shlex.join(checkpoint.args))
    words = ", ".join(part for part in parts if part) or "as the file format requires"
    yield f"works out whether it fits, loaded by: {one_line(words, 300)}"
    if checkpoint.to:
        yield f"and whether the disk of {one_line(checkpoint.to)} holds it"
    if checkpoint.beside:
        yield "beside the baseline, which goes on serving"


def _gguf(gguf: measuring.GgufStep) -> str:
    build = gguf.image or gguf.binary or gguf.service or "the baseline"
    where = "no GPU, no network" if not gguf.binary else "on the host"
    return (
        f"reads the architecture of {one_line(gguf.file)} and asks the build of {one_line(build)} "
        f"with a probe file ({where})"
    )


def _host(host: measuring.HostStep) -> Iterator[str]:
    if host.method:
        yield f"kernels for {one_line(host.method)}"
    if host.compute:
        yield f"compute capability {host.compute[0]}.{host.compute[1]}"
    if host.cuda:
        yield f"CUDA {host.cuda[0]}.{host.cuda[1]} for its GPUs"
    yield from (f"program {one_line(name)}" for name in host.tools)
    yield from (f"header {one_line(name)}" for name in host.headers)
    if host.driver:
        yield f"NVIDIA driver {one_line(host.driver)}"
    if host.gpus:
        yield "the site's GPUs"
    if host.sched_ext:
        yield "sched_ext in the kernel"
    yield from (f"port {port}" for port in host.ports)
    yield from (f"image {one_line(ref)}" for ref in host.images)
    yield from (f"PyTorch in {one_line(ref)}" for ref in host.torch)
    yield from (f"compose file {one_line(path)}" for path in host.compose)
    if host.disk is not None:
        yield f"{format_bytes(host.disk.free)} free at {one_line(host.disk.path)}"
    yield from (f"what the build of step {one_line(name)} needs" for name in host.builds)
    if host.source:
        yield f"what the sources in {one_line(host.source)} need to be built here"


def _imports(imports: measuring.ImportsStep) -> str:
    modules = ", ".join(one_line(name) for name in imports.modules)
    return (
        f"imports {modules} in a one-off container of {one_line(imports.image or imports.service)} "
        "(no GPU, no network)"
    )


def _download(download: measuring.DownloadStep) -> Iterator[str]:
    what = f"what {download.of} judged" if download.of else one_line(download.repo)
    which = f" {' '.join(download.include)}" if download.include else ""
    yield (
        f"$ hf download of {what}{one_line(which)} → {one_line(download.to)}, "
        f"{download.workers} workers"
    )
    yield "pinned to one commit; what is here is kept; sizes verified; stops before a full disk"
    if download.of:
        yield f"a NO-GO of {download.of} needs a typed override"


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
    if step.run is not None:
        yield f"{_where(step.where)}$ {shown(step.run)}"
    elif step.script is not None:
        yield f"{_where(step.where)}$ sh -eu, a script of its own:"
        yield from (f"  | {line}" for line in clean_lines(step.script.rstrip()))
    elif step.build is not None:
        what = f", Dockerfile and {one_line(step.build.source)}" if step.build.source else ""
        what = what or " and Dockerfile"
        ends = (
            "a known fault stops it" if step.build.preflight == "stop" else "faults are only said"
        )
        yield f"reads the context{what} before it builds: {ends}"
        yield f"$ {shown(build_argv(step))}"
    elif step.check is not None:
        yield f"checks {check_words(step.check)}"
    elif step.service is not None:
        yield from _service(step.service.verb, services.get(step.service.target))
    elif step.benchmark is not None:
        yield from _benchmark(step.benchmark)
    elif step.soak is not None:
        yield from _soak(step.soak)
    elif step.contract is not None:
        yield from _contract(step)
    elif step.gate is not None:
        yield from _gate(step)
    elif step.approval is not None:
        yield f"asks: {one_line(step.approval.prompt, 300)}"
        if step.approval.confirm:
            yield f"the operator types: {one_line(step.approval.confirm)}"
        yield f"expires after {format_duration(step.approval.expires)}"
    elif step.manual is not None:
        yield from (f"the operator does: {line}" for line in clean_lines(step.manual.do.rstrip()))
        if step.manual.verify is not None:
            yield f"then checks {check_words(step.manual.verify)}"
    elif step.note is not None:
        yield from clean_lines(step.note.rstrip())
    elif step.report is not None:
        yield "writes the report" + (f" to {one_line(step.report.to)}" if step.report.to else "")
    elif step.download is not None:
        yield from _download(step.download)
    elif step.kind in LOOKS:
        yield from _look(step)
    # what a cutover does is a question of the site: console.runner.cutover


def _benchmark(bench: measuring.BenchmarkStep) -> Iterator[str]:
    yield (
        f"{bench.runs} runs of {bench.max_tokens} tokens against {bench.service}, "
        f"{bench.warmup} warm-up, {len(bench.prompts) or 3} prompt(s), temperature 0"
    )
    if bench.endpoint == "completions":
        yield "asked at /v1/completions, without the model's chat template"
    if bench.prompt_lengths:
        lengths = ", ".join(map(str, bench.prompt_lengths))
        yield f"then the prompt rate, with {PROMPT_ROUNDS} prompts each of {lengths} tokens"
    if bench.concurrency:
        levels = ", ".join(map(str, bench.concurrency))
        yield f"then {levels} streams at once, reported beside the figures of one"
    if bench.against:
        yield "compared with the baseline, measured the same way"


def _contract(step: Step) -> Iterator[str]:
    contract = step.contract
    assert contract is not None
    server = one_line(contract.service or contract.url or "")
    if contract.asks:
        own = f" and those of {one_line(contract.cases)}" if contract.cases else ""
        against = (
            "the baseline's sealed ones" if contract.of_baseline else one_line(contract.against)
        )
        times = f"each {contract.repeat} times, at temperature 0"
        yield f"asks {server} the shipped cases{own}, {times}"
        yield f"compares tools, schemas, protocol and words with {against}"
    if contract.suite:
        yield f"{_where(step.where)}$ OMNI_URL=(of {server}) {shown(contract.suite)}"


def _soak(soak: measuring.SoakStep) -> Iterator[str]:
    pace = f"one every {format_duration(soak.every)}"
    if soak.arrivals == "after_reply":
        pace = f"the next {format_duration(soak.every)} after each reply"
    yield f"{format_duration(soak.duration)} of requests to {soak.service}, {pace}"
    if soak.context is not None:
        share = f"{soak.context:.0%} of its context" if soak.context <= 1 else ""
        filled = share or f"{soak.context:.0f} tokens of its context"
        yield f"as conversations, each of which grows until {filled} are filled"
    if soak.max_errors is not None:
        yield f"ends early, as failed, above {soak.max_errors} errors"


def _gate(step: Step) -> Iterator[str]:
    for criterion in step.gate or []:
        parts = [f"GO {criterion.go}" if criterion.go else ""]
        parts.append(f"NO-GO {criterion.no_go}" if criterion.no_go else "else NO-GO")
        of = f" ({criterion.of})" if criterion.of else ""
        yield f"{criterion.metric}{of}: {', '.join(p for p in parts if p)}"
    names = [
        f"{verdict} → {name}"
        for verdict, name in (
            ("GO", step.outcomes.go), ("NO-GO", step.outcomes.no_go), ("HOLD", step.outcomes.hold),
        )
        if name
    ]  # fmt: skip
    if names:
        yield f"decides: {', '.join(names)}"
    yield f"on NO-GO: {step.on_no_go}; on HOLD (also missing data): {step.on_hold}"


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


def shown(argv: Iterable[str]) -> str:
    """A command line to be read, not run: the secrets in it are hidden."""
    return shlex.join(redact.argv(argv)).replace(f"'{redact.HIDDEN}'", redact.HIDDEN)


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
