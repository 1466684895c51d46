"""`fleet`: a table of hosts; `tell` and `rollback` on them. Nothing here loads a parser."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TextIO

from console.common import redact
from console.common.errors import ConsoleError, ControlError, Exit, RollbackFailed, UsageError
from console.common.text import clean, columns
from console.fleet.inventory import Host, load_fleet
from console.fleet.known import last, look, words_of
from console.fleet.line import (
    NO_CONSOLE,
    ROLLBACK_S,
    SSH_FAILED,
    Line,
    at_once,
    control_dir,
)
from console.fleet.protocol import BINDS, WHOLE, BridgeError, LineLost, code_of, part
from console.fleet.table import as_json, is_down, lines, rows
from console.recovery.rollback.shell.program_gone import NO_SCRIPT


def fleet(args: Namespace) -> int:
    """A line for each host. Exit 0, or 4 if one did not answer, else 5 if the baseline of one is
    down or answers garbage, and no run is on there."""
    records = look(load_fleet(args.fleet).hosts, control_dir())
    if args.json:
        print(redact.dumped({"hosts": [as_json(record) for record in records]}))
    else:
        print("\n".join(lines(records, time.time(), columns(sys.stdout))))
    if any(record.trouble for record in records):
        return int(Exit.HOLD)
    return int(Exit.FAILED if any(map(is_down, records)) else Exit.OK)


def tell(args: Namespace) -> int:
    """Give the active run of a host a verb, bound to where it stands now."""
    chosen = load_fleet(args.fleet).chosen(args.host)
    if len(chosen) > 1:
        raise UsageError("which host?", "a verb is for the run of one host")
    host = chosen[0]
    if args.verb == "rollback":
        hint = f"omni-console fleet rollback {host.name}"
        raise UsageError("a rollback is a command of its own", hint=hint)
    line, token = Line(host, control_dir()), ""
    try:
        answer = line.open().ask("state")
        run_state = part(answer, "run")
        if not run_state.get("alive"):
            raise ControlError(f"no run is active on {host.name}", "\n".join(waiting(host, answer)))
        run, status = str(run_state.get("id")), part(run_state, "status")
        if not status and args.verb not in WHOLE:
            words = "its runner does not say where the run stands, so nothing was sent"
            raise ControlError(f"{host.name}: {args.verb} refused", words, "try again")
        if args.step and args.step != status.get("step"):
            at = clean(str(status.get("step") or "no step"), 60)
            words = f"its run stands at {at}, not at {clean(args.step, 60)}; nothing was told"
            raise ControlError(f"{host.name}: {args.verb} refused", words)
        seen = {name: status[name] for name in BINDS if name in status}
        token = line.token()
        answer = line.ask(
            "tell", token=token, run=run, verb=args.verb, seen=seen, why=args.reason,
            confirm=args.confirm,
        )  # fmt: skip
    except LineLost as error:
        if token:
            lost = f"the line was lost, and whether its run took {args.verb} is not known"
            error.title = f"{host.name}: {lost}"
            error.hint = "`omni-console fleet` says where its run stands"
        raise
    finally:
        line.close()
    step = clean(str(part(answer, "status").get("step", "")), 60)
    words = f"{args.verb}: accepted by run {clean(run, 100)} at step {step}"
    print(redact.dumped({"host": host.name, **answer}) if args.json else words)
    return int(Exit.OK)


def waiting(host: Host, state: dict[str, Any]) -> list[str]:
    """The jobs that a host's runs still wait for, each with the command that gives it up."""
    from console.runner.slurm.standing import waits

    job_lines = []
    for row in rows(state):
        if not row.get("run"):
            playbook, job, words = (
                clean(str(row.get(x)), 80) for x in ("playbook", "job", "words")
            )
            # twice: for the shell here, and for the one there
            gives_up = shlex.join(["ssh", host.ssh, "scancel", shlex.quote(job)])
            job_lines.append(waits(playbook, job, words, gives_up))
    return job_lines


