"""`fleet run` and `fleet report`: a playbook on one host after the other, and who decided what."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from console.common.clock import SystemClock
from console.common.errors import Exit, UsageError
from console.common.text import clean, columns, folded, one_line
from console.config.locate import inputs_of, playbook_path, shipped
from console.config.yaml import read_text
from console.fleet import rollout
from console.fleet.inventory import Host, load_fleet
from console.fleet.known import clock
from console.fleet.line import Line, control_dir
from console.fleet.protocol import BridgeError, LineLost
from console.fleet.report import Decided, decided, markdown
from console.fleet.starts import Wanted
from console.frontends.cli.follow import Told, at_terminal
from console.frontends.cli.run import lease_of


def run(args: Namespace) -> int:
    """Run a playbook on one host after the other; the exit code is that of the last run."""
    made, out = load_fleet(args.fleet), sys.stderr if args.json else sys.stdout
    hosts, path = made.chosen(args.on), playbook_path(args.playbook)
    wanted = Wanted(
        path.stem, read_text(path, "the playbook cannot be used"), inputs_of(args.input),
        _lease(args), args.yes, path.resolve().parent == shipped().resolve(),
    )  # fmt: skip
    here, now = control_dir(), SystemClock()
    one = rollout.opened(wanted, made.path, hosts, now.now(), fresh=args.fresh)
    say = partial(print, file=out, flush=True)
    driver = rollout.Driver(
        one, wanted, line=lambda host: Line(host, here), say=say,
        agree=partial(_agreed, args, say),
        viewer=lambda host: _Told(host.name, out), clock=now, headless=not at_terminal(),
    )  # fmt: skip
    with rollout.held(one):
        if any(leg.hash for leg in one.legs):
            say(f"going on with the rollout of {clock(one.begun, now.now())}")
        try:
            code = driver.go(hosts)
        except KeyboardInterrupt:
            say("\nwhat runs goes on; the same words go on with this rollout")
            code = Exit.INTERRUPTED
    if args.json:
        legs = [{"host": x.host, "run": x.run or None, "exit_code": x.exit} for x in one.legs]
        print(json.dumps({"hosts": legs, "over": one.over, "exit_code": int(code)}))
    return int(code)


def _lease(args: Namespace) -> float | None:
    given = lease_of(args)
    if given == 0.0:
        raise UsageError("--lease 0", "a run over a line that may be lost has a lease")
    return given


class _Told(Told):
    """A run on another host, a line for each event."""

    def __init__(self, host: str, out: Any) -> None:
        super().__init__(out, news=out.isatty())
        self.host = host
        self.rollback = f"omni-console fleet rollback {host}"

    def _how(self) -> str:
        return f"omni-console fleet tell {self.host} "


def _agreed(args: Namespace, say: Callable[[str], None], host: Host, plan: dict[str, Any]) -> bool:
    """Show a plan, and have its hash confirmed by hand: Enter alone starts nothing. Raises
    UsageError without a terminal."""
    shown, width = plan.get("lines"), columns(sys.stdout)
    for one in shown if isinstance(shown, list) else ():
        say("\n".join(folded(clean(str(one)), width)))
    short = clean(str(plan["hash"]), 80)[:8]
    say(f"plan {short} of {host.name}")
    if args.yes:
        return True
    if not at_terminal():
        raise UsageError("there is no terminal to confirm the plan at", hint="--yes takes it")
    print(f"type {short} to start it on {host.name}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == short


def report(args: Namespace) -> int:
    """Who decided what on which host, in one table."""
    made, here = load_fleet(args.fleet), control_dir()
    if args.run:
        asked = [(host, name) for name in args.run for host in made.hosts]
    else:
        newest = next((x for x in rollout.kept() if x.fleet == str(made.path.resolve())), None)
        if newest is None:
            raise UsageError("there was no rollout yet", hint="omni-console fleet report RUN…")
        known = {one.name: one for one in made.hosts}
        asked = [(known[x.host], x.run) for x in newest.legs if x.run and x.host in known]
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        found = [one for one in pool.map(partial(_decided, here), asked) if one is not None]
    if not found:
        raise UsageError("no host has such a run", one_line(", ".join(args.run)))
    if args.json:
        print(json.dumps({"runs": [one.as_json() for one in found]}))
    else:
        print("\n".join(markdown(found)))
    return int(Exit.OK)


def _decided(here: Path | None, asked: tuple[Host, str]) -> Decided | None:
    """What was decided in one run; None for a host that has no such run."""
    host, name = asked
    line = Line(host, here)
    try:
        return decided(host.name, line.open(), name)
    except LineLost as error:
        return Decided(host.name, name, trouble=error.detail or error.title)
    except BridgeError as error:
        return None if error.code == "no_run" else Decided(host.name, name, trouble=str(error))
    finally:
        line.close()
