"""The baseline before a run: it has just served, and everything needed to bring it back exists."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import BaselineNotReady, ConsoleError, ServiceError
from console.common.text import one_line
from console.config.site.site import Site
from console.host import children, licence, process, units
from console.host.licence import Licence, Reason
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.host.units import UnitSpec
from console.recovery.rollback import evidence, observe, restores, sealed_plan
from console.recovery.rollback.baseline_state import Witness
from console.recovery.rollback.look import reach_of
from console.recovery.rollback.sealed_plan import Baseline, EngineAddress, Proof, SealedPlan
from console.recovery.rollback.stages.verify import QUICK_S
from console.runner.prepare import mounts
from console.runtime import proxy, reach
from console.runtime.answers.completion import Completion
from console.runtime.answers.completion import prove_longer as completion
from console.runtime.discovery import adoption
from console.runtime.docker.client import image_info, inspect
from console.runtime.engine_api import made_of_others, unfit_as_baseline
from console.runtime.probe import Health, health, remedy, wrong_path
from console.runtime.spec import ComposeSpec, ExistingContainer, ServiceSpec

if TYPE_CHECKING:
    from docker import DockerClient

    Client = Callable[[], DockerClient]

ANSWERS = (Health.SERVING, Health.LOADING, Health.REFUSING, Health.SLOW)
"""Where somebody has answered at the address."""


def restore_time(site: str) -> float | None:
    """Seconds that a recent restore took, or None if none was measured."""
    return restores.expected_restore(paths.restore_file(site), "baseline")


def facts(site: Site, client: Client) -> Baseline:
    """The baseline as the sealed plan names it: ids, not names that may move.

    `client` connects to the engine when it is needed. Raises BaselineNotReady when the
    container, image or models are not there.
    """
    _models_exist(site)
    baseline = written(site)
    if baseline.unit is not None:
        _unit_exists(baseline.unit)
    _may_be_stopped(baseline, site)
    if baseline.kind != "container":
        return baseline
    container, name, image = _container(site.baseline_spec(), client(), baseline.container_id)
    return replace(
        baseline, container_id=container, container_name=name, image_id=image, by_name=False
    )


def written(site: Site) -> Baseline:
    """The baseline as the site file has it, without any look-up: for a rollback on a machine whose
    engine does not answer yet."""
    model, spec = site.model.baseline, site.baseline_spec()
    ask = model.completion
    common = Baseline(
        name="baseline",
        kind="container",
        url=spec.url,
        ready_path=spec.ready.path,
        ready_timeout_s=spec.ready.timeout_s,
        completion=Proof(ask.model, ask.prompt, ask.max_tokens, ask.timeout, ask.expect),
        reference_tok_s=model.reference.tok_s if model.reference else None,
        tolerance=model.reference.tolerance if model.reference else 0.10,
        records_dir=str(paths.records_dir(site.name)),
    )
    if isinstance(spec.runs, ProcessSpec):
        log = paths.baseline_log(site.name)
        with contextlib.suppress(OSError):  # a start says that it keeps no log
            paths.make(log.parent)
        environment = tuple(sorted(children.kept().items()))
        return replace(
            common, kind="process", process=spec.runs, log=str(log),
            program=adoption.program_of(spec.runs), environment=environment,
        )  # fmt: skip
    if isinstance(spec.runs, UnitSpec):
        return replace(common, kind="unit", unit=spec.runs)
    if isinstance(spec.runs, ComposeSpec):
        from console.runtime.docker.compose import up_argv

        runs = spec.runs
        argv = up_argv(runs.files, runs.service, runs.project, runs.profiles)
        # no name: the service's own may be that of somebody else's container
        return replace(common, compose_argv=tuple(argv), compose_env=runs.env)
    assert isinstance(spec.runs, ExistingContainer)
    known = _known_id(site, spec.runs.name)
    return replace(common, container_name=spec.runs.name, container_id=known, by_name=bool(known))


def _known_id(site: Site, name: str) -> str:
    """The id of the container of this name that was proven last, or that the newest run on the site
    has sealed: it may have been renamed since. "" if nobody knows."""
    recorded = evidence.container_of(site.name, site.model.baseline.url, name)
    if recorded:
        return recorded
    for path in sealed_plan.copies():
        with contextlib.suppress(ConsoleError):
            plan = sealed_plan.read(path)
            if (plan.site_name, plan.baseline.container_name) == (site.name, name):
                return plan.baseline.container_id
    return ""


def container_ref(spec: ServiceSpec, client: DockerClient) -> str:
    """Name or id of the baseline's container. A compose service's container is found by its labels
    and started by id, never by `up`, which may recreate it. Raises BaselineNotReady."""
    if isinstance(spec.runs, ExistingContainer):
        return spec.runs.name
    assert isinstance(spec.runs, ComposeSpec)
    from console.runtime.docker.compose import resolve_container

    container_id = resolve_container(client, spec.runs.files, spec.runs.service, spec.runs.project)
    if container_id is None:
        service = one_line(spec.runs.service)
        raise BaselineNotReady(
            f"the baseline's compose service {service} has no container",
            hint=f"docker compose -f {spec.runs.files[0]} up -d {service}",
        )
    return container_id


def _may_be_stopped(baseline: Baseline, site: Site) -> None:
    """Raise BaselineNotReady for a process that is recorded as another site's baseline as well."""
    if baseline.process is None:
        return
    records = Path(baseline.records_dir)
    known = process.known(records, baseline.name, baseline.process, BASELINE_COOKIE)
    own = Licence(Reason.BASELINE, site.name, owner=site.owner)
    why = licence.refusal(own, *known) if known else ""
    if known and why:
        raise BaselineNotReady(
            f"no run starts: pid {known[0]} could not be stopped", why,
            adoption.advice(baseline.process, baseline.url, known[0]),
        )  # fmt: skip
    why, hint = adoption.with_others(*known) if known else ("", "")
    if known and why:
        title = f"no run starts: to stop pid {known[0]} would end more than the baseline"
        raise BaselineNotReady(title, why, hint)


