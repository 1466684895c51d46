"""Checks the site file, and whether its baseline exists, serves and has reference figures."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from console.checks.doctor.facts import ASK_S, Check, Facts, Finding, Level, each
from console.common import paths
from console.common.errors import ConsoleError
from console.common.text import decode, one_line
from console.common.units import format_duration
from console.host import children
from console.runtime.engine_api import NoSuchContainer, unfit_as_baseline

WORK_S = 0.2
"""Seconds within which processes are seen to compute."""

if TYPE_CHECKING:
    from console.config.site.site import Site
    from console.host.process import ProcessSpec
    from console.host.units import UnitSpec
    from console.recovery.rollback.sealed_plan import SealedPlan
    from console.runtime.proxy import Relay
    from console.runtime.spec import ComposeSpec

PROBLEMS = 20
RESTORE = "omni-console rollback brings the baseline back and proves it"
ENDS_FIRST = "; a run of another site that is in its outage is rolled back first"
INIT = "omni-console init finds what serves on this machine and writes the file for it"
_SERVICE = "com.docker.compose.service"
_PROJECT = "com.docker.compose.project"


def site_file(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the site file is found and valid; each problem is a finding with its line."""
    file = facts.site_file()
    if file.demo:
        where = paths.default_site()
        yield check.note(f"no site file: the demo site is used; {where} would be yours", INIT)
    for problem in file.problems[:PROBLEMS]:
        place = f"{problem.file}:{problem.line}:{problem.column}" if problem.line else problem.file
        expected = f"; expected {problem.expected}" if problem.expected else ""
        yield check.failed(f"{place}: {problem.what}{expected}", problem.hint or file.hint)
    more = len(file.problems) - PROBLEMS
    if more > 0:
        yield check.failed(f"{more} more problems", f"omni-console lint {file.path}")
    if file.site is not None and not file.demo:
        yield check.ok(f"{file.path} ({file.source}), site {file.site.name}")


def demo(facts: Facts, check: Check) -> Iterator[Finding]:
    """Without a site file, what the demo needs; its engine is imported in another process."""
    file = facts.site_file()
    if not file.demo:
        return
    try:
        code, _, error = children.run(
            [sys.executable, "-P", "-c", "import xllamacpp"], ASK_S, env=os.environ
        )
    except subprocess.TimeoutExpired:
        yield check.warning(f"the demo engine did not load within {ASK_S:g} s")
        return
    if code:
        lines = decode(error).strip().splitlines()
        why = one_line(lines[-1]) if lines else f"exit code {code}"
        yield check.warning(
            f"the demo engine does not load: {why}", "pip install 'omni-console[demo]'"
        )
        return
    made = "" if file.site else "; models and site file are made at the first `omni-console demo`"
    yield check.ok(f"the demo engine (xllamacpp) loads{made}")


