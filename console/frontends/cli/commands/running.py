"""The arguments of what starts, follows and steers a run."""

from __future__ import annotations

import argparse
from typing import Any

from console.frontends.cli.parser import (
    INTERNAL,
    PLAYBOOK_HELP,
    RUN_HELP,
    add_command,
    add_input,
    add_run,
    add_start,
    add_unattended,
)

VERBS = (
    "next", "auto", "continue", "pause", "approve", "reject", "retry", "measure", "skip", "abort",
    "rollback", "status",
)  # fmt: skip
"""What a run can be told."""


def run_commands(commands: Any) -> None:
    _run(commands)
    _tune(commands)
    _bisect(commands)
    attach = add_command(commands, "attach", "run:attach", "follow a run from any terminal")
    add_run(attach)
    resume = add_command(commands, "resume", "run:resume", "resume a run whose runner died")
    add_run(resume)
    resume.add_argument(
        "--from", dest="from_step", metavar="STEP", help="run STEP and what follows it again"
    )
    resume.add_argument("--detach", action="store_true", help="return as soon as it runs")
    abort = add_command(commands, "abort", "run:abort", "stop a run and roll back what it started")
    add_run(abort)
    abort.add_argument("--reason", default="", metavar="TEXT", help="why (recorded)")
    tell = add_command(commands, "tell", "run:tell", "tell a run: next, auto, pause, approve, …")
    tell.add_argument("run", metavar="RUN", help=RUN_HELP)
    tell.add_argument(
        "verb", metavar="VERB", help=f"one of {', '.join(VERBS)}",
        choices=VERBS,
    )  # fmt: skip
    tell.add_argument("--reason", default="", metavar="TEXT", help="why (skip needs it)")
    tell.add_argument("--confirm", default="", metavar="WORD", help="the word an approval asks for")
    tell.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE",
        help="change an input (retry, measure)",
    )  # fmt: skip
    tell.add_argument("--step", metavar="STEP", help="only if this is the current step")
    tell.add_argument("--attempt", type=int, metavar="N", help="only if this is its attempt")
    tell.add_argument("--evidence", metavar="HASH", help="only if the evidence is still this")
    runner = add_command(commands, "runner", "run:runner", INTERNAL, hidden=True)
    runner.add_argument("run")
    runner.add_argument("--ready-fd", type=int, default=-1)
    runner.add_argument("--resume", action="store_true")
    runner.add_argument("--from", dest="from_step", default="")
    runner.add_argument("--close", action="store_true")


def _run(commands: Any) -> None:
    run = add_command(
        commands, "run", "run:run", "start a run and follow it; Ctrl-C detaches", site=True
    )
    run.add_argument("playbook", metavar="PLAYBOOK", help=PLAYBOOK_HELP)
    add_start(run)
    rehearsal(run)
    run.add_argument("--keep", action="store_true", help="with --rehearse: keep its baseline up")
    run.add_argument(
        "--at", default="", metavar="TIME",
        help="start it later, by a timer of systemd: 02:00, or 2026-11-27 02:00",
    )  # fmt: skip
    run.add_argument(
        "--slurm", action="append", default=[], metavar="KEY=VALUE",
        help="start it once Slurm has given it this machine's cards: partition=gpu, gres=gpu:1, "
        "begin=23:00, time=8:00:00",
    )  # fmt: skip


def _tune(commands: Any) -> None:
    tune = add_command(
        commands, "tune", "run:tune", "find the flags with which an engine is fastest", site=True
    )
    tune.rest = "flags"
    tune.add_argument("playbook", nargs="?", default="", metavar="PLAYBOOK", help=PLAYBOOK_HELP)
    tune.add_argument("--baseline", action="store_true", help="the site's baseline, not a playbook")
    tune.add_argument("--service", default="", metavar="SERVICE", help="which one of the playbook")
    tune.add_argument(
        "--prefer", choices=("decode", "prompt", "request"), default="decode",
        help="the rate that counts: generating, reading a prompt, or a whole request",
    )  # fmt: skip
    tune.add_argument("--points", type=int, default=60, metavar="N", help="measure N at most")
    tune.add_argument(
        "--depth", type=int, default=0, metavar="TOKENS", help="context before each answer"
    )
    tune.add_argument("--most-ram", default="", metavar="SIZE", help="what may win takes no more")
    tune.add_argument("--most-vram", default="", metavar="SIZE", help="the same of GPU memory")
    tune.add_argument(
        "flags", nargs="*", metavar="-- FLAG VALUES",
        help="flags with the values to try: -- -t 8,16 -ngl '0..60 by 4' --no-repack true,false",
    )  # fmt: skip
    tune.add_argument("--fresh", action="store_true", help="measure again what is known")
    add_start(tune)


def _bisect(commands: Any) -> None:
    bisect = add_command(
        commands, "bisect", "search.bisect:bisect",
        "find the first bad one of many versions, by runs of a playbook", site=True,
    )  # fmt: skip
    bisect.add_argument("playbook", nargs="?", default="", metavar="PLAYBOOK", help=PLAYBOOK_HELP)
    bisect.add_argument("--good", default="", metavar="VERSION", help="one that is known as good")
    bisect.add_argument("--bad", default="", metavar="VERSION", help="one that is known as bad")
    bisect.add_argument("--over", default="", metavar="INPUT", help="which input is the version")
    bisect.add_argument("--list", default="", metavar="V1,V2,…", help="every version, in order")
    bisect.add_argument("--list-file", default="", metavar="FILE", help="the same, one a line")
    bisect.add_argument("--git", default="", metavar="DIR", help="the commits of this repository")
    bisect.add_argument(
        "--verify", action="store_true", help="run the good and the bad one first (two more runs)"
    )
    bisect.add_argument(
        "--fresh", action="store_true", help="forget what this command has found before"
    )
    bisect.add_argument("--again", action="store_true", help="try what was skipped once more")
    bisect.add_argument("--to", default="", metavar="FILE", help="write the report there, too")
    bisect.add_argument("--status", action="store_true", help="how far each bisect is")
    add_input(bisect)
    add_unattended(bisect)


def rehearsal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rehearse", action="store_true",
        help="rehearse it: images and GPUs are stand-ins, the rest is real",
    )  # fmt: skip
    parser.add_argument(
        "--fault", default="", metavar="NAME", help="with --rehearse: what goes wrong"
    )
