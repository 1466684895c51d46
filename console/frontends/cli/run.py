"""`run`, `attach`, `resume`, `abort`, `tell`, `promote`, `playbooks`: a run from any terminal; and
`runner`.

`runner` (internal) is the detached process of a run.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import redact
from console.common.errors import ConsoleError, ControlError, Exit, UsageError
from console.common.text import clean
from console.common.units import parse_duration
from console.config.locate import inputs_of, leaving_no_demo, playbook_of, playbook_places
from console.config.locate import site as site_of
from console.frontends.cli.follow import Follow, at_terminal
from console.frontends.tui.watch.actions import BINDS, bound
from console.host.privileges import operator
from console.journal.lock import runner_alive, runs_of_others
from console.journal.run_dir import RunDir, find_run
from console.journal.run_files import read_view
from console.journal.state import ENDS, RunState
from console.runner import control

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site
    from console.recovery.rollback.records import Promotion
    from console.runner.promote import CutOver


def run(args: Namespace) -> int:
    """Check everything, start a detached runner, follow it. Nothing starts on bad input."""
    if getattr(args, "at", ""):
        from console.frontends.cli.site.schedule import at

        return at(args, lease_of(args))
    if getattr(args, "slurm", []):
        from console.frontends.cli.site.slurm import begun

        waited = begun(args, lease_of(args))
        return follow(waited, args) if waited is not None else int(Exit.OK)
    with leaving_no_demo():
        site = site_of(args.site)
        playbook = playbook_of(args.playbook, args.input, site)
        made = start(
            site, playbook, inputs_of(args.input), args, asked_at=getattr(args, "given_at", None)
        )
    if args.detach:
        print_detached(args, made)
        return int(Exit.OK)
    return follow(made, args)


def tune(args: Namespace) -> int:
    """Find the fastest flags of the baseline, or of a playbook's service: a run of its own, whose
    plan is shown and agreed to before the baseline goes down."""
    from console.frontends.cli.search import consent
    from console.frontends.cli.search.tune import tuning_playbook

    site = site_of(args.site)
    playbook = tuning_playbook(args, site)
    takes_down = consent.planned(site, playbook, lease_of(args), lambda text: _say(args, text))
    if takes_down and not consent.agreed(args):
        _say(args, "nothing was started")
        return int(Exit.FAILED)
    made = start(site, playbook, inputs_of(args.input), args)
    if args.detach:
        print_detached(args, made)
        return int(Exit.OK)
    return follow(made, args)


def print_detached(args: Namespace, made: RunDir) -> None:
    """Print the name of a detached run."""
    _say(args, f"run {made.id} goes on; omni-console attach {made.id[-4:]}")
    if args.json:
        print(redact.dumped({"run": made.id, "path": str(made.path)}))


def start(
    site: Site, playbook: Playbook, inputs: dict[str, str], args: Namespace, rehearsal: str = "",
    asked_at: float | None = None,
) -> RunDir:  # fmt: skip
    """Start a new run, asked for at this time or now; return once its runner has begun. Raises
    NotStarted, leaving no trace."""
    from console.runner.launch import begin
    from console.runner.prepare.admission import overrides_of

    try:
        return begin(
            site, playbook, inputs, step=args.step, say=lambda text: _say(args, text), yes=args.yes,
            headless=not args.detach and not args.step and not at_terminal(),
            lease_s=lease_of(args), overrides=overrides_of(getattr(args, "override", [])),
            rehearsal=rehearsal, asked_at=asked_at,
        )  # fmt: skip
    except KeyboardInterrupt:
        _say(args, "\nnot started")
        raise


def lease_of(args: Namespace) -> float | None:
    """Seconds of --lease, None if it was not given. Raises UsageError."""
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
    """Resume a run whose runner died."""
    from console.runner.launch import check_resume
    from console.runner.launch import resume as go_on

    run_dir = find_run(args.run)
    check_resume(run_dir, args.from_step or "")
    _say(args, f"resuming run {run_dir.id} …")
    how = go_on(run_dir, args.from_step or "")
    if how.warning:
        _say(args, f"WARNING: {how.warning}")
    if args.detach:
        if args.json:
            print(redact.dumped({"run": run_dir.id, "path": str(run_dir.path)}))
        return int(Exit.OK)
    return follow(run_dir, args)


def abort(args: Namespace) -> int:
    """Ask the runner to stop, then wait for the end."""
    run_dir = _live_run(args.run)
    _send(run_dir, {"verb": "abort", "why": args.reason})
    return follow(run_dir, args)


def tell(args: Namespace) -> int:
    """Send one verb and await its acknowledgement; it is bound to where the run stands when the
    command starts, or to what --step, --attempt and --evidence say the operator saw."""
    run_dir = _live_run(args.run)
    if args.verb == "status":
        print(redact.dumped(control.send(run_dir.socket, {"verb": "status"}), indent=1))
        return int(Exit.OK)
    seen = {name: getattr(args, name) for name in BINDS if getattr(args, name) is not None}
    now = control.send(run_dir.socket, {"verb": "status"})
    message: dict[str, Any] = {
        "verb": args.verb, "why": args.reason,
        "args": {"inputs": inputs_of(args.input), "confirm": args.confirm},
        **bound(args.verb, RunState(now["state"]), now), **seen,
    }  # fmt: skip
    answer = _send(run_dir, message)
    if args.json:
        print(redact.dumped(answer))
    else:
        print(f"{args.verb}: accepted at step {clean(str(answer['step']))}")
    return int(Exit.OK)


def playbooks(args: Namespace) -> int:
    """Every playbook that can be run from here; those for somebody else's machine apart."""
    from console.runner.prepare.catalog import EXAMPLE, entries

    named_entries = [(_typed(entry.path), entry) for entry in entries(site=args.site)]
    if args.json:
        rows = [
            {"name": name, "title": entry.title, "source": entry.source, "file": str(entry.path),
             "lessons": list(entry.lessons), "problem": entry.problem or None}
            for name, entry in named_entries
        ]  # fmt: skip
        print(redact.dumped({"playbooks": rows}))
        return int(Exit.OK)
    wide = max((len(name) for name, _ in named_entries), default=0)
    apart = [entry for _, entry in named_entries if entry.source == EXAMPLE][:1]
    for name, playbook in named_entries:
        if playbook in apart:
            print("\nExamples of another machine: copy one, and write what yours has")
        print(f"{name:<{wide}}  {playbook.source:<7}  {playbook.problem or playbook.title}")
    print("\nomni-console plan NAME shows what one would do here")
    return int(Exit.OK)


