"""Every command with its arguments, without their implementation."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from console import VERSION
from console.common.errors import EXIT_MEANING
from console.frontends.cli.commands.looking import lesson_commands, look_commands
from console.frontends.cli.commands.machine import (
    boot_commands,
    clean_commands,
    emergency_commands,
    machine_commands,
    watch_commands,
    web_commands,
)
from console.frontends.cli.commands.models import check_commands
from console.frontends.cli.commands.running import run_commands
from console.frontends.cli.fleet.arguments import NAMES as FLEET
from console.frontends.cli.fleet.arguments import fleet_commands
from console.frontends.cli.parser import INTERNAL, SITE_HELP, Parser, path
from console.frontends.cli.shell.arguments import shell_commands
from console.frontends.cli.site.arguments import NAMES, site_commands

ABOUT = "Operator console for large language models on your own workstation."
HEADINGS = {
    "Run": (
        "plan",
        "run",
        "schedule",
        "tune",
        "bisect",
        "attach",
        "tell",
        "resume",
        "abort",
        "promote",
    ),
    "See": ("runs", "show", "report", "logs", "recorder", "lessons"),
    "Models": ("check", "bench"),
    "Machine": ("doctor", "gauges", "watch", "metrics", "notify", "web", "clean"),
    "Hosts": ("fleet", "bridge"),
    "Emergency": ("rollback", "boot"),
    "Set-up": ("init", "adopt", "demo", "playbooks", "lint", "schema", "keys", "completion", "man"),
}
"""The commands in the order of `--help`; one without a heading stands at the end."""


class RootParser(Parser):
    """Lists the commands under headings, which argparse does for options alone."""

    def format_help(self) -> str:
        out = self._get_formatter()
        out.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        out.add_text(self.description)
        for heading, commands in by_heading(self):
            out.start_section(heading)
            out.add_arguments(commands)
            out.end_section()
        for group in self._action_groups:
            shown = [action for action in group._group_actions if not action.choices]
            out.start_section("Options" if group.title == "options" else group.title)
            out.add_arguments(shown)
            out.end_section()
        out.add_text(self.epilog)
        return out.format_help()


def by_heading(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    """The commands of a parser that people use, each with its help, under their headings."""
    commands = {
        subaction.dest: subaction
        for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        for subaction in action._get_subactions()
    }  # fmt: skip
    for heading, names in HEADINGS.items():
        if here := [commands.pop(name) for name in names if name in commands]:
            yield heading, here
    if commands:
        yield "More", list(commands.values())


def parser_for(argv: list[str]) -> argparse.ArgumentParser:
    """A parser with only the commands that `argv` may mean: making all takes a tenth of the time to
    the first frame."""
    codes = "  ".join(f"{int(code)} {text}\n" for code, text in EXIT_MEANING.items())
    Parser.as_json = "--json" in argv  # of the commands' own parsers too
    parser = RootParser(
        prog="omni-console",
        description=f"{ABOUT}\nWithout a command it opens its screens.",
        epilog=f"Exit codes:\n  {codes}\n`omni-console COMMAND --help` says more of a command, "
        "`omni-console man` everything on one page.",
    )
    parser.add_argument("--version", action="version", version=f"omni-console {VERSION}")
    parser.set_defaults(handler="console:open_console", json=False, readonly=False)
    parser.add_argument("--site", dest="console_site", type=path, metavar="FILE", help=SITE_HELP)
    parser.add_argument(
        "--readonly",
        dest="console_readonly",
        action="store_true",
        help="open screens that only show, and change nothing",
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="open the screens on the rehearsal, not the site"
    )
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    meant = [make for make, names in GROUPS if argv[:1] and argv[0] in names]
    for make in meant or [make for make, _ in GROUPS]:
        make(commands)
    return parser


GROUPS: tuple[tuple[Callable[[Any], None], frozenset[str]], ...] = (
    (run_commands, frozenset({"run", "tune", "bisect", "attach", "resume", "abort", "tell",
                              "runner"})),
    (look_commands, frozenset({"plan", "lint", "schema", "runs", "show", "report", "logs",
                               "playbooks", "keys"})),
    (lesson_commands, frozenset({"lessons"})),
    (machine_commands, frozenset({"doctor", "gauges", "recorder", "bench"})),
    (check_commands, frozenset({"check"})),
    (clean_commands, frozenset({"clean"})),
    (site_commands, NAMES),
    (fleet_commands, FLEET),
    (boot_commands, frozenset({"boot"})),
    (watch_commands, frozenset({"watch", "metrics"})),
    (web_commands, frozenset({"web"})),
    (emergency_commands, frozenset({"rollback", "promote", "demo"})),
    (shell_commands, frozenset({"completion", "man"})),
)  # fmt: skip


def described() -> dict[str, str]:
    """Every command that a person uses, with what it does."""
    commands = Parser().add_subparsers(parser_class=Parser)
    for make, _ in GROUPS:
        make(commands)
    return {
        name: parser.description
        for name, parser in commands.choices.items()
        if parser.description and not parser.description.startswith(INTERNAL)
    }
