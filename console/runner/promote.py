"""Accepts a cutover: proves the candidate once more and records who and why; it moves nothing.

The console only tells what a person must change so that a rollback restores the promoted candidate
(`site_lines`, `first`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from console.common import paths, redact
from console.common.errors import (
    BaselineNotReady,
    ConsoleError,
    ServiceError,
    UsageError,
)
from console.common.text import clean, one_line
from console.common.units import format_duration, number
from console.config.site.site import BaselineModel, CompletionModel, Site, load_site
from console.host.process import ProcessSpec
from console.journal import events
from console.journal.lock import HostLock, ladder_busy, runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_files import read_view
from console.journal.run_view import RunView
from console.journal.store import Journal
from console.recovery.rollback import live, records
from console.recovery.rollback.records import Promotion
from console.render.report.document import write_report
from console.runner.prepare.plan import own_playbook
from console.runner.services import handle_of
from console.runtime import proxy as relay
from console.runtime.answers.completion import Completion, prove_longer
from console.runtime.docker.client import connect, inspect
from console.runtime.proxy import Relay
from console.runtime.spec import ComposeSpec, ContainerSpec, ServiceSpec


def site_lines(spec: ServiceSpec, old: BaselineModel, view: RunView) -> list[str]:
    """The `baseline:` of the site file with this service on the production port, as YAML. `old`:
    the site's baseline until now, which has the port and the request that proves it."""
    url = old.url
    lines = ["baseline:", *(f"  {line}" for line in _runs(spec, url)), f"  url: {url}"]
    ready = f"{{http: {spec.ready.path}, timeout: {spec.ready.timeout_s:.0f}s}}"
    lines.append(f"  ready: {ready}")
    lines += [f"  {line}" for line in _completion(old.completion)]
    rate = measured(spec.name, view)
    if rate is not None:
        lines.append(f"  reference: {{tok_s: {rate:.4g}}}   # as run {view.run_id} measured it")
    else:
        lines.append(f"  # reference is missing: the run did not measure tok/s of {spec.name}; "
                     f"the figure of omni-console bench {url} belongs there")  # fmt: skip
    lines.append("  models: []   # the files it needs: no run starts without them")
    return [clean(line) for line in lines]


def _completion(ask: CompletionModel) -> Iterator[str]:
    """The request that proves the baseline, as far as the site file states it; without its model,
    which is the old baseline's."""
    given = ask.model_dump(exclude_unset=True)
    if model := given.pop("model", ""):
        yield f"# model: {json.dumps(model)} is not kept: the candidate answered without a name"
    if "timeout" in given:
        given["timeout"] = f"{ask.timeout:g}s"
    if given:
        yield f"completion: {json.dumps(given, ensure_ascii=False)}"


def first(spec: ServiceSpec, url: str) -> list[str]:
    """Commands to run before the site file is changed; none for a host process."""
    runs, port = spec.runs, relay.port_of(url)
    if isinstance(runs, ContainerSpec):
        argv = _create(spec, runs, url)
        hidden = [*_hidden_words(argv), *_hidden_values(dict(runs.env))]
        return [*_to_fill_in(dict.fromkeys(hidden)), clean(shlex.join(argv))]
    if isinstance(runs, ComposeSpec):
        files = " ".join(f"-f {shlex.quote(str(file))}" for file in runs.files)
        service = shlex.quote(runs.service)
        more = f", add {shlex.join(runs.args)} to its command" if runs.args else ""
        return [
            f"# in {clean(str(runs.files[0]))}: publish {service} on {port}, not "
            f"{relay.port_of(spec.url)}{clean(more)}, and give it `restart: unless-stopped`",
            clean(f"docker compose {files} create {service}"),
        ]
    return []


def measured(service: str, view: RunView) -> float | None:
    """tok/s of a service from the run's last benchmark of it."""
    rates = [
        number(view.metrics.get(scope, {}).get("tok_s", {}).get("value"))
        for scope, known in view.measured.items()
        if known.benchmark
        and "." not in scope
        and known.benchmark.get("service", service) == service
    ]
    known_rates = [rate for rate in rates if rate]
    return known_rates[-1] if known_rates else None


