"""The argument parser of every command: its words for bad usage, and what all commands share."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from console.common.errors import Exit
from console.common.text import UNLIMITED, clean, columns, one_line

SITE_HELP = (
    "site file (default: $OMNI_SITE, else ~/.config/omni-console/site.yaml, else "
    "/etc/omni-console/site.yaml, else the demo's)"
)
INPUT_HELP = "give an input of the playbook a value"
PLAYBOOK_HELP = "a file, or the name of a playbook (omni-console playbooks lists them)"
RUN_HELP = "a run by its id or the end of it (default: the newest)"
INTERNAL = "(internal)"
"""How the description of a command begins that no person types."""
HIDDEN = ("runner", "values")
"""The names of those."""
WIDEST = 100
"""The widest help on a terminal."""


class Help(argparse.RawDescriptionHelpFormatter):
    """argparse's form, as wide as the output allows."""

    def __init__(self, prog: str) -> None:
        width = columns(sys.stdout)
        super().__init__(prog, width=width if width == UNLIMITED else min(width, WIDEST) - 2)


class Parser(argparse.ArgumentParser):
    """argparse that says what to do next, and exits with this project's code for bad usage."""

    as_json = False
    rest = ""
    """Where the words behind `--` go, whatever stands before it; "" for argparse's own way, which
    gives them to no positional argument once an option has followed the others."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        mark = words.index("--") if self.rest and "--" in words else len(words)
        parsed, unknown = super().parse_known_args(words[:mark], namespace)
        if mark < len(words):
            setattr(parsed, self.rest, [*getattr(parsed, self.rest), *words[mark + 1 :]])
        return parsed, unknown

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Help, **options})

    def error(self, message: str) -> NoReturn:
        message, hint = _nearest(message)
        hint = hint or f"{self.prog} --help"
        message, hint = clean(message), clean(hint)  # it repeats what was typed
        if self.as_json:
            import json  # only where it is wanted: it costs start-up time

            code = int(Exit.USAGE)
            failure = {"error": message, "detail": "", "hint": hint, "exit_code": code}
            print(json.dumps(failure))
        sys.stderr.write(f"{self.prog}: {message}\n  hint: {hint}\n")
        sys.exit(int(Exit.USAGE))


def _nearest(message: str) -> tuple[str, str]:
    """argparse's words for an unknown choice without the whole list, and which one was meant; any
    other message as it is, without a hint."""
    match = re.fullmatch(r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)", message)
    if match is None:
        return message, ""
    import difflib  # only where it is wanted: it costs start-up time

    names = [name for name in re.findall(r"'([^']*)'", match[3]) if name not in HIDDEN]
    near = difflib.get_close_matches(match[2], names, 1)
    what = "there is no command" if match[1] == "COMMAND" else f"{match[1]} has no choice"
    hint = f"did you mean '{near[0]}'?" if near else ""
    if not near and match[1] != "COMMAND":
        hint = f"one of {', '.join(names)}"
    return f"{what} '{one_line(match[2], 60)}'", hint


def add_command(
    commands: Any, name: str, handler: str, text: str, *, site: bool = False, hidden: bool = False,
    data: bool = True,
) -> Parser:  # fmt: skip
    """Add a command. `hidden`: no help and no shell tells of it. `data`: it can print an object."""
    extra = {} if hidden else {"help": text}
    parser: Parser = commands.add_parser(name, description=text, **extra)
    parser.set_defaults(handler=handler)
    if data:
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    if site:
        parser.add_argument("--site", type=path, metavar="FILE", help=SITE_HELP)
    return parser


def path(text: str) -> str:
    """The type of an argument that names a file: an empty one is refused, because it is a variable
    that is not set, and the default would be another file than the one that was meant."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path (a variable that is not set?)")
    return text


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)


def add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=VALUE", help=INPUT_HELP
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """What every command that starts a run takes."""
    add_input(parser)
    parser.add_argument("--step", action="store_true", help="pause before every step")
    parser.add_argument("--detach", action="store_true", help="return as soon as it runs")
    add_unattended(parser)


def add_unattended(parser: argparse.ArgumentParser) -> None:
    """What a run takes for the time in which nobody is there."""
    parser.add_argument("--yes", action="store_true", help="approve whatever asks (recorded)")
    parser.add_argument(
        "--lease", metavar="TIME",
        help="bring the baseline back when nobody has been attached for TIME (30m; 0: never)",
    )  # fmt: skip
    parser.add_argument(
        "--override", action="append", default=[], metavar="RULE=WHY",
        help="run despite this lint error (recorded)",
    )  # fmt: skip
