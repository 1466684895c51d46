"""Before step 1, resolves everything that a rollback needs, writes it beside the journal, and
records in the journal what the run is."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from typing import Any

from console.common import paths
from console.common.errors import BaselineNotReady, ConsoleError, EngineError, ServiceError
from console.common.paths import module_argv
from console.config.site.notify import variables
from console.config.site.site import Site
from console.host import process
from console.host.licence import BASELINES
from console.host.process import ProcessSpec
from console.journal import events
from console.journal.run_dir import RunDir, all_runs
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, Candidate, EngineAddress, SealedPlan
from console.recovery.rollback.shell import launcher, sealed_copy
from console.render.effects import service_words
from console.runner.context import Context
from console.runner.guard.limits import lease_of
from console.runner.prepare.baseline import facts, restore_time, written
from console.runner.prepare.plan import Plan, targets
from console.runner.slurm.ticket import told_allocation
from console.runtime import engine_address as engines
from console.runtime import proxy
from console.runtime.docker.client import connect
from console.runtime.engine_api import NoSuchContainer, RawEngine
from console.runtime.spec import GRACE_S, ContainerSpec, ServiceSpec

NVML_S = 2.0
"""Seconds to wait for a driver that hangs; the report then lacks its cards."""


def seal(context: Context, baseline: Baseline) -> SealedPlan:
    """Write plan.json and rollback.sh into the run's rollback directory, and the sealed copy that
    rollback.sh runs beside the runs. Raises OSError."""
    plan = sealed_plan(context.plan.site, baseline, context.plan, str(context.run.path))
    plan = replace(
        plan, lease_s=lease_of(context.plan, context.meta.lease_s), copy=sealed_copy.place()
    )
    context.sealed = plan
    sealed.write(plan, context.run.sealed)
    launcher.write(plan, context.run.script)
    # one path that can be typed; the baseline of a rehearsal or of the demo is nobody's
    if not context.rehearsal and context.plan.site.base != paths.demo_dir():
        path = sealed.site_script(plan.site_name)
        paths.make(path.parent)
        launcher.write(plan, path)
        # for a rollback of this run when its directory is lost
        sealed.write(plan, path.with_suffix(".json"), 0o600)
    return plan


def sealed_plan(
    site: Site, baseline: Baseline, plan: Plan | None = None, run_dir: str = ""
) -> SealedPlan:
    """The sealed plan of a run, or (without `plan`) of a site with no run."""
    specs = _used(plan) if plan is not None else []
    run_id = os.path.basename(run_dir)
    finish = (*module_argv("console.cli"), "runner", run_dir, "--close") if run_dir else ()
    engine = _engine(site, baseline, specs)
    return SealedPlan(
        run_id=run_id,
        run_dir=run_dir,
        baseline=baseline,
        site_name=site.name,
        site_path=str(site.path),
        sealed_at=time.time(),
        candidates=tuple(_candidate(spec) for spec in specs) if plan else _left(site),
        engine=engine,
        protected=_protected(site, engine.socket if plan is not None else ""),
        gpus=tuple(gpu.uuid for gpu in site.model.gpus),
        exclusive=any(spec.exclusive for spec in specs),
        memory_file=str(paths.restore_file(site.name)),
        finish_argv=finish,
        finish_env=variables(site.model.notify),
        grace_s=max((spec.grace_s for spec in specs), default=GRACE_S),
        keep=tuple(spec.name for spec in specs if spec.keep),
    )


def _used(plan: Plan) -> list[ServiceSpec]:
    """The services of a run without those of its playbook that no step names: a rollback need not
    look for containers of an alternative that the inputs did not choose."""
    book = plan.playbook
    steps = [*(step for _, step in book.steps()), *book.model.finally_]
    step_words = {
        word for step in steps if step.when for word in _words(step.model_dump(mode="json"))
    }
    declared = book.model.services
    return [
        spec for name, spec in plan.services.items() if name not in declared or name in step_words
    ]


def _words(value: object) -> Iterator[str]:
    """Every text in a step."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _words(child)


def _protected(site: Site, socket: str) -> tuple[str, ...]:
    """The protected containers as written, plus their current ids, because some code kills by id
    alone. Without an engine, or for an absent container, only the name."""
    ids = []
    for name in site.model.protected if socket else ():
        try:
            ids.append(str(RawEngine(socket).inspect(name).get("Id", "")))
        except NoSuchContainer:
            continue
        except EngineError:
            break
    return tuple(
        dict.fromkeys(name_or_id for name_or_id in (*site.model.protected, *ids) if name_or_id)
    )


def site_plan(site: Site) -> SealedPlan:
    """A plan made now, for a rollback on a site for which no run sealed one; during a cutover it is
    the plan of the run that connected the clients."""
    return _switched(site) or sealed_plan(site, _facts_now(site))


def _facts_now(site: Site) -> Baseline:
    """The baseline's facts, or the site file's words alone: the rollback itself then waits for the
    engine, falls back on names and compose, and says why."""
    try:
        return facts(site, lambda: connect(site.model.engine.host or None))
    except (EngineError, ServiceError, BaselineNotReady):
        return written(site)


def _switched(site: Site) -> SealedPlan | None:
    """The plan of the run whose relay is up, or was up when it was killed. If the site file has
    changed since, the baseline comes from the site file and the rest from the run."""
    relay = proxy.at(site.model.baseline.url)
    name = os.path.basename(relay.run) if relay else ""
    marked = (run for run in all_runs() if run.switched.exists())
    runs = [RunDir(paths.runs_dir() / name)] if name else marked
    plan = next((plan for run in runs if (plan := _plan_at(run, site)) is not None), None)
    if plan is None:
        return None
    if not plan.is_older_than(site.path) and os.path.realpath(plan.site_path) == os.path.realpath(
        site.path
    ):
        return plan
    return plan.with_baseline_of(sealed_plan(site, _facts_now(site)))


