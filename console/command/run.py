"""`run`, `attach`, `resume`, `abort`, `tell`: a run from any terminal."""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import Namespace
from typing import Any

from console.command.common import inputs_of, playbook_of, site_of
from console.command.follow import Follow, at_terminal
from console.errors import ConsoleError, ControlError, Exit, UsageError
from console.journal.store import Reader
from console.playbook.model import Playbook
from console.run import control
from console.run.directory import RunDir, RunMeta, create, find_run
from console.run.launch import NotStarted, launch
from console.run.liveness import runner_alive
from console.run.process import owner
from console.run.state import ENDS
from console.run.view import fold
from console.site.model import Site
from console.text import clean


def run(args: Namespace) -> int:
    """Check everything, start a detached runner, follow it. Nothing starts on bad input."""
    site = site_of(args.site)
    playbook = playbook_of(args.playbook, args.input, site)
    made = start(site, playbook, inputs_of(args.input), args)
    if args.detach:
        _say(args, f"run {made.id} goes on; omni-console attach {made.id[-4:]}")
        if args.json:
            print(json.dumps({"run": made.id, "path": str(made.path)}))
        return int(Exit.OK)
    return follow(made, args)


def start(site: Site, playbook: Playbook, inputs: dict[str, str], args: Namespace) -> RunDir:
    """A new run whose runner has begun. Raises NotStarted, and leaves no trace then."""
    meta = RunMeta(
        run_id="", playbook=str(playbook.path.resolve()), base=str(playbook.base),
        digest=playbook.digest, site=str(site.path.resolve()), site_base=str(site.base),
        inputs=inputs, yes=args.yes, step=args.step,
        headless=not args.detach and not args.step and not at_terminal(),
        owner=owner(), created=time.time(),
    )  # fmt: skip
    made = create(playbook.name, meta, playbook.text, site.text)
    _say(args, f"run {made.id}: {clean(playbook.model.title)} (site {site.name})")
    _say(args, "checking that the baseline serves …")
    try:
        how = launch(made)
    except NotStarted:
        shutil.rmtree(made.path, ignore_errors=True)
        raise
    except KeyboardInterrupt:
        _say(args, "\nnot started")
        raise
    if how.warning:
        _say(args, f"WARNING: {how.warning}")
    return made


def attach(args: Namespace) -> int:
    return follow(find_run(args.run), args)


def resume(args: Namespace) -> int:
    """Go on with a run whose runner died."""
    found = find_run(args.run)
    view = _view(found)
    if runner_alive(found):
        raise UsageError(f"run {found.id} is alive", hint="omni-console attach joins it")
    if view.finished:
        raise UsageError(f"run {found.id} has ended: {view.state}", hint="start a new run")
    options = ["--resume"]
    if args.from_step:
        if view.step(args.from_step) is None:
            raise UsageError(f"run {found.id} has no step '{clean(args.from_step, 40)}'")
        options.append(f"--from={args.from_step}")
    _say(args, f"resuming run {found.id} …")
    launch(found, *options)
    if args.detach:
        if args.json:
            print(json.dumps({"run": found.id, "path": str(found.path)}))
        return int(Exit.OK)
    return follow(found, args)


def abort(args: Namespace) -> int:
    """Ask the runner to stop, then wait for the end."""
    found = _live_run(args.run)
    _send(found, {"verb": "abort", "why": args.reason})
    return follow(found, args)


def tell(args: Namespace) -> int:
    """One verb, acknowledged; bound to what `status` says now unless --step is given."""
    found = _live_run(args.run)
    if args.verb == "status":
        print(json.dumps(control.send(found.socket, {"verb": "status"}), indent=1))
        return int(Exit.OK)
    now = control.send(found.socket, {"verb": "status"})
    message: dict[str, Any] = {
        "verb": args.verb, "why": args.reason, "step": args.step or now["step"],
        "attempt": now["attempt"], "evidence": now["evidence"],
        "args": {"inputs": inputs_of(args.input), "confirm": args.confirm},
    }  # fmt: skip
    answer = _send(found, message)
    if args.json:
        print(json.dumps(answer))
    else:
        print(f"{args.verb}: accepted at step {clean(str(answer['step']))}")
    return int(Exit.OK)


def _live_run(name: str | None) -> RunDir:
    """A run that can be told something. Raises ControlError when its runner is gone."""
    found = find_run(name)
    if runner_alive(found):
        return found
    state = _view(found).state
    if state in ENDS:
        raise ControlError(f"run {found.id} has ended", str(state), "omni-console show says how")
    raise ControlError(
        f"run {found.id} is interrupted: its runner is gone", f"it was {state}",
        "omni-console resume goes on; omni-console rollback brings the baseline back",
    )  # fmt: skip


def _send(run: RunDir, message: dict[str, Any]) -> dict[str, Any]:
    answer = control.send(run.socket, message)
    if not answer.get("ok"):
        raise ControlError(f"{message['verb']} refused", clean(str(answer.get("error", ""))))
    return answer


def follow(run: RunDir, args: Namespace) -> int:
    """Print a run's progress until it ends; Ctrl-C detaches."""
    out = sys.stderr if args.json else sys.stdout
    try:
        code, summary = Follow(run, out, interactive=not args.json).until_end()
    except KeyboardInterrupt:
        _say(args, f"\ndetached: run {run.id} goes on; omni-console attach {run.id[-4:]}")
        return int(Exit.INTERRUPTED)
    if args.json:
        print(json.dumps(summary))
    return int(code)


def _view(run: RunDir) -> Any:
    reader = Reader(run.journal)
    try:
        return fold(reader.since(0))
    except ConsoleError:
        return fold([])
    finally:
        reader.close()


def _say(args: Namespace, text: str) -> None:
    print(text, file=sys.stderr if args.json else sys.stdout)