def _container(spec: ServiceSpec, client: DockerClient, known: str) -> tuple[str, str, str]:
    """(id, name, image id) of the baseline's container, running or not; `known`: the id that it had
    in an earlier run."""
    from console.runtime.docker.container import is_here

    ref = container_ref(spec, client)
    container = inspect(client, ref)
    renamed = inspect(client, known) if known else None
    # one that serves stays the baseline, whatever has its name and does not run (`observe.ways`)
    displaced = _runs(renamed) and not _runs(container)
    if container is None or displaced:
        if renamed is not None:
            now = one_line(str(renamed.get("Name", "")).lstrip("/"))
            raise BaselineNotReady(
                f"the baseline's container {one_line(ref)} was renamed",
                f"it is {now} now, by its id {known[:12]}",
                f"write that name into the site file, or docker rename {now} {one_line(ref)}",
            )
        raise BaselineNotReady(
            f"the baseline's container {one_line(ref)} does not exist",
            hint="docker ps -a lists the containers; correct the site file",
        )
    image = str(container.get("Image", ""))
    if image_info(client, image) is None:
        raise BaselineNotReady(
            "the baseline's image is gone", f"{image[:19]} of {one_line(ref)}",
            "without it the container cannot be started again; pull or build it first",
        )  # fmt: skip
    if isinstance(spec.runs, ComposeSpec):
        _same_files(container, spec.runs, ref)
    why, hint = unfit_as_baseline(container, spec.url)
    if why:
        raise BaselineNotReady(
            "the baseline's container cannot be stopped and brought back",
            f"{one_line(ref)}: {why}", hint,
        )  # fmt: skip
    if is_here(client) and (why := mounts.lost(container)):
        raise BaselineNotReady(
            "the baseline's container would not come back", f"{one_line(ref)}: {why}",
            "bring it back (findmnt shows what is mounted; mkdir, where it was empty), or make the "
            "container again without it",
        )  # fmt: skip
    return str(container["Id"]), str(container.get("Name", "")).lstrip("/"), image


def _runs(container: Mapping[str, Any] | None) -> bool:
    return container is not None and observe.is_up(dict(container))


def _same_files(container: Mapping[str, Any], runs: ComposeSpec, ref: str) -> None:
    """Raise BaselineNotReady if compose made the container of other files than the site file names:
    it would come back without what these gave it."""
    labels = (container.get("Config") or {}).get("Labels") or {}
    if files := made_of_others(labels, runs.files):
        name = one_line(str(container.get("Name", "")).lstrip("/") or ref, 60)
        raise BaselineNotReady(
            "the baseline's container was made of other compose files than the site file names",
            f"{name}: {files}",
            f"`container: {name}` in the site file, instead of `compose:`, starts that container "
            "and never makes it anew; or write these files into one",
        )


def _unit_exists(unit: UnitSpec) -> None:
    try:
        there = units.look(unit).exists
    except ServiceError as error:
        raise BaselineNotReady(
            "the baseline's unit cannot be looked at", str(error), error.hint
        ) from error
    if not there:
        raise BaselineNotReady(
            f"the baseline's {unit.words} does not exist",
            hint="systemctl list-units --type=service lists the units; correct the site file",
        )


