"""`demo` and `--rehearse`: a whole trial with real engines, or a playbook with stand-ins.

A demo ends in a real gate and a real report. `run --rehearse` and `plan --rehearse` work on any
machine with Docker.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from console.common import paths
from console.common.errors import EngineError, Exit, RollbackFailed, UsageError
from console.common.text import clean
from console.common.units import format_bytes
from console.config.locate import (
    demo_site,
    inputs_of,
    own_command,
    playbook_of,
    playbook_path,
)
from console.config.locate import (
    site as site_of,
)
from console.config.site.site import Site, load_site
from console.frontends.cli import run as run_command
from console.frontends.cli.console import can_draw, open_console
from console.host.licence import Licence, Reason, stop_group
from console.host.ports import answering, port_of
from console.journal.history import usual
from console.journal.lock import HostLock
from console.journal.run_dir import all_runs
from console.recovery.rollback import evidence, live, standby
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.sealed_plan import ROLLBACK, SITES
from console.recovery.rollback.shell import sealed_copy
from console.rehearsal import image, speed
from console.rehearsal import prepare as making
from console.rehearsal import workspace as place
from console.rehearsal.workspace import join
from console.runner.prepare.baseline import restore_time
from console.runner.prepare.plan import Plan, make_plan
from console.runner.prepare.seal import site_plan
from console.runtime.docker.client import ask
from console.runtime.process_driver import ProcessDriver

if TYPE_CHECKING:
    import docker

    from console.rehearsal.prepare import Rehearsal


MAX_MOVES = 5
"""How often a demo goes to other ports because another one has taken its own."""


def demo(args: Namespace) -> int:
    """Start the demo's baseline if need be, run the demo playbook, print the result."""
    if args.stop:
        return _stop(args)
    HostLock().release()  # raises HostBusy before anything is started
    out = sys.stderr if args.json else sys.stdout
    site = load_site(demo_site())
    if args.candidate not in site.model.services:
        raise UsageError(
            f"the demo has no candidate '{args.candidate}'",
            f"{site.path} was written by an earlier version, or changed since",
            f"{own_command()} demo --stop removes it; the next demo writes it again",
        )
    _ensure_models(out)
    site = bring_up(site, out)
    screens = can_draw() and not args.json and not args.plain
    args.yes, args.step, args.detach = not screens, screens, False
    playbook = playbook_of("demo", [f"candidate={args.candidate}"], site)
    made = run_command.start(site, playbook, {"candidate": args.candidate}, args)
    if screens:
        args.site, args.run, args.readonly = str(site.path), made.id, False
        code = open_console(args)
    else:
        code = run_command.follow(made, args)
    print(f"the baseline goes on serving; {own_command()} demo --stop ends it", file=out)
    return code


def bring_up(site: Site, out: TextIO) -> Site:
    """Bring up the baseline by the rollback procedure, at other ports where somebody else has taken
    its own. Returns its site. Raises RollbackFailed."""
    if _is_taken(site):
        site = _moved(site)
    print(f"baseline: starting at {site.model.baseline.url} …", file=out)
    result = Procedure(site_plan(site)).run()
    for _ in range(MAX_MOVES):
        if result.serving or not _is_taken(site):
            break
        site = _moved(site)  # another demo was faster
        print(f"baseline: that port was taken; starting at {site.model.baseline.url} …", file=out)
        result = Procedure(site_plan(site)).run()
    if not result.serving:
        log = paths.baseline_log(site.name)
        raise RollbackFailed("the demo's baseline does not serve", result.detail, f"see {log}")
    return site


def _is_taken(site: Site) -> bool:
    """Whether a process that is not the demo's listens at the port of its baseline."""
    spec = site.baseline_spec()
    own = ProcessDriver(spec, paths.records_dir(site.name)).find()
    return own is None and bool(answering(spec.url))


def _moved(site: Site) -> Site:
    """The demo's site at other ports; its baseline does not run."""
    _forget(site)
    site.path.unlink()
    return load_site(demo_site())


def _forget(site: Site) -> None:
    """Remove what is known of the demo's baseline at its address."""
    for path in (
        paths.restore_file(site.name),
        evidence.directory(site.name, site.model.baseline.url),
    ):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _stop(args: Namespace) -> int:
    """End every process of the demo and remove what it made: models, records, its runs."""
    out = sys.stderr if args.json else sys.stdout
    if not paths.demo_dir().exists():
        print("no demo is running here; omni-console demo starts one", file=out)
        return int(Exit.OK)
    site = load_site(demo_site())
    runs = [run for run in all_runs() if run.meta().site == str(site.path.resolve())]
    for run in runs:
        for entry in live.read(run.live):
            if entry.kind == "runner":
                why = Licence(Reason.RUNNER, run.id)
                stop_group(why, entry.pid, entry.start, grace_s=0.0, cookie=run.id)
        standby.trigger(run.rollback, standby.QUIT)
    specs = [site.baseline_spec(), *site.service_specs().values()]
    for spec in specs:
        driver = ProcessDriver(spec, paths.records_dir(site.name))
        handle = driver.find()
        if handle is not None:
            own = Licence(Reason.BASELINE, site.name)
            why = own if spec.name == "baseline" else Licence(Reason.EARLIER, site.name)
            driver.stop(why, handle, spec.grace_s)
            print(f"stopped {spec.name} (pid {handle.pid})", file=out)
    made = [paths.demo_dir(), paths.records_dir(site.name), *(run.path for run in runs)]
    made += [
        site_plan(site).rollback_dir,
        paths.baseline_log(site.name),
        paths.restore_file(site.name),
        evidence.directory(site.name, specs[0].url),
    ]
    shared = (f"{ROLLBACK}/{SITES}", ROLLBACK)
    for path in made:
        _remove(path, out)
    if not all_runs():
        _remove(sealed_copy.copies(), out)
    for name in ("services", "logs", "restore", "evidence", "runs", *shared, ""):
        with contextlib.suppress(OSError):  # it is not empty
            (paths.state_dir() / name).rmdir()
    return int(Exit.OK)