def _runs(spec: ServiceSpec, url: str) -> Iterator[str]:
    runs = spec.runs
    if isinstance(runs, ProcessSpec):
        argv, moved = on_port(runs.argv, relay.port_of(spec.url), relay.port_of(url))
        hint = "" if moved else "   # its port is not in here: make it listen on the url's"
        env = {**_environment(runs), **dict(runs.env)}
        # a baseline has no environment: its program has its whole path
        program = shutil.which(argv[0], path=env.get("PATH")) if runs.within else None
        argv = (program or argv[0], *argv[1:])
        yield "process:"
        yield from (f"  {line}" for line in _to_fill_in(_hidden_words(argv)))
        yield f"  argv: {json.dumps(list(argv), ensure_ascii=False)}{hint}"
        if env:
            yield from (f"  {line}" for line in _to_fill_in(_hidden_values(env)))
            yield f"  env: {json.dumps(env, ensure_ascii=False)}"
        if runs.within.file:
            yield f"  # and to its env the variables in {runs.within.file}"
        if runs.cwd:
            yield f"  cwd: {json.dumps(runs.cwd, ensure_ascii=False)}"
    elif isinstance(runs, ContainerSpec):
        yield f"container: {_name(spec)}"
    elif isinstance(runs, ComposeSpec):
        project = f", project: {json.dumps(runs.project)}" if runs.project else ""
        profile = f", profile: {json.dumps(runs.profiles[0])}" if runs.profiles else ""
        file = json.dumps(str(runs.files[0]), ensure_ascii=False)
        yield f"compose: {{file: {file}, service: {json.dumps(runs.service)}{profile}{project}}}"


def _to_fill_in(names: Iterable[str]) -> Iterator[str]:
    """A comment above a line in which secrets are hidden: as it stands, the line does not work."""
    for name in names:
        yield f"# fill in {name}: {redact.HIDDEN} stands for it, because it is secret"


def _hidden_values(env: Mapping[str, str]) -> list[str]:
    """The variables whose values are not shown, as words."""
    return [f"the value of {one_line(name, 60)}" for name, value in env.items()
            if redact.is_secret(name, value) and redact.named(name, value) != value]  # fmt: skip


def _hidden_words(argv: Sequence[str]) -> list[str]:
    """What is not shown of a command, as words."""
    shown = redact.argv(argv)
    descriptions: list[str] = []
    for at, (word, visible) in enumerate(zip(argv, shown, strict=True)):
        if word == visible or (at and argv[at - 1] == "-e"):  # a variable has its own name
            continue
        flag = visible.partition("=")[0]
        before = shown[at - 1] if at else ""
        name = flag if flag.startswith("-") and redact.HIDDEN not in flag else before
        descriptions.append(f"the value of {one_line(name, 60)}" if name.startswith("-")
                     else f"the password in {one_line(visible, 60)}")  # fmt: skip
    return list(dict.fromkeys(descriptions))


def _environment(runs: ProcessSpec) -> dict[str, str]:
    """What its conda environment gives it; nothing if that is gone."""
    with contextlib.suppress(ServiceError):
        conda = replace(runs.within, file="")
        return conda.variables(os.environ.get("PATH", os.defpath))
    return {}


def on_port(argv: tuple[str, ...], old: int, new: int) -> tuple[tuple[str, ...], bool]:
    """An argv with its port replaced, found as a word or after `=` or `:`; and whether it was
    found."""
    form = re.compile(rf"(^|=|:){old}$")
    changed = tuple(form.sub(rf"\g<1>{new}", word) for word in argv)
    return changed, changed != argv


def _name(spec: ServiceSpec) -> str:
    return f"{spec.name}-baseline"


def _create(spec: ServiceSpec, runs: ContainerSpec, url: str) -> list[str]:
    """`docker create` for the candidate as the operator's own container: without the console's
    labels, since a rollback stops what carries them."""
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
    """How long recent restores took, for whoever decides."""
    known = view.restore_s
    return f"back in {format_duration(known)}" if known else "its duration was never measured"


@dataclass(frozen=True, slots=True)
class CutOver:
    """A cutover in force: its relay, its run, and what clients reach."""

    relay: Relay
    run: RunDir
    view: RunView
    spec: ServiceSpec