def _models_exist(site: Site) -> None:
    missing = [m for m in site.model.baseline.models if not (site.base / m).exists()]
    if missing:
        hint = "restore the file, or correct `models` of the baseline in the site file"
        if site.base == paths.demo_dir():
            hint = "omni-console demo makes it and starts the demo's baseline"
        raise BaselineNotReady("a model of the baseline is missing", one_line(missing[0]), hint)


def prove(site: Site, witness: Witness) -> Completion:
    """Get one completion from the baseline now; what fails is kept as evidence. Raises
    BaselineNotReady."""
    spec, ask = site.baseline_spec(), site.model.baseline.completion
    other = proxy.at(spec.url)
    if other is not None:
        run = other.run or "another run"
        raise _silent(
            site,
            "does not serve",
            f"{other.service} answers at {spec.url}, by the cutover of {run}",
        )
    state, detail = health(spec.url, spec.ready.path)
    plan = _plan(site)
    if state in ANSWERS or detail.startswith("HTTP"):
        _is_ours(plan)
    if state is not Health.SERVING:
        held = observe.held_beside(plan) if detail.startswith("HTTP") else ""
        why, what = f"{spec.url}: {state}, {detail}".rstrip(", "), "does not serve"
        if state is not Health.REFUSED and not held and _answers(site):
            what = "is not well, by its health path"
            why = f"{why}; {wrong_path(spec.ready.path)}"
        raise _silent(site, what, why, held)
    arrivals = reach_of(plan, observe.OWNER_S)
    try:
        done = completion(
            spec.url, model=ask.model, prompt=ask.prompt, max_tokens=ask.max_tokens,
            timeout_s=ask.timeout, expect=ask.expect,
        )  # fmt: skip
    except ConsoleError as error:
        raise _silent(site, "did not answer", str(error)) from error
    if arrivals.missed:
        where = f"no run starts: {observe.ELSE.removesuffix(' there')} at {plan.baseline.url}"
        raise BaselineNotReady(where, reach.NOTHING_CAME, reach.HINT)
    if not done.ok:
        _is_ours(plan)  # another server may have taken its place meanwhile
        remember(plan, done, witness)
        what = "answers garbage" if done.garbled is not None else "did not answer"
        what = "refuses" if done.refuses else "answers too slowly" if done.sends else what
        raise _silent(site, what, done.why)
    return done


def _plan(site: Site) -> SealedPlan:
    engine = EngineAddress(docker_host=site.model.engine.host or "")
    return SealedPlan("", "", written(site), site.name, engine=engine)


def require_ours(site: Site) -> None:
    """The same of a run that goes on, and needs no proof now."""
    _is_ours(_plan(site), "the run is not resumed")


def _is_ours(plan: SealedPlan, then: str = "no run starts") -> None:
    """Raise BaselineNotReady where somebody else answers in the baseline's place, or beside it:
    what comes from there is then no word of the baseline, and no rollback ends a stranger."""
    stranger = observe.somebody_else(plan)
    if stranger:
        where = f"{then}: {observe.ELSE.removesuffix(' there')} at {plan.baseline.url}"
        raise BaselineNotReady(where, stranger, adoption.NOT_OURS)


def _answers(site: Site) -> bool:
    """Whether it answers a completion, though its health path is not well."""
    ask = site.model.baseline.completion
    with contextlib.suppress(ConsoleError):
        return completion(
            site.model.baseline.url, model=ask.model, prompt=ask.prompt, max_tokens=ask.max_tokens,
            timeout_s=min(ask.timeout, QUICK_S), expect=ask.expect,
        ).ok  # fmt: skip
    return False


def _silent(site: Site, what: str, why: str, held: str = "") -> BaselineNotReady:
    hint = remedy(why) or "omni-console rollback brings the baseline back and proves it"
    if failed := evidence.after_failed_rollback(site.name, site.model.baseline.url):
        hint = failed
    if held:
        away = "if that is not the baseline, one of the two needs another port"
        why, hint = f"{why}; {held}", f"{away}; then {hint}"
    return BaselineNotReady(f"no run starts: the baseline {what}", why, hint)


def remember(plan: SealedPlan, done: Completion, witness: Witness) -> None:
    """Keep what a completion says of the baseline, if it is known to be the baseline's: another
    server at its address proves nothing about it, and fails nothing for it."""
    with contextlib.suppress(OSError):  # a badge refuses no run
        if observe.answers(plan, known=done.ok):
            seen = evidence.of_completion(done, witness, time.time())
            evidence.record(plan, observe.known_start(plan, seen) if done.ok else seen)