def _remove(path: Path, out: TextIO) -> None:
    if not path.exists():
        return
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.lstat().st_size for file in files)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"removed {path} ({format_bytes(size)})", file=out)


def _ensure_models(out: TextIO) -> None:
    """Generate missing models of the demo. Raises UsageError without the extra."""
    try:
        import xllamacpp  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "the demo engine is not installed", str(error), "pip install 'omni-console[demo]'"
        ) from error
    from console.rehearsal.demo import model

    def progress(name: str, done: int, total: int) -> None:
        if done == total:
            print(f"model {name}: {format_bytes(total)}", file=out)

    model.ensure_models(paths.demo_dir() / "models", progress)


def rehearse(args: Namespace) -> int:
    """Bring up a stand-in baseline, run the playbook against it, stop it. Exit code of the run."""
    _check_options(args)
    out = sys.stderr if args.json else sys.stdout

    def say(text: str) -> None:
        print(clean(text, 300), file=out, flush=True)

    site = site_of(args.site)
    client = making.engine(site.model.engine.host)
    place.prepare()
    path, given = playbook_path(args.playbook), inputs_of(args.input)
    _stop_leftovers(client, say)
    mapping = making.draft(path, given, site, args.fault)
    place.enter(mapping.for_image("this host"))
    HostLock().release()  # raises HostBusy before anything is started
    say("REHEARSAL: stand-ins serve, GPUs are scripted; nothing of the real site is touched")
    image.ensure_base(client, place.directory() / "cache", say)
    port = mapping.ports[str(port_of(site.model.baseline.url))]
    per = speed.bring_up(client, mapping, port, making.reference(site), say)
    made = making.fill(path, given, site, making.measured(mapping, per), planning=False)
    making.make_images(client, made)
    return _go(args, client, made, say)


def planned(args: Namespace) -> Plan:
    """Print a rehearsal's plan; starts nothing, measures nothing."""
    _check_options(args)
    site = site_of(args.site)
    making.engine(site.model.engine.host)
    path, given = playbook_path(args.playbook), inputs_of(args.input)
    try:
        with place.only_planned():
            mapping = making.draft(path, given, site, args.fault)
            made = making.fill(path, given, site, mapping, planning=True)
    except EngineError as error:
        raise UsageError("a rehearsal needs Docker with Compose", str(error), error.hint) from error
    past = usual(f"rehearsal-{made.playbook.name}", made.site.name)
    return make_plan(
        made.playbook, made.site, restore_time(made.site.name), made.rewriter.record(), past
    )


def _check_options(args: Namespace) -> None:
    """Check the options of a rehearsal. Raises UsageError."""
    making.known(args.fault)
    if args.fault and not args.rehearse:
        raise UsageError("--fault belongs to --rehearse", hint="only a rehearsal has faults")


def _go(args: Namespace, client: docker.DockerClient, made: Rehearsal, say: speed.Say) -> int:
    result = Procedure(site_plan(made.site)).run()
    if not result.serving:
        raise RollbackFailed("the rehearsal's baseline does not serve", result.detail)
    inputs = {**made.mapping.inputs, **inputs_of(args.input)}
    try:
        run = run_command.start(made.site, made.playbook, inputs, args, made.mapping.to_json())
    except BaseException:
        _end(args, client, say)
        raise
    say(f"{own_command()} rollback --rehearse brings its baseline back, from any shell")
    if args.detach:
        run_command.print_detached(args, run)
        return int(Exit.OK)
    code = run_command.follow(run, args)
    if code != int(Exit.INTERRUPTED):
        _end(args, client, say)
    return code


def _stop_leftovers(client: docker.DockerClient, say: speed.Say) -> None:
    """Stop what a rehearsal left running, as with `then: stay`, since it holds the scripted cards
    that the next baseline needs. Raises HostBusy if one is under way."""
    up = {"label": f"{place.role_label()}=candidate", "status": "running"}
    if not ask("Looking for the last rehearsal", lambda: client.api.containers(filters=up)):
        return
    own = join()
    HostLock().release()
    say("what the rehearsal left running is stopped")
    Procedure(site_plan(load_site(Path(own)))).run()


def _end(args: Namespace, client: docker.DockerClient, say: speed.Say) -> None:
    if args.keep:
        say(f"the stand-in baseline goes on serving; docker stop {speed.container()} ends it")
        return
    _stop_leftovers(client, say)
    speed.stop(client)
    say("the stand-in baseline is stopped")
