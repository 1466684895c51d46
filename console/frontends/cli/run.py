"""`run`, `attach`, `resume`, `abort`, `tell`: a run from any terminal."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from console.common.errors import ConsoleError, ControlError, Exit, UsageError
from console.common.text import clean
from console.common.units import parse_duration
from console.frontends.cli.follow import Follow, at_terminal
from console.frontends.cli.shared import inputs_of
from console.frontends.tui.watch.actions import BINDS, bound
from console.journal.liveness import runner_alive
from console.journal.run_dir import RunDir, find_run
from console.journal.run_read import read_view
from console.journal.state import ENDS, RunState
from console.runner import control
from console.runner.resume import check_resume
from console.runner.resume import resume as go_on

if TYPE_CHECKING:  # a verb has to be quick: what reads files is imported where it is used
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site


def run(args: Namespace) -> int:
    """Check everything, start a detached runner, follow it. Nothing starts on bad input."""
    from console.frontends.cli.shared import playbook_of, site_of

    if args.rehearse or args.fault:
        from console.frontends.cli.rehearse import rehearse

        return rehearse(args)
    site = site_of(args.site)
    playbook = playbook_of(args.playbook, args.input, site)
    made = start(site, playbook, inputs_of(args.input), args)
    if args.detach:
        told(args, made)
        return int(Exit.OK)
    return follow(made, args)


def told(args: Namespace, made: RunDir) -> None:
    """A detached run's name, for whoever started it."""
    _say(args, f"run {made.id} goes on; omni-console attach {made.id[-4:]}")
    if args.json:
        print(json.dumps({"run": made.id, "path": str(made.path)}))


def start(
    site: Site, playbook: Playbook, inputs: dict[str, str], args: Namespace, rehearsal: str = ""
) -> RunDir:
    """A new run whose runner has begun. Raises NotStarted, and leaves no trace then."""
    from console.runner.prepare.load import overrides_of
    from console.runner.start import begin

    try:
        return begin(
            site, playbook, inputs, step=args.step, say=lambda text: _say(args, text), yes=args.yes,
            headless=not args.detach and not args.step and not at_terminal(),
            lease_s=lease_of(args), overrides=overrides_of(getattr(args, "override", [])),
            rehearsal=rehearsal,
        )  # fmt: skip
    except KeyboardInterrupt:
        _say(args, "\nnot started")
        raise


def lease_of(args: Namespace) -> float | None:
    """Seconds of --lease, None where it was not given. Raises UsageError."""
    given = getattr(args, "lease", None)
    if given is None or given.strip() == "0":
        return None if given is None else 0.0
    try:
        return parse_duration(given)
    except ValueError as error:
        raise UsageError(f"--lease {clean(given, 40)}", f"expected {error}") from None


def attach(args: Namespace) -> int:
    return follow(find_run(args.run), args)


def resume(args: Namespace) -> int:
    """Go on with a run whose runner died."""
    found = find_run(args.run)
    check_resume(found, args.from_step or "")
    _say(args, f"resuming run {found.id} …")
    how = go_on(found, args.from_step or "")
    if how.warning:
        _say(args, f"WARNING: {how.warning}")
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
    """One verb, acknowledged; bound to where the run stands when the command starts, or to what
    --step, --attempt and --evidence say the operator saw."""
    found = _live_run(args.run)
    if args.verb == "status":
        print(json.dumps(control.send(found.socket, {"verb": "status"}), indent=1))
        return int(Exit.OK)
    seen = {name: getattr(args, name) for name in BINDS if getattr(args, name) is not None}
    now = control.send(found.socket, {"verb": "status"})
    message: dict[str, Any] = {
        "verb": args.verb, "why": args.reason,
        "args": {"inputs": inputs_of(args.input), "confirm": args.confirm},
        **bound(args.verb, RunState(now["state"]), now), **seen,
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
    state = _state(found)
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


def _state(run: RunDir) -> RunState:
    try:
        return read_view(run).state
    except ConsoleError:
        return RunState.PENDING


def _say(args: Namespace, text: str) -> None:
    print(text, file=sys.stderr if args.json else sys.stdout)