def rollback(args: Namespace) -> int:
    """Run each host's own rollback, and wait for it; the exit code is the worst. A host without a
    line is told when it comes back by itself, and nothing waits for it."""
    from console.recovery.rollback.shell.printing import let_go_of_dead_output

    made = load_fleet(args.fleet)
    if bool(args.host) == args.all:
        words = "HOST and --all were both given" if args.all else "HOST, or --all"
        raise UsageError("which hosts?", words, "omni-console fleet rollback HOST")
    hosts = made.chosen("all" if args.all else args.host)
    say, here = partial(_say, sys.stderr if args.json else sys.stdout), control_dir()
    rollbacks = [Line(host, here) for host in hosts]
    try:
        done = at_once(rollbacks, partial(_roll_back, say))
    except KeyboardInterrupt:
        say("\nthis command ends; a rollback that a host has begun goes on there")
        return int(Exit.INTERRUPTED)
    if args.json:
        _say(sys.stdout, redact.dumped({"hosts": done}))
    let_go_of_dead_output()
    return max(int(outcome["exit_code"]) for outcome in done)


def _say(out: TextIO, text: str) -> None:
    """Print a line; a reader that went away (`| head`) keeps no rollback from its end and its exit
    code."""
    with suppress(OSError, ValueError):
        print(text, file=out, flush=True)


def _by_script(
    line: Line, tell: Callable[[str], None], error: BridgeError
) -> dict[str, Any] | None:
    """The outcome of the newest script that a run on a host has sealed, where its console cannot be
    run; None if there is none."""
    code = line.run_script(tell)
    if code == NO_SCRIPT:
        return None
    words = f"{error}; its newest sealed script ended with {code}"
    tell(words)
    done = Exit.OK if code == Exit.OK else Exit.ROLLBACK_FAILED
    return {"host": line.host.name, "reached": None if code == SSH_FAILED else True,
            "detail": words, "exit_code": int(done)}  # fmt: skip


def _roll_back(say: Callable[[str], None], line: Line) -> dict[str, Any]:
    """One host's rollback, as an object; what it says is printed behind the host's name."""
    host, token, heard = line.host, "", False

    def tell(text: str) -> None:
        nonlocal heard
        heard = True
        say(f"{host.name}: {text}")

    try:
        token = line.open().token()
        answer = line.ask("rollback", ROLLBACK_S, said=tell, token=token)
        with suppress(ConsoleError):
            for words in waiting(host, line.ask("state")):
                say(f"{host.name}: {words}")
    except LineLost as error:
        if line.abandoned:  # by Ctrl-C, which says what is left
            begun = True if heard else None if token else False
            return {"host": host.name, "reached": begun, "exit_code": int(Exit.INTERRUPTED)}
        before, why = last(host), error.detail or error.title
        words = f"cannot be reached, and nothing was asked of it: {why}"
        if heard:
            words = f"the line was lost, its rollback goes on there: {why}"
        elif token:
            words = f"the line was lost, and whether its rollback has begun is not known: {why}"
        # what a run would have done by itself says nothing once its rollback has begun
        begun = heard and before.back_at is None
        more = words_of(before, time.time())
        more = "whether the baseline is back is not known" if begun else more
        say(f"{host.name}: {words}\n  {more}")
        if heard:
            say("  see: omni-console fleet")
        if token and not heard:
            say(f"  ask again: omni-console fleet rollback {host.name}")
        reached = True if heard else None if token else False
        return {"host": host.name, "reached": reached, "detail": words,
                "back_at": before.back_at, "exit_code": int(Exit.ROLLBACK_FAILED)}  # fmt: skip
    except ConsoleError as error:
        by_hand = f"by hand: {host.typed('rollback')}"
        if isinstance(error, BridgeError) and error.code == NO_CONSOLE:
            if (outcome := _by_script(line, tell, error)) is not None:
                return outcome
            by_hand = "nothing was asked of it, and no run has sealed a script there"
        why = "; ".join(filter(None, (error.title, *error.detail.splitlines())))
        hint = f"{error.hint}; {by_hand}" if error.hint else by_hand
        failed = RollbackFailed(f"{host.name}: rollback failed", why, hint)
        say("\n".join(failed.lines()))
        return {"host": host.name, "reached": True, "detail": str(error),
                "exit_code": int(failed.exit_code)}  # fmt: skip
    finally:
        line.close()
    code = code_of(answer.get("exit"))
    if code is None:
        code = Exit.ROLLBACK_FAILED
        say(f"{host.name}: its rollback was ended before it could say how it went; ask again: "
            f"omni-console fleet rollback {host.name}")  # fmt: skip
    return {"host": host.name, "reached": True, "exit_code": int(code),
            "results": answer.get("results")}  # fmt: skip
