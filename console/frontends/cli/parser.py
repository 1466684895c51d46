"""The argument parser, made of the records of the commands, and its words for bad usage."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from console.common.errors import Exit
from console.common.text import clean, one_line
from console.frontends.cli.commands import HIDDEN, ROOT, chain_of
from console.frontends.cli.commands.help import Chain, help_of
from console.frontends.cli.commands.record import SUPPRESS, Argument, Command, OneOf


class Parser(argparse.ArgumentParser):
    """argparse that says what to do next, and exits with this project's code for bad usage."""

    as_json = False
    chain: Chain = ()
    """The program, the command and its part that this parses the words of."""

    def __init__(self, **options: Any) -> None:
        # never prints: of a width that is not given it would load what measures terminals
        form = {"formatter_class": lambda prog: argparse.HelpFormatter(prog, width=80)}
        super().__init__(**{**form, **options})
        self.register("type", "path", path)

    @property
    def rest(self) -> str:
        """Where the words behind `--` go, whatever stands before it; "" for argparse's own way,
        which gives them to no positional argument once an option has followed the others."""
        return self.chain[-1].rest if self.chain else ""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        mark = words.index("--") if self.rest and "--" in words else len(words)
        parsed, unknown = super().parse_known_args(words[:mark], namespace)
        if mark < len(words):
            setattr(parsed, self.rest, [*getattr(parsed, self.rest), *words[mark + 1 :]])
        return parsed, unknown

    def format_help(self) -> str:
        return help_of(self.chain)

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


def parser_for(argv: Sequence[str]) -> Parser:
    """A parser with the command that `argv` begins with; with all of them where it begins with
    none, since making all takes a tenth of the time to the first frame."""
    Parser.as_json = "--json" in argv  # of the commands' own parsers too
    named = chain_of(list(argv[:1]))[1:]
    parser = Parser(prog=ROOT.name, description=ROOT.text)
    _fill(parser, (ROOT,), named or ROOT.parts)
    return parser


def _fill(parser: Parser, chain: Chain, parts: tuple[Command, ...]) -> None:
    """Give a parser the arguments of the last command of a chain, and these parts of it."""
    command = chain[-1]
    parser.chain = chain
    for entry in command.arguments:
        if isinstance(entry, OneOf):
            group = parser.add_mutually_exclusive_group()
            for argument in entry.arguments:
                _add(group, argument)
        else:
            _add(parser, entry)
    if command.handler:
        parser.set_defaults(handler=command.handler, follows=command.follows, **command.values)
    if not parts:
        return
    commands = parser.add_subparsers(
        prog=parser.prog, metavar=command.parts_are, required=not command.handler,
        parser_class=Parser,
    )  # fmt: skip
    for part in parts:
        listed: dict[str, Any] = {} if part.hidden else {"help": part.listed}
        of_part = commands.add_parser(part.name, description=part.text, **listed)
        _fill(of_part, (*chain, part), part.parts)


def _add(parser: argparse._ActionsContainer, argument: Argument) -> None:
    options: dict[str, Any] = {
        key: argparse.SUPPRESS if value == SUPPRESS else value  # it is known by its identity
        for key, value in argument.options.items()
    }
    parser.add_argument(*argument.names, **options)


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


def path(text: str) -> str:
    """The type of an argument that names a file: an empty one is refused, because it is a variable
    that is not set, and the default would be another file than the one that was meant."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path (a variable that is not set?)")
    return text
