"""`fleet`: a table of hosts; `tell` and `rollback` on them. Nothing here loads a parser."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from console.common.errors import ConsoleError, ControlError, Exit, RollbackFailed, UsageError
from console.common.text import clean, columns
from console.fleet.inventory import Host, load_fleet
from console.fleet.known import last, look, words_of
from console.fleet.line import ROLLBACK_S, Line, control_dir
from console.fleet.protocol import LineLost
from console.frontends.cli.fleet.table import as_json, lines


def fleet(args: Namespace) -> int:
    """A line for each host. Exit 0, or 4 if one did not answer."""
    found = look(load_fleet(args.fleet).hosts, control_dir())
    if args.json:
        print(json.dumps({"hosts": [as_json(one) for one in found]}))
    else:
        print("\n".join(lines(found, time.time(), columns(sys.stdout))))
    return int(Exit.HOLD if any(one.trouble for one in found) else Exit.OK)


def tell(args: Namespace) -> int:
    """Give the active run of a host a verb, bound to where it stands now."""
    (host,) = load_fleet(args.fleet).chosen(args.host)
    line = Line(host, control_dir())
    try:
        found = line.open().ask("state").get("run") or {}
        if not found.get("alive"):
            raise ControlError(f"no run is active on {host.name}")
        status = found.get("status") or {}
        seen = {name: status[name] for name in ("step", "attempt", "evidence") if name in status}
        answer = line.act(
            "tell", run=str(found["id"]), verb=args.verb, seen=seen, why=args.reason,
            confirm=args.confirm,
        )  # fmt: skip
    finally:
        line.close()
    step = clean(str((answer.get("status") or {}).get("step", "")), 60)
    words = f"{args.verb}: accepted by run {clean(str(found['id']), 100)} at step {step}"
    print(json.dumps({"host": host.name, **answer}) if args.json else words)
    return int(Exit.OK)


def rollback(args: Namespace) -> int:
    """Run each host's own rollback, and wait for it; the exit code is the worst. A host without a
    line is told when it comes back by itself, and nothing waits for it."""
    made = load_fleet(args.fleet)
    if bool(args.host) == args.all:
        raise UsageError("which hosts?", "HOST, or --all", "omni-console fleet rollback HOST")
    hosts = made.chosen("all" if args.all else args.host)
    say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    with ThreadPoolExecutor(len(hosts)) as pool:
        done = list(pool.map(partial(_roll_back, say, control_dir()), hosts))
    if args.json:
        print(json.dumps({"hosts": done}))
    return max(int(one["exit_code"]) for one in done)


def _roll_back(say: Callable[[str], None], here: Path | None, host: Host) -> dict[str, Any]:
    """One host's rollback, as an object; what it says is printed behind the host's name."""
    line, token = Line(host, here), ""
    try:
        token = str(line.open().ask("ready")["token"])
        answer = line.ask(
            "rollback", ROLLBACK_S, said=lambda text: say(f"{host.name}: {text}"), token=token
        )
    except LineLost as error:
        before, why = last(host.name), error.detail or error.title
        words = f"the line was lost, its rollback goes on there: {why}" if token else (
            f"cannot be reached, and nothing was asked of it: {why}"
        )  # fmt: skip
        say(f"{host.name}: {words}\n  {words_of(before, time.time())}")
        return {"host": host.name, "reached": bool(token), "detail": words,
                "back_at": before.back_at, "exit_code": int(Exit.ROLLBACK_FAILED)}  # fmt: skip
    except ConsoleError as error:
        by_hand = f"ssh {host.ssh} {host.command} rollback"
        failed = RollbackFailed(
            f"{host.name}: rollback failed", "; ".join(error.lines()), f"by hand: {by_hand}"
        )
        say("\n".join(failed.lines()))
        return {"host": host.name, "reached": True, "detail": str(error),
                "exit_code": int(failed.exit_code)}  # fmt: skip
    finally:
        line.close()
    found = answer.get("exit")
    code = found if isinstance(found, int) else int(Exit.ROLLBACK_FAILED)
    return {"host": host.name, "reached": True, "exit_code": code, "results": answer.get("results")}