def service(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the baseline's container, compose file, unit or program exists."""
    from console.host.process import ProcessSpec
    from console.host.units import UnitSpec
    from console.runtime.spec import ComposeSpec, ExistingContainer

    site = facts.site()
    if site is None:
        return
    runs = site.baseline_spec().runs
    if isinstance(runs, ProcessSpec):
        yield _program(check, runs)
    elif isinstance(runs, UnitSpec):
        yield _unit(check, runs)
    elif isinstance(runs, ExistingContainer):
        yield _container(facts, check, runs.name, site)
    elif isinstance(runs, ComposeSpec):
        missing = [str(file) for file in runs.files if not file.is_file()]
        if missing:
            yield check.failed(
                f"the compose file {missing[0]} is not there", "correct the site file"
            )
        else:
            yield _composed(facts, check, runs)


def models(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether every model file of the baseline exists; no run starts without them."""
    site = facts.site()
    if site is None or not site.model.baseline.models:
        return
    named = [str(site.base / name) for name in site.model.baseline.models]
    answers = each(check.id, named, os.path.exists, ASK_S)
    for path, there in answers:
        if there is None:
            yield check.failed(f"{path}: no answer within {ASK_S:g} s", "a dead mount? findmnt -T")
        elif not there and not _is_demo(facts):
            yield check.failed(
                f"{path} is not there", "no run starts without it; correct the site file"
            )
        elif not there:
            yield check.note(f"{path} is made by `omni-console demo`")
    if all(there for _, there in answers):
        yield check.ok(f"{named[0]} is there" if len(named) == 1 else f"all {len(named)} are there")


def health(facts: Facts, check: Check) -> Iterator[Finding]:
    """How the baseline is now, in the words that every face has for it; an active run may have
    taken it down on purpose."""
    from console.recovery.rollback import evidence, records
    from console.recovery.rollback.baseline_state import Word
    from console.recovery.rollback.look import Looker
    from console.runtime import proxy
    from console.runtime.discovery.adoption import NOT_OURS

    site = facts.site()
    if site is None:
        return
    spec = site.baseline_spec()
    switched = proxy.at(spec.url)
    if switched is not None:
        yield _cut_over(check, switched, site)
        return
    looker, plan, live, beside = Looker(), _plan(site), facts.live(), ""
    if live is not None and records.other_plan(live, plan) is not None:
        beside, live = live.run_id, None  # it has not taken this one down
    known = evidence.state(plan, looker.look(plan))
    why = "; ".join(known.reasons)
    summary = f"{spec.url} is {known.word}: {why}"
    if looker.stranger and live is None:
        yield check.failed(f"{spec.url}: {looker.stranger}", NOT_OURS)
    elif known.up:
        yield _serving(site, check)
    elif live is not None:
        yield check.note(
            f"{summary}; {live.run_id} is on", "omni-console attach shows where it stands"
        )
    elif known.word is Word.LOADING:
        yield check.warning(summary, "wait, then run omni-console doctor again")
    elif _is_demo(facts):
        yield check.note(f"{summary}; `omni-console demo` starts it")
    elif beside:
        hint = _remedy(why, site)
        if hint == RESTORE:
            named = f"rollback --site {shlex.quote(str(facts.site_file().path))}"
            hint = RESTORE.replace("rollback", named, 1) + ENDS_FIRST
        yield check.failed(f"{summary}; run {beside}, which is on, is of another site", hint)
    else:
        yield check.failed(summary, _remedy(why, site))


def at_work(facts: Facts) -> str:
    """What the kernel tells of the baseline's processes, where it does not answer a check in time:
    that they are stopped, or compute; "" where nothing is known."""
    from console.host import process
    from console.host.memory import pids_of_container
    from console.host.process import BASELINE_COOKIE, ProcessSpec
    from console.recovery.rollback import evidence
    from console.runtime.loading import Work

    site = facts.site()
    if site is None:
        return ""
    spec, plan = site.baseline_spec(), _plan(site)
    if isinstance(spec.runs, ProcessSpec):
        known = process.known(paths.records_dir(site.name), "baseline", spec.runs, BASELINE_COOKIE)
        pids = [known[0]] if known is not None else []
    else:
        base = plan.baseline
        recorded = evidence.container_of(site.name, base.url, base.container_name)
        pids = pids_of_container(recorded or base.container_id)
    stats = [stat for pid in pids if (stat := process.stat(pid)) is not None]
    if stats and all(stat.state in "Tt" for stat in stats):
        named = " ".join(str(stat.pid) for stat in stats[:3])
        return f"its process is stopped by a signal: kill -CONT {named} lets it go on"
    work = Work()
    work.look(pids, time.monotonic())
    time.sleep(WORK_S)
    work.look(pids, time.monotonic())
    return "its processes compute: wait, then try again" if work.seen_at is not None else ""


def _cut_over(check: Check, relay: Relay, site: Site) -> Finding:
    """A candidate has the production port; the baseline itself is stopped."""
    from console.recovery.rollback import records
    from console.recovery.rollback.baseline_state import Word
    from console.recovery.rollback.look import in_its_place

    base = site.baseline_spec()
    ready = site.service_specs().get(relay.service, base).ready
    word, trouble = in_its_place(_plan(site), relay, ready.path)
    by = relay.run or "a relay"
    if trouble:
        words = f"CUT OVER: {relay.service} is given {base.url} by {by}, {trouble}"
        wrong = word in (Word.DOWN, Word.GARBLED)
        return (check.failed if wrong else check.warning)(words, RESTORE)
    accepted = records.read_promotion(paths.runs_dir() / relay.run)
    words = f"promoted by {accepted.who}: {accepted.why}" if accepted else "not promoted"
    return check.warning(
        f"CUT OVER: {relay.service} answers at {base.url}, by {by}; {words}; no run starts "
        "meanwhile",
        RESTORE + ("" if accepted else "; omni-console promote accepts"),
    )


def _serving(site: Site, check: Check) -> Finding:
    """It serves; also whether a run could stop it: only a process that the console has started."""
    from console.host import process
    from console.host.ports import listener
    from console.host.process import BASELINE_COOKIE, ProcessSpec
    from console.runtime.discovery.adoption import advice

    spec = site.baseline_spec()
    runs = spec.runs
    if not isinstance(runs, ProcessSpec):
        return check.ok(f"serves at {spec.url}")
    if process.known(paths.records_dir(site.name), "baseline", runs, BASELINE_COOKIE) is None:
        who = listener(spec.url)
        what = f"process {who.pid}" if who else "a process"
        return check.warning(
            f"{what} serves at {spec.url}, which the console did not start as the site file has "
            "it now: no run will start",
            advice(runs, spec.url),
        )
    return check.ok(f"serves at {spec.url}")


def restore(facts: Facts, check: Check) -> Iterator[Finding]:
    from console.recovery.rollback.restores import expected_restore

    site = facts.site()
    if site is None:
        return
    seconds = expected_restore(paths.restore_file(site.name), "baseline")
    if seconds is None:
        yield check.note(
            "no restore was measured yet: a plan cannot say how long a rollback takes",
            "the first run that takes the baseline down measures it",
        )
    else:
        yield check.ok(f"back in {format_duration(seconds)}, as measured lately")


def proof(facts: Facts, check: Check) -> Iterator[Finding]:
    """What has proven the baseline last, and whether that still holds."""
    site = facts.site()
    if site is None:
        return
    from console.recovery.rollback.look import Looker, paused_words
    from console.recovery.rollback.observe import RENAMED

    plan = _plan(site)
    # one that is paused takes every connection and answers none: its engine knows at once
    if paused := paused_words(plan):
        yield check.warning(f"{paused}; nothing is asked of it until then", "")
        return
    known = Looker().state(plan)
    words = f"answered a completion {_ago(known.proven_at)} by {known.proven_by}"
    if known.figure is not None:
        beside = " beside others" if known.figure.beside else ""
        words += f", {known.figure.tok_s:.1f} tok/s{beside}"
        if known.figure.at != known.proven_at:
            words += f" {_ago(known.figure.at)} by {known.figure.by}"
    if known.doubt:
        last = f"it last {words}" if known.proven_at else "it never answered a completion"
        yield check.warning(f"{known.doubt}; {last}", _remedy(known.doubt, site))
    elif not known.proven_at:
        yield check.note("no completion on record yet; every run asks for one before it begins")
    elif not known.up:
        now = "nobody knows how it is now" if known.word == "unknown" else f"now it is {known.word}"
        yield check.note(f"it last {words}; {now}")
    elif known.word == "degraded":
        yield check.warning(
            f"{words}: DEGRADED, below its reference", "omni-console bench measures"
        )
    elif known.remark and known.remark.startswith(RENAMED):
        yield check.ok(words)  # the line about the service says so
    elif known.remark:
        yield check.warning(f"{words}; {known.remark}", "omni-console bench measures")
    else:
        yield check.ok(words)


def _remedy(why: str, site: Site) -> str:
    """What helps a baseline that is not well for this reason: no rollback where it would end the
    same way again."""
    from console.recovery.rollback import evidence
    from console.recovery.rollback.observe import CORRECT, ELSE, ELSEWHERE, OTHER
    from console.runtime.discovery.adoption import NOT_OURS
    from console.runtime.probe import remedy

    if ELSE.removesuffix(" there") in why:
        return NOT_OURS
    if ELSEWHERE in why:
        return CORRECT
    if OTHER in why:
        from console.runtime.discovery.adoption import advice

        spec = site.baseline_spec()
        return advice(spec.runs, spec.url)
    failed = evidence.after_failed_rollback(site.name, site.model.baseline.url)
    return remedy(why) or failed or RESTORE


def _ago(at: float) -> str:
    return f"{format_duration(max(0.0, time.time() - at))} ago"


def _plan(site: Site) -> SealedPlan:
    """What is known of the baseline without a run, for whoever looks at it."""
    from console.host.process import ProcessSpec
    from console.host.units import UnitSpec
    from console.recovery.rollback.sealed_plan import Baseline, SealedPlan

    model, runs = site.model.baseline, site.baseline_spec().runs
    process = runs if isinstance(runs, ProcessSpec) else None
    unit = runs if isinstance(runs, UnitSpec) else None
    kind = "process" if process else "unit" if unit else "container"
    ready = site.baseline_spec().ready.path
    base = Baseline(
        "baseline", kind, model.url, ready_path=ready, process=process, unit=unit,
        records_dir=str(paths.records_dir(site.name)),
    )  # fmt: skip
    if model.reference is not None:
        known = model.reference
        base = replace(base, reference_tok_s=known.tok_s, tolerance=known.tolerance)
    plan = SealedPlan("", "", base, site.name)
    return _of_container(plan, runs).name_first if kind == "container" else plan


def _of_container(plan: SealedPlan, runs: object) -> SealedPlan:
    """The plan with the container and the engine that the newest run on this site has sealed, so
    that a container which was made anew is known for another one; before the first run, with the
    name in the site file."""
    from console.recovery.rollback import sealed_plan
    from console.runtime.spec import ComposeSpec, ExistingContainer

    base = plan.baseline
    for path in sealed_plan.copies():
        with contextlib.suppress(ConsoleError):
            run = sealed_plan.read(path)
            known = run.baseline
            if (run.site_name, known.url, known.kind) == (plan.site_name, base.url, base.kind):
                named = replace(
                    base, container_name=known.container_name, container_id=known.container_id,
                    compose_argv=known.compose_argv, compose_env=known.compose_env,
                )  # fmt: skip
                return replace(plan, baseline=named, engine=run.engine)
    if isinstance(runs, ComposeSpec):  # its own name may be somebody else's container
        from console.runtime.docker.compose import up_argv

        argv = up_argv(runs.files, runs.service, runs.project, runs.profiles)
        return replace(plan, baseline=replace(base, compose_argv=tuple(argv)))
    name = runs.name if isinstance(runs, ExistingContainer) else ""
    return replace(plan, baseline=replace(base, container_name=name))


def reference(facts: Facts, check: Check) -> Iterator[Finding]:
    """The baseline's reference figures; without them nobody notices a slow restore."""
    site = facts.site()
    if site is None or _is_demo(facts):
        return
    known = site.model.baseline.reference
    if known is None:
        yield check.note(
            "none: a baseline that comes back slower would not be noticed",
            "reference: {tok_s: 10.9}   under `baseline:`, with the figure of "
            f"omni-console bench {site.model.baseline.url}",
        )
    else:
        yield check.ok(f"{known.tok_s:g} tok/s, {known.tolerance * 100:g} % tolerance")


def _program(check: Check, runs: ProcessSpec) -> Finding:
    program = runs.argv[0]
    if not os.path.isdir(runs.cwd):
        return check.failed(f"its directory {runs.cwd} is not there", "correct the site file")
    if "/" in program:
        path: str | None = os.path.join(runs.cwd, program)
        usable = os.path.isfile(str(path)) and os.access(str(path), os.X_OK)
    else:
        path = shutil.which(program, path=os.environ.get("PATH"))
        usable = path is not None
    if not usable:
        words = f"the program {program} " + ("cannot be run" if path else "is not in PATH")
        return check.failed(words, "argv[0] of the baseline's process; correct the site file")
    return check.ok(f"the program {path}")


def _unit(check: Check, unit: UnitSpec) -> Finding:
    from console.host import units

    state = units.look(unit)
    if not state.exists:
        return check.failed(
            f"the {unit.words} does not exist",
            "systemctl list-units --type=service lists them; correct the site file",
        )
    words = f"the {unit.words} is there, {one_line(state.active, 40)}"
    if unit.user or os.getuid() == 0:
        return check.ok(words)
    return check.warning(
        f"{words}; only root may stop and start it, unless polkit allows it to this user",
        "a polkit rule (docs/reference/site.md has one), or make it a unit of this user's",
    )


def _container(facts: Facts, check: Check, name: str, site: Site) -> Finding:
    from console.recovery.rollback.observe import inspected, is_up, renamed

    url, plan = site.model.baseline.url, _plan(site)
    engine = facts.engine()
    facts.version()  # an engine that is silent is not asked twice
    try:
        container = engine.inspect(name)
        serves = {} if is_up(container) else inspected(plan, engine)
        if is_up(serves) and (other := renamed(plan.baseline, serves)):
            what, _, remedy = other.partition(": ")
            hint = f"another container has that name, and does not run: {remedy}"
            return check.warning(f"{what}; no run will start", hint)
    except NoSuchContainer:
        with contextlib.suppress(NoSuchContainer):
            if other := renamed(plan.baseline, inspected(plan, engine)):
                what, _, remedy = other.partition(": ")
                return check.warning(f"{what}; no run will start", remedy)
        return check.failed(
            f"the container {name} does not exist",
            "docker ps -a lists the containers; correct the site file",
        )
    state = container.get("State")
    words = str(state.get("Status", "unknown")) if isinstance(state, dict) else "unknown"
    image = str(container.get("Image", ""))
    if image and not engine.image_exists(image):
        return check.failed(
            f"the image of the container {name} is gone ({image[:19]})",
            "without it the container cannot be started again; pull or build it first",
        )
    why, hint = unfit_as_baseline(container, url)
    if why:
        return check.failed(f"the container {name} cannot be the baseline: {why}", hint)
    return check.ok(f"the container {name} is there, {words}")


def _composed(facts: Facts, check: Check, runs: ComposeSpec) -> Finding:
    from console.runtime.engine_api import CONFIG_FILES, is_one_off, made_of_others

    facts.version()
    wanted = {_SERVICE: runs.service, **({_PROJECT: runs.project} if runs.project else {})}
    files = {str(file.resolve()) for file in runs.files}
    one_offs: list[str] = []
    for container in facts.engine().list_containers(wanted, running_only=False):
        if is_one_off(container.labels):
            one_offs.append(container.name)
            continue
        made_from = container.labels.get(CONFIG_FILES, "").split(",")
        if runs.project or not files.isdisjoint(made_from):
            if others := made_of_others(container.labels, runs.files):
                return check.failed(
                    f"the container {container.name} of {runs.service} was made of other compose "
                    f"files than the site file names: {others}",
                    f"write `container: {container.name}` instead of `compose:`; no run starts",
                )
            return check.ok(
                f"the container {container.name} of {runs.service} is there, {container.state}"
            )
    other = f"; {', '.join(one_offs)} is of `docker compose run`" if one_offs else ""
    return check.failed(
        f"the compose service {runs.service} has no container{other}",
        f"docker compose -f {runs.files[0]} up -d {runs.service}",
    )


def _is_demo(facts: Facts) -> bool:
    return facts.site_file().demo


def watch(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether somebody watches the baseline between runs, and what was seen."""
    from console.journal import watch_record

    site = facts.site()
    if site is None or _is_demo(facts):
        return
    state = watch_record.read(site.name)
    if state is None or not state.alive:
        words = "nobody looks at the baseline between runs" if state is None else "does not run"
        level = check.note if state is None else check.warning
        yield level(words, "omni-console watch install; omni-console watch run tries it out")
        return
    if stands := state.stands_still(time.time()):
        yield check.failed(f"pid {state.pid} stands still: {stands}", "omni-console watch status")
        return
    ago = format_duration(max(0.0, time.time() - state.at))
    words = f"{state.word}, looked at {ago} ago"
    if state.level is not None and state.word in watch_record.UP:
        words += f", {state.level:.2f} tok/s"
    if state.word in (watch_record.UNJUDGED, watch_record.SUSPECT) and state.detail:
        yield check.warning(f"{words}: {state.detail}", "omni-console watch status")
    elif state.word in watch_record.NOT_SERVING:
        yield check.failed(f"{words}: {state.detail}", _remedy(state.detail, site))
    elif state.slow_since:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.slow_since))
        what = f"{words}: slower since {since}: {'; '.join(state.why)}"
        yield check.warning(what, "omni-console watch status")
    elif state.trouble:
        yield check.warning(f"{words}; {state.trouble}")
    else:
        yield check.ok(words)


CHECKS = (
    Check("baseline.site", "site file", site_file),
    Check("baseline.demo", "demo engine", demo, Level.WARNING),
    Check("baseline.service", "service", service),
    Check("baseline.models", "models", models),
    Check("baseline.health", "health", health),
    Check("baseline.restore", "restore", restore, Level.WARNING),
    Check("baseline.proof", "last proof", proof, Level.WARNING),
    Check("baseline.reference", "reference", reference, Level.WARNING),
    Check("baseline.watch", "watch", watch, Level.WARNING),
)
