"""`run --rehearse` and `plan --rehearse`: a playbook with stand-ins, on any machine with Docker."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import EngineError, Exit, RollbackFailed, UsageError
from console.common.text import clean
from console.config.site.load import load_site
from console.frontends.cli import run as run_command
from console.frontends.cli.shared import inputs_of, own_command, playbook_path, site_of
from console.journal.lock import HostLock
from console.recovery.rollback.procedure import Ladder
from console.rehearsal import baseline, image
from console.rehearsal import prepare as making
from console.rehearsal import workspace as place
from console.rehearsal.fault import known
from console.rehearsal.join import join
from console.rehearsal.site import container, port_of, reference
from console.runner.prepare.baseline import restore_time
from console.runner.prepare.plan import Plan, make_plan
from console.runner.prepare.rehearsed import record
from console.runner.prepare.seal import site_plan
from console.runtime.docker.client import ask

if TYPE_CHECKING:
    import docker

    from console.rehearsal.prepare import Rehearsal


def rehearse(args: Namespace) -> int:
    """Bring up a stand-in baseline, run the playbook against it, stop it. Exit code of the run."""
    _asked(args)
    out = sys.stderr if args.json else sys.stdout

    def say(text: str) -> None:
        print(clean(text, 300), file=out, flush=True)

    site = site_of(args.site)
    client = making.engine(site.model.engine.host)
    place.prepare()
    path, given = playbook_path(args.playbook), inputs_of(args.input)
    _go_back(client, say)
    _, mapping = making.draft(path, given, site, args.fault)
    place.enter(mapping.for_image("this host"))
    HostLock().release()  # raises HostBusy before anything is started
    say("REHEARSAL: stand-ins serve, GPUs are scripted; nothing of the real site is touched")
    image.ensure_base(client, place.directory() / "cache", say)
    port = mapping.ports[str(port_of(site.model.baseline.url))]
    tok_s = reference(site)
    per = baseline.bring_up(client, mapping, port, tok_s, say)
    made = making.fill(path, given, site, making.measured(mapping, per), planning=False)
    making.make_images(client, made)
    return _go(args, client, made, say)


def planned(args: Namespace) -> Plan:
    """The plan of a rehearsal; starts nothing, measures nothing."""
    _asked(args)
    site = site_of(args.site)
    making.engine(site.model.engine.host)
    path, given = playbook_path(args.playbook), inputs_of(args.input)
    try:
        with place.only_planned():
            _, mapping = making.draft(path, given, site, args.fault)
            made = making.fill(path, given, site, mapping, planning=True)
    except EngineError as error:
        raise UsageError("a rehearsal needs Docker with Compose", str(error), error.hint) from error
    return make_plan(made.playbook, made.site, restore_time(made.site.name), record(made.rewriter))


def _asked(args: Namespace) -> None:
    """Raises UsageError."""
    known(args.fault)
    if args.fault and not args.rehearse:
        raise UsageError("--fault belongs to --rehearse", hint="nothing goes wrong on purpose else")


def _go(args: Namespace, client: docker.DockerClient, made: Rehearsal, say: making.Say) -> int:
    result = Ladder(site_plan(made.site)).run()
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
        run_command.told(args, run)
        return int(Exit.OK)
    code = run_command.follow(run, args)
    if code != int(Exit.INTERRUPTED):
        _end(args, client, say)
    return code


def _go_back(client: docker.DockerClient, say: making.Say) -> None:
    """Stop what a rehearsal left up, as `then: stay` does: on the scripted cards it is in the way
    of the next one's baseline. Raises HostBusy where one is under way."""
    up = {"label": f"{place.role_label()}=candidate", "status": "running"}
    if not ask("Looking for the last rehearsal", lambda: client.api.containers(filters=up)):
        return
    own = join()
    HostLock().release()
    say("what the rehearsal left up is stopped")
    Ladder(site_plan(load_site(Path(own)))).run()


def _end(args: Namespace, client: docker.DockerClient, say: making.Say) -> None:
    if args.keep:
        say(f"the stand-in baseline goes on serving; docker stop {container()} ends it")
        return
    _go_back(client, say)
    baseline.stop(client)
    say("the stand-in baseline is stopped")
