"""The argument parser of every command: its words for bad usage, and what all commands share."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from console.common.errors import Exit

SITE_HELP = (
    "site file (default: $OMNI_SITE, else ~/.config/omni-console/site.yaml, else the demo's)"
)
INPUT_HELP = "give an input of the playbook a value"


class Parser(argparse.ArgumentParser):
    """argparse that says what to do next, and exits with this project's code for bad usage."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            import json  # only where it is wanted: it costs start-up time

            code = int(Exit.USAGE)
            hint = f"{self.prog} --help"
            said = {"error": message, "detail": "", "hint": hint, "exit_code": code}
            print(json.dumps(said))
        sys.stderr.write(f"{self.prog}: {message}\n  hint: {self.prog} --help\n")
        sys.exit(int(Exit.USAGE))


def add_command(
    commands: Any, name: str, handler: str, text: str, *, site: bool = False, hidden: bool = False
) -> argparse.ArgumentParser:
    extra = {} if hidden else {"help": text}
    parser: argparse.ArgumentParser = commands.add_parser(name, description=text, **extra)
    parser.set_defaults(handler=handler)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    if site:
        parser.add_argument("--site", metavar="FILE", help=SITE_HELP)
    return parser


def add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help=INPUT_HELP
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """What every command that starts a run takes."""
    add_input(parser)
    parser.add_argument("--yes", action="store_true", help="approve whatever asks (recorded)")
    parser.add_argument("--step", action="store_true", help="pause before every step")
    parser.add_argument("--detach", action="store_true", help="return as soon as it runs")
    parser.add_argument(
        "--lease", metavar="TIME",
        help="bring the baseline back when nobody has been attached for TIME (30m; 0: never)",
    )  # fmt: skip
    parser.add_argument(
        "--override", action="append", default=[], metavar="RULE=WHY",
        help="run despite this lint error (recorded)",
    )  # fmt: skip