def _typed(path: Path) -> str:
    """What names a playbook on the command line."""
    return path.stem if path.parent in playbook_places() else clean(str(path), 200)


def _live_run(name: str | None) -> RunDir:
    """A run that accepts verbs. Raises ControlError when its runner is gone."""
    others = [] if name else runs_of_others()
    try:
        run_dir = find_run(name)
    except UsageError as error:
        raise _of_another(others) if others else error from None
    if runner_alive(run_dir):
        return run_dir
    try:
        state = read_view(run_dir).state
    except ConsoleError:
        state = RunState.PENDING
    if state in ENDS:
        from console.runner.slurm.standing import waiting

        if others:
            raise _of_another(others)
        detail = "\n".join([str(state), *([] if name else waiting())])
        raise ControlError(f"run {run_dir.id} has ended", detail, "omni-console show says how")
    raise ControlError(
        f"run {run_dir.id} is interrupted: its runner is gone", f"it was {state}",
        "omni-console resume goes on; omni-console rollback brings the baseline back",
    )  # fmt: skip


def _of_another(others: Sequence[str]) -> ControlError:
    hint = "only that user can tell it anything; root ends it by omni-console rollback"
    return ControlError("this user has no run now; another user has", "\n".join(others), hint)


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
        print(redact.dumped(summary))
    return int(code)


