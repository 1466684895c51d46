"""The arguments of what only shows: plans, findings, runs, reports and lessons."""

from __future__ import annotations

from typing import Any

from console.frontends.cli.commands.running import rehearsal
from console.frontends.cli.parser import PLAYBOOK_HELP, RUN_HELP, add_command, add_input, add_run


def look_commands(commands: Any) -> None:
    plan = add_command(
        commands, "plan", "check:plan", "what a playbook would do, effect by effect", site=True
    )
    plan.add_argument("playbook", metavar="PLAYBOOK", help=PLAYBOOK_HELP)
    add_input(plan)
    rehearsal(plan)
    lint = add_command(
        commands, "lint", "check:lint",
        "faults in playbooks, sites, Dockerfiles, compose files and scripts", site=True,
    )  # fmt: skip
    lint.add_argument("paths", nargs="*", metavar="PATH", help="files, or directories of them")
    lint.add_argument("--sarif", action="store_true", help="SARIF 2.1.0 on stdout")
    lint.add_argument("--rules", action="store_true", help="every rule: what, why, how to fix it")
    schema = add_command(
        commands, "schema", "check:schema", "the JSON Schema of a playbook, a site or a fleet file"
    )
    schema.add_argument(
        "what", nargs="?", choices=("playbook", "site", "fleet"), default="playbook",
        metavar="WHAT", help="playbook (default), site or fleet",
    )  # fmt: skip
    schema.add_argument(
        "--markdown", action="store_true", help="the format as Markdown (docs/reference/format.md)"
    )
    add_command(commands, "runs", "show:runs", "every run, newest first")
    show = add_command(commands, "show", "show:show", "a run: state, steps, figures, verdicts")
    add_run(show)
    report = add_command(
        commands, "report", "show:report", "the report of a run, or a table of several runs"
    )
    report.add_argument("run", nargs="*", metavar="RUN", help=RUN_HELP)
    report.add_argument("--to", default="", metavar="FILE", help="write it there, charts beside it")
    report.add_argument(
        "--markdown", action="store_true", help="the table of several runs as Markdown"
    )
    logs = add_command(
        commands, "logs", "show:logs", "the last lines of a service or step of a run"
    )
    logs.add_argument("name", metavar="SERVICE|STEP", help="whose output")
    logs.add_argument("--run", metavar="RUN", help=RUN_HELP)
    logs.add_argument(
        "--lines", type=int, default=50, metavar="N", help="how many, from the end (default: 50)"
    )
    add_command(
        commands, "playbooks", "run:playbooks", "the playbooks that can be run by name", site=True
    )
    add_command(commands, "keys", "console:keys", "every key of the screens, as a table")


def lesson_commands(commands: Any) -> None:
    lessons = add_command(commands, "lessons", "lessons:lessons", "earlier lessons, by word or id")
    lessons.add_argument("query", nargs="*", metavar="QUERY", help="words, or an id like F-022")
    lessons.add_argument("--due", action="store_true", help="what is due for review, oldest first")
    lessons.add_argument(
        "--run", action="store_true", help="with --due: run the commands; changes no status"
    )
    lessons.add_argument("--draft", metavar="RUN", help="a new lesson from a run that is over")
    lessons.add_argument(
        "--as", dest="as_", choices=["F", "S", "P"], default="",
        help="with --draft: failure, success or pivot (default: by how the run ended)",
    )  # fmt: skip
    lessons.add_argument(
        "--brief", action="store_true", help="what not to do and what works, a line for each lesson"
    )
    lessons.add_argument(
        "--export", metavar="FILE",
        help="write that as Markdown for agents and newcomers, like AGENTS.md (-: stdout)",
    )  # fmt: skip
    lessons.add_argument(
        "--force", action="store_true", help="with --export: replace a file of somebody else's"
    )
