"""`man`: the manual page, made from the parser of the commands, so that it says what they take."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence

from console import VERSION
from console.common.errors import EXIT_MEANING, Exit
from console.frontends.cli.arguments import ABOUT, by_heading, parser_for

EVERYWHERE = (
    ".PP",
    "With \\-\\-json a command prints one JSON object on standard output, and its progress on",
    "standard error; with \\-\\-site it reads that site file.",
)
FILES = (
    ("~/.config/omni-console/site.yaml", "this machine's baseline, guards and services"),
    ("/etc/omni-console/site.yaml", "the same for every user who has none"),
    ("~/.config/omni-console/playbooks/", "playbooks that can be run by name"),
    ("~/.local/state/omni-console/runs/", "a directory for each run: journal, logs, report"),
    ("~/.local/state/omni-console/rollback/", "scripts that need only a POSIX shell"),
)
ENVIRONMENT = (
    ("OMNI_SITE", "the site file, where no --site is given"),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "move ~/.config and ~/.local/state"),
    ("COLUMNS", "how wide lines may be; a pipe's are not wrapped without it"),
    ("NO_COLOR", "no colours in the screens"),
)


def manual(args: Namespace) -> int:
    print("\n".join(page()))
    return int(Exit.OK)


def page() -> list[str]:
    """The page in the roff of man(7)."""
    parser = parser_for([])
    out = [
        f'.TH OMNI-CONSOLE 1 "" "omni-console {VERSION}" "User Commands"',
        ".nh", ".ad l",  # a name that is to be typed is not hyphenated
        ".SH NAME", f"omni-console \\- {_text(ABOUT[0].lower() + ABOUT[1:-1])}",
        ".SH SYNOPSIS", ".B omni-console", _text(_usage(parser).partition(" ")[2]),
        ".SH DESCRIPTION", *map(_text, str(parser.description).splitlines()),
        *_entries(parser), *EVERYWHERE, ".SH COMMANDS",
    ]  # fmt: skip
    parsers = _commands(parser)
    for heading, commands in by_heading(parser):
        out.append(f".SS {_text(heading)}")
        for command in commands:
            out += _command(parsers[command.dest], str(parsers[command.dest].description))
    codes = [(str(int(exit_code)), words) for exit_code, words in EXIT_MEANING.items()]
    out += [".SH EXIT STATUS", *_pairs(codes)]
    out += [".SH FILES", *_pairs(FILES), ".SH ENVIRONMENT", *_pairs(ENVIRONMENT)]
    return out


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a parser that people use, by their names."""
    return {
        command.dest: action.choices[command.dest]
        for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        for command in action._get_subactions()
    }  # fmt: skip


def _command(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_text(_usage(parser))}"
    yield _text(words)
    more = [*_entries(parser, but=("json", "site"))]
    if more:
        yield from (".RS", *more, ".RE")
    for subparser in _commands(parser).values():
        yield from _command(subparser, str(subparser.description))


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage in a line, without what all commands have."""
    usage = " ".join(parser.format_usage().split())
    return usage.removeprefix("usage: ").replace("[-h] ", "").replace(" [-h]", "")


def _entries(parser: argparse.ArgumentParser, but: Sequence[str] = ()) -> Iterator[str]:
    """Every argument of a parser with its description; none for those of all commands."""
    for action in parser._actions:
        if (
            isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
            or action.dest in but
            or action.help == argparse.SUPPRESS
        ):
            continue
        names = ", ".join(action.option_strings)
        value = action.metavar if action.nargs != 0 or not names else ""
        if value is None:
            value = (
                "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest
            )
        yield from _pairs([(f"{names} {value}".strip(), str(action.help))])


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, words in pairs:
        yield from (".TP", f".B {_text(name)}", _text(words))


def _text(words: str) -> str:
    """Words as roff takes them: a hyphen is one that can be copied, and no line is a request."""
    plain = words.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
