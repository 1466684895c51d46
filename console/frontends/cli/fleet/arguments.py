"""The arguments of `fleet` and `bridge`."""

from __future__ import annotations

import argparse
from typing import Any

from console.frontends.cli.commands.running import VERBS
from console.frontends.cli.parser import PLAYBOOK_HELP, add_command, add_input, path

FLEET_HELP = "fleet file (default: $OMNI_FLEET, else ~/.config/omni-console/fleet.yaml)"
NAMES = frozenset({"fleet", "bridge"})
REMOTE_VERBS = tuple(verb for verb in VERBS if verb not in ("rollback", "status"))
"""What a run on another host can be told; a rollback is a command of its own."""


def fleet_commands(commands: Any) -> None:
    fleet = add_command(
        commands, "fleet", "fleet.commands:fleet",
        "several hosts over ssh: what each does; run, roll back and report on them",
    )  # fmt: skip
    _add_fleet(fleet)
    parts = fleet.add_subparsers(metavar="PART")
    run = _run(parts)
    tell = add_command(
        parts,
        "tell",
        "fleet.commands:tell",
        "tell the active run of a host: next, approve, abort …",
    )
    tell.add_argument("host", metavar="HOST", help="a host of the fleet file")
    tell.add_argument(
        "verb",
        metavar="VERB",
        help=f"one of {', '.join(REMOTE_VERBS)}",
        choices=(*REMOTE_VERBS, "rollback"),
    )
    tell.add_argument("--reason", default="", metavar="TEXT", help="why (skip needs it)")
    tell.add_argument("--confirm", default="", metavar="WORD", help="the word an approval asks for")
    tell.add_argument("--step", metavar="STEP", help="only if its run stands at this step")
    back = add_command(
        parts, "rollback", "fleet.commands:rollback",
        "bring a host's baseline back now, by its own rollback; never queued",
    )  # fmt: skip
    back.add_argument("host", nargs="?", default="", metavar="HOST", help="a host, or several: A,B")
    back.add_argument("--all", action="store_true", help="every host")
    report = add_command(
        parts, "report", "fleet.rollout:report", "who decided what on which host, as Markdown"
    )
    report.add_argument(
        "run", nargs="*", metavar="RUN", help="runs by their ids (default: the newest rollout)"
    )
    for part in (run, tell, back, report):
        # a default would take the place of `fleet --fleet FILE PART`
        _add_fleet(part, default=argparse.SUPPRESS)
    add_command(
        commands, "bridge", "fleet.bridge:bridge",
        "the far side of `fleet`: answers questions on stdio, ends with its stdin", site=True,
        data=False,
    )  # fmt: skip


def _run(parts: Any) -> argparse.ArgumentParser:
    run = add_command(
        parts, "run", "fleet.rollout:run",
        "run a playbook on one host after the other; the next only after GO",
    )  # fmt: skip
    run.add_argument("playbook", metavar="PLAYBOOK", help=PLAYBOOK_HELP)
    run.add_argument("--on", required=True, metavar="HOSTS", help="A,B in this order, or all")
    add_input(run)
    run.add_argument(
        "--yes", action="store_true",
        help="take every plan, and approve whatever a run asks (recorded)",
    )  # fmt: skip
    run.add_argument(
        "--fresh", action="store_true", help="forget what this command has begun before"
    )
    run.add_argument(
        "--lease", metavar="TIME",
        help="bring the baseline back when the line has been lost for TIME (default: the fleet "
        "file's, the playbook's, the site's, else 30m)",
    )  # fmt: skip
    run.add_argument(
        "--slurm", action="append", default=[], metavar="KEY=VALUE",
        help="on hosts with `slurm:`, in place of what is there: begin=23:00",
    )  # fmt: skip
    return run


def _add_fleet(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument("--fleet", type=path, default=default, metavar="FILE", help=FLEET_HELP)