def standing(site: Site) -> CutOver:
    """Return the cutover to accept. Raises UsageError if there is none, or its run is active."""
    url = site.model.baseline.url
    cutover_relay = relay.at(url)
    if cutover_relay is None:
        raise UsageError(
            "there is nothing to promote", f"clients of {url} are not at a candidate",
            "a playbook's step `cutover: {to: …, then: stay}` leaves them there",
        )  # fmt: skip
    run = RunDir(paths.runs_dir() / cutover_relay.run)
    if not cutover_relay.run or not run.readable:
        raise UsageError("the run of this cutover has no record", f"relay, pid {cutover_relay.pid}")
    if runner_alive(run) or ladder_busy(run):
        raise UsageError(
            f"run {run.id} is still active", "it may still end the cutover",
            f"omni-console attach {run.id[-4:]}; promote when it has ended",
        )  # fmt: skip
    view = read_view(run)
    if view.rehearsal:
        raise UsageError("a rehearsal cannot be promoted", "stand-ins answered, not the engine")
    if not view.over or view.cutover.what not in ("stays", "promoted"):
        raise UsageError(
            f"run {run.id} did not end with its cutover proven", f"its state is {view.state}",
            f"omni-console resume {run.id[-4:]}, or omni-console rollback",
        )  # fmt: skip
    spec, engine = _started(run, cutover_relay.service)
    cut = CutOver(cutover_relay, run, view, spec)
    _serves_itself(cut, engine)
    return cut


def _serves_itself(cut: CutOver, engine: str) -> None:
    """Raise BaselineNotReady if it is not the run's candidate that answers behind the relay: it may
    have died since, and another server may have taken its port."""
    name, run = cut.spec.name, cut.run
    known = handle_of(cut.view.services.get(name))
    more = () if known is None else (live.of_handle(known),)
    with contextlib.ExitStack() as stack:

        def inspected(container: str) -> Mapping[str, Any] | None:
            client = stack.enter_context(contextlib.closing(connect(engine or None)))
            return inspect(client, container)

        _, who = live.in_its_place(run.path, name, cut.spec.url, inspected, more)
    if who:
        raise BaselineNotReady(
            "not promoted: clients do not reach the candidate that was measured", f"{name}, {who}",
            "omni-console rollback brings the baseline back",
        )  # fmt: skip


def _started(run: RunDir, name: str) -> tuple[ServiceSpec, str]:
    """The service as the run started it, and the run's engine, from the run's own copies. Raises
    ConsoleError."""
    meta, site = run.meta(), load_site(run.site)
    site.base = Path(meta.site_base)
    playbook = own_playbook(run.playbook, site, meta.inputs, Path(meta.base), planning=True)
    return {**site.service_specs(), **playbook.services()}[name], site.model.engine.host


def proven(site: Site) -> Completion:
    """Get one sane completion on the production port now. Raises BaselineNotReady."""
    ask, url = site.model.baseline.completion, site.model.baseline.url
    done = prove_longer(
        url, prompt=ask.prompt, max_tokens=ask.max_tokens, timeout_s=ask.timeout, expect=ask.expect
    )
    if not done.ok:
        what = "get garbage" if done.garbled is not None else "are not served"
        raise BaselineNotReady(
            f"not promoted: clients {what}", f"{url}: {done.why}",
            "omni-console rollback brings the baseline back",
        )  # fmt: skip
    return done


def accept(site: Site, cut: CutOver, who: str, why: str) -> Promotion:
    """Record the promotion in the run's directory, journal and report while no run is active.
    Raises HostBusy, OSError, ConsoleError."""
    lock = HostLock()
    try:
        # Since the cutover was looked at, a rollback may have ended it, and a run made another.
        proven(site)
        now = standing(site).relay
        if (now.pid, now.start) != (cut.relay.pid, cut.relay.start):
            raise UsageError(
                "nothing was promoted: the cutover that was shown has ended",
                f"another one stands now, by run {now.run}", "omni-console promote shows it",
            )  # fmt: skip
        made = Promotion(cut.relay.service, one_line(who, 60), one_line(why, 300), time.time())
        records.write_promotion(cut.run.path, made)
        journal = Journal(cut.run.journal)
        try:
            what, who, why = "promoted", made.who, made.why
            for body in (
                events.Verb(what=what, who=who, why=why, verb="promote"),
                events.Cutover(what=what, who=who, why=why),
            ):
                journal.append(made.at, body.kind, "", 0, body.data())
        finally:
            journal.close()
        # the report says it too; it is written anew as far as it can be
        with contextlib.suppress(OSError, ConsoleError):
            write_report(cut.run, read_view(cut.run), None)
        return made
    finally:
        lock.release()
