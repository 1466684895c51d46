"""What a person changes so that a promoted candidate is what a rollback restores. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from console.common.text import clean
from console.common.units import format_duration
from console.host.process_spec import ProcessSpec
from console.journal.report_data import number
from console.journal.run_view import RunView
from console.runtime import proxy as relay
from console.runtime.spec import ComposeSpec, ContainerSpec, ServiceSpec


def site_lines(spec: ServiceSpec, url: str, view: RunView) -> list[str]:
    """The `baseline:` of the site file with this service on the production port, as YAML."""
    lines = ["baseline:", *(f"  {line}" for line in _runs(spec, url)), f"  url: {url}"]
    ready = f"{{http: {spec.ready.path}, timeout: {spec.ready.timeout_s:.0f}s}}"
    lines.append(f"  ready: {ready}")
    rate = measured(spec.name, view)
    if rate is not None:
        lines.append(f"  reference: {{tok_s: {rate:.4g}}}   # as run {view.run_id} measured it")
    lines.append("  models: []   # the files it needs: no run starts without them")
    return [clean(line) for line in lines]


def first(spec: ServiceSpec, url: str) -> list[str]:
    """Commands to run before the site file is changed; none for a host process."""
    runs, port = spec.runs, relay.port_of(url)
    if isinstance(runs, ContainerSpec):
        return [clean(shlex.join(_create(spec, runs, url)))]
    if isinstance(runs, ComposeSpec):
        files = " ".join(f"-f {shlex.quote(str(file))}" for file in runs.files)
        service = shlex.quote(runs.service)
        return [
            f"# in {clean(str(runs.files[0]))}: publish {service} on {port}, not "
            f"{relay.port_of(spec.url)}, and give it `restart: unless-stopped`",
            clean(f"docker compose {files} create {service}"),
        ]
    return []


def measured(service: str, view: RunView) -> float | None:
    """tok/s of the run's last benchmark of a service."""
    rates = [
        number(view.metrics.get(scope, {}).get("tok_s", {}).get("value"))
        for scope, bench in view.benchmarks.items()
        if "." not in scope and bench.get("service", service) == service
    ]
    found = [rate for rate in rates if rate]
    return found[-1] if found else None


def _runs(spec: ServiceSpec, url: str) -> Iterator[str]:
    runs = spec.runs
    if isinstance(runs, ProcessSpec):
        argv, moved = on_port(runs.argv, relay.port_of(spec.url), relay.port_of(url))
        hint = "" if moved else "   # its port is not in here: make it listen on the url's"
        yield "process:"
        yield f"  argv: {json.dumps(list(argv), ensure_ascii=False)}{hint}"
        if runs.env:
            yield f"  env: {json.dumps(dict(runs.env), ensure_ascii=False)}"
        if runs.cwd:
            yield f"  cwd: {json.dumps(runs.cwd, ensure_ascii=False)}"
    elif isinstance(runs, ContainerSpec):
        yield f"container: {_name(spec)}"
    elif isinstance(runs, ComposeSpec):
        project = f", project: {json.dumps(runs.project)}" if runs.project else ""
        profile = f", profile: {json.dumps(runs.profiles[0])}" if runs.profiles else ""
        file = json.dumps(str(runs.files[0]), ensure_ascii=False)
        yield f"compose: {{file: {file}, service: {json.dumps(runs.service)}{profile}{project}}}"


def on_port(argv: tuple[str, ...], old: int, new: int) -> tuple[tuple[str, ...], bool]:
    """An argv with its port changed where it stands as a word or behind `=` or `:`; and whether
    it did."""
    form = re.compile(rf"(^|=|:){old}$")
    changed = tuple(form.sub(rf"\g<1>{new}", word) for word in argv)
    return changed, changed != argv


def _name(spec: ServiceSpec) -> str:
    return f"{spec.name}-baseline"


def _create(spec: ServiceSpec, runs: ContainerSpec, url: str) -> list[str]:
    """`docker create` of the candidate's container as the operator's own: without the console's
    labels, which a rollback stops."""
    argv = ["docker", "create", "--name", _name(spec), "--restart", "unless-stopped"]
    here = relay.port_of(spec.url)
    for host, inside in runs.ports:
        host = relay.port_of(url) if host == here else host
        argv += ["-p", f"127.0.0.1:{host}:{inside}"]
    for mount in runs.mounts:
        argv += ["-v", f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'}"]
    for name, value in runs.env:
        argv += ["-e", f"{name}={value}"]
    if runs.gpus:
        argv += ["--gpus", "all" if runs.gpus == ("all",) else f"device={','.join(runs.gpus)}"]
    given = (
        ("--memory", runs.memory_bytes), ("--shm-size", runs.shm_bytes), ("--cpus", runs.cpus),
        ("--network", runs.network), ("--workdir", runs.workdir),
    )  # fmt: skip
    for flag, given_value in given:
        argv += [flag, str(given_value)] if given_value else []
    if runs.entrypoint:
        argv += ["--entrypoint", runs.entrypoint[0]]
    return [*argv, runs.image, *runs.entrypoint[1:], *runs.command]


def outage_words(view: RunView) -> str:
    """How long the way back took lately, for whoever decides."""
    known = view.restore_s
    return f"back in {format_duration(known)}" if known else "how fast was never measured"