def _plan_at(run: RunDir, site: Site) -> SealedPlan | None:
    """A run's plan, if it is of this site and of the address that its file names now: by then the
    file may describe another server, which the clients of that run never used."""
    with contextlib.suppress(ConsoleError):
        plan, owner = sealed.read_owned(run.sealed)
        same = sealed.is_same_address(plan.baseline.url, site.model.baseline.url)
        if same and plan.site_name == site.name and owner == os.getuid():
            return plan
    return None


def _engine(site: Site, baseline: Baseline, specs: list[ServiceSpec]) -> EngineAddress:
    """The engine's address if one is known, even if this site needs none, because leftovers of a
    step or an earlier run are found by labels alone; without one, an absent engine is no error."""
    engine = engine_address(site)
    named = bool(site.model.engine.host or os.environ.get("DOCKER_HOST"))
    named = named or engine.docker_host != engines.DEFAULT_HOST
    needed = any(not isinstance(spec.runs, ProcessSpec) for spec in specs)
    if named or needed or baseline.kind == "container" or os.path.exists(engine.socket):
        return engine
    return EngineAddress()


def engine_address(site: Site) -> EngineAddress:
    """How a rollback reaches the engine, and the docker command's configuration directory. A docker
    context that cannot be read, or leads to another machine, leaves the usual socket: a rollback
    looks for what this machine had."""
    usual = engines.Address(engines.DEFAULT_HOST)
    try:
        meant = engines.address(site.model.engine.host or "")
    except EngineError:
        meant = usual
    try:
        socket = engines.socket_of(meant)
    except EngineError:
        meant = usual if "context" in meant.source else meant
        socket = engines.DEFAULT_SOCKET if meant is usual else ""
    return EngineAddress(socket, meant.host, os.environ.get("DOCKER_CONFIG", ""))


def _left(site: Site) -> tuple[Candidate, ...]:
    """Host processes that earlier runs left running; their records are the only source. A record of
    a baseline is none, nor one that a later `init` or `adopt` has put aside."""
    records = paths.records_dir(site.name)
    kept = {path.stem for path in records.glob(BASELINES)}
    names = sorted({path.stem for path in records.glob("[a-z0-9]*.json")} - kept)
    return tuple(
        Candidate(name, "process")
        for name in names
        if process.read_record(records, name) is not None
        and not process.owner_of(records, name).is_other(site.owner)
    )


def _candidate(spec: ServiceSpec) -> Candidate:
    if isinstance(spec.runs, ProcessSpec):
        return Candidate(spec.name, "process", url=spec.url)
    name = ""
    if isinstance(spec.runs, ContainerSpec):
        name = spec.runs.name or f"omni-{spec.name}"
    return Candidate(spec.name, "container", container=name, url=spec.url)


def created(context: Context) -> None:
    """The first event of a run; it lets the report be read alone."""
    playbook, site, meta = context.plan.playbook, context.plan.site, context.meta
    context.record(
        events.RunCreated(
            run_id=context.run.id, title=playbook.model.title, objective=playbook.model.objective,
            playbook=playbook.name, digest=playbook.digest, site=site.name, owner=meta.owner,
            inputs=dict(playbook.inputs), lessons=list(playbook.model.lessons),
            restore_s=restore_time(site.name), version=version(),
            machine=machine(), baseline=reference(site),
            targets=targets(context.plan), lint=meta.lint,
            rehearsal=context.rehearsal or None,
            allocation=told_allocation(context.run),
            steps=[
                events.PlannedStep(
                    id=s.id, title=s.title, phase=s.phase, kind=s.kind, takes_s=s.takes_s,
                    takes_from=s.takes_from, limit_s=s.limit_s, implicit=s.implicit, final=s.final,
                    effects=list(s.effects), lessons=list(s.lessons),
                )
                for s in context.plan.steps
            ],
        )
    )  # fmt: skip


def version() -> str:
    """This console's version; empty where it was not installed."""
    try:
        return metadata.version("omni-console")
    except metadata.PackageNotFoundError:
        return ""


def machine() -> dict[str, Any]:
    """This machine in a few figures, in bytes; unknown ones are left out. Takes up to NVML_S if
    NVML hangs, never raises."""
    from console.host import machine
    from console.host.gpu import inventory

    gpu_inventory = inventory.ask(NVML_S)
    seen = machine.look(cards=gpu_inventory)
    return {
        "kernel": platform.release(), "cpu": seen.cpu_name, "cores": seen.cores,
        "threads": os.cpu_count(), "numa_nodes": seen.numa_nodes, "ram": seen.ram_total,
        "swap": seen.swap_total, "driver": gpu_inventory.driver, "cards_why": gpu_inventory.words,
        "cards": [{"uuid": c.uuid, "name": c.name, "memory": c.total} for c in gpu_inventory.cards],
    }  # fmt: skip


def reference(site: Site) -> dict[str, Any]:
    """What the trial is compared with: the baseline's command, address, and known speed (tok/s)."""
    model = site.model.baseline
    return {
        "url": model.url, "runs": list(service_words(site.baseline_spec())),
        "args": list(model.args),
        "reference": model.reference.tok_s if model.reference else None,
    }  # fmt: skip