def _say(args: Namespace, text: str) -> None:
    print(text, file=sys.stderr if args.json else sys.stdout)


def runner(args: Namespace) -> int:
    from console.runner.main import main

    return main(
        RunDir(Path(args.run)), ready_fd=args.ready_fd, resume=args.resume, close=args.close,
        from_step=args.from_step,
    )  # fmt: skip


def promote(args: Namespace) -> int:
    """Accept a candidate that has the production port, and say what that means. Exit 0 when it is
    recorded; asks at a terminal, needs --yes without one."""
    from console.runner import promote as promoting

    site = site_of(args.site)
    cut = promoting.standing(site)
    why = args.why.strip()
    if not why:
        raise UsageError("why is it promoted?", "the record says who, when and why", "--why TEXT")
    done = promoting.proven(site)
    out = sys.stderr if args.json else sys.stdout
    cost = promoting.outage_words(cut.view)
    for line in _facts(site, cut, done.detail, cost):
        print(line, file=out, flush=True)
    if not args.yes and not _agreed(cut):
        print("nothing was changed", file=out)
        return int(Exit.FAILED)
    made = promoting.accept(site, cut, operator(), why)
    url = site.model.baseline.url
    before = promoting.first(cut.spec, url)
    lines = promoting.site_lines(cut.spec, site.model.baseline, cut.view)
    for line in _meaning(site, cut, made, before, lines):
        print(line, file=out)
    if args.json:
        print(redact.dumped({**_json(site, cut, made), "before": before, "site_lines": lines}))
    return int(Exit.OK)


def _facts(site: Site, cut: CutOver, answered: str, cost: str) -> list[str]:
    view, url = cut.view, site.model.baseline.url
    decision = view.decision.word or "none: no gate judged it"
    marks = f", {view.mark}" if view.mark else ""
    return [
        f"{cut.relay.service} answers at {url}: {clean(answered)}",
        f"  by run {cut.run.id} ({clean(view.title)}), decision {decision}{marks}",
        f"  `omni-console rollback` brings the site's baseline: {cost}",
    ]


def _agreed(cut: CutOver) -> bool:
    """Ask for a typed word: Enter alone accepts nothing. Raises UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to agree at", hint="omni-console promote --yes --why TEXT"
        )
    print(f"type {cut.relay.service} to promote it: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == cut.relay.service


def _meaning(
    site: Site, cut: CutOver, made: Promotion, before: list[str], lines: list[str]
) -> list[str]:
    """What holds now, what does not, and what would make it permanent."""
    name, url = made.service, site.model.baseline.url
    return [
        f"promoted: {name}, by {made.who}: {made.why}",
        "",
        f"What holds now: clients of {url} stay at {name}, by a relay (pid {cut.relay.pid}).",
        "  It does not survive a reboot, and no guard watches over it.",
        f"  `omni-console rollback` and F12 still return to the baseline of {site.path}.",
        "  No run starts meanwhile: a run needs the site's own baseline to serve.",
        "",
        f"To make {name} the baseline itself, which a rollback restores:",
        *(f"  1. {line}" for line in before),
        f"  {2 if before else 1}. in {site.path}, instead of its `baseline:`",
        *(f"       {line}" for line in lines),
        f"  {3 if before else 2}. omni-console rollback: ends the relay, starts it at {url}, "
        "proves it",
    ]


def _json(site: Site, cut: CutOver, made: Promotion) -> dict[str, object]:
    url = site.model.baseline.url
    return {
        "service": made.service, "url": url, "run": cut.run.id, "who": made.who,
        "why": made.why, "at": made.at, "relay_pid": cut.relay.pid, "site": str(site.path),
    }  # fmt: skip
