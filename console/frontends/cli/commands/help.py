"""`--help`, printed from the records of the commands: in the form of argparse, but without loading
it, so that the list of commands is there at once.
"""

import os
import sys

from console.common.output import UNLIMITED, columns
from console.frontends.cli.commands import HEADINGS, ROOT, chain_of
from console.frontends.cli.commands.record import Argument, Command, OneOf

FLAGS = ("-h", "--help")
HELP = Argument(*FLAGS, action="help", help="show this help message and exit")
MAX_WIDTH = 100
"""The widest help on a terminal."""
MAX_COLUMN = 24
"""Where what an argument does begins at the latest."""
MIN_COLUMNS = 11
"""The narrowest column of words."""

Chain = tuple[Command, ...]
Row = tuple[int, str, str]
"""How far it is indented, what is typed, and what that does."""


def print_help(words: list[str]) -> bool:
    """Print the help that a command line asks for with its last word; False where other words than
    names of commands stand before that, which the parser reads."""
    chain = chain_of(words[:-1]) if words[-1:] and words[-1] in FLAGS else ()
    if not chain:
        return False
    if sys.stdout is None:  # closed by who started it
        return True
    try:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        sys.stdout.write(help_of(chain))
        sys.stdout.flush()
    except OSError:  # the reader went away: nothing is left to be written at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return True


def help_of(chain: Chain) -> str:
    """The help of the last command of a chain, as wide as standard output allows."""
    width = columns(sys.stdout)
    return laid_out(chain, width if width == UNLIMITED else min(width, MAX_WIDTH) - 2)


def laid_out(chain: Chain, width: int) -> str:
    command = chain[-1]
    sections = _sections(command)
    longest = max(len(typed) for _, rows in sections for _, typed, _ in rows)
    column = min(longest + 4, MAX_COLUMN, max(width - 20, 4))
    blocks = [_usage(chain, width), command.text]
    for heading, rows in sections:
        lines = [line for row in rows for line in _entry(row, column, width)]
        blocks.append("\n".join([f"{heading}:", *lines]))
    return "\n\n".join([*blocks, *filter(None, [command.epilog.strip("\n")])]) + "\n"


def _sections(command: Command) -> list[tuple[str, list[Row]]]:
    """Each heading with its rows."""
    arguments = [argument for argument in command.flat if argument.is_shown]
    options = [_row(argument) for argument in (HELP, *arguments) if argument.is_option]
    if command is ROOT:
        listed = [(heading, _parts(commands, 2)) for heading, commands in HEADINGS.items()]
        return [*listed, ("Options", options)]
    places = [_row(argument) for argument in arguments if not argument.is_option]
    parts: list[Row] = []
    if command.parts:
        parts = [(2, command.parts_are, ""), *_parts(command.parts, 4)]
    if command.parts_title:
        titled = [("positional arguments", places), ("options", options),
                  (command.parts_title, parts)]  # fmt: skip
    else:
        titled = [("positional arguments", places + parts), ("options", options)]
    return [(heading, rows) for heading, rows in titled if rows]


def _parts(commands: tuple[Command, ...], indent: int) -> list[Row]:
    return [(indent, command.name, command.listed) for command in commands if not command.hidden]


def _row(argument: Argument) -> Row:
    value = _value(argument)
    if argument.is_option:
        typed = ", ".join(f"{name} {value}".rstrip() for name in argument.names)
    else:
        typed = argument.value
    return 2, typed, argument.help


def _entry(row: Row, column: int, width: int) -> list[str]:
    """The lines of one argument: beside what is typed, or below it where that is too long."""
    indent, typed, words = row
    lead = " " * indent + typed
    if not words:
        return [lead]
    lines = _folded(" ".join(words.split()), max(width - column, MIN_COLUMNS))
    if len(lead) <= column - 2:
        return [lead.ljust(column) + lines[0], *(" " * column + line for line in lines[1:])]
    return [lead, *(" " * column + line for line in lines)]


def _folded(words: str, width: int) -> list[str]:
    """The lines of a text, broken as textwrap does, which takes as long to load as all the rest."""
    lines = [""]
    for word in words.split():
        space = " " if lines[-1] else ""
        for piece in _pieces(word):
            if len(piece) > width:  # what nobody can break well
                import textwrap

                return textwrap.wrap(words, width)
            if len(lines[-1]) + len(space) + len(piece) <= width:
                lines[-1] += space + piece
            else:
                lines.append(piece)
            space = ""
    return lines


def _pieces(word: str) -> list[str]:
    """A word, broken behind each hyphen that joins two words of two letters or more."""
    pieces = [""]
    for at, sign in enumerate(word):
        pieces[-1] += sign
        if sign == "-" and word[max(0, at - 2) : at].isalpha() and at >= 2:
            follows = word[at + 1 : at + 3]
            if len(follows) == 2 and follows.isalpha():
                pieces.append("")
    return pieces


def usage_of(chain: Chain) -> list[str]:
    """The words of the usage, each of which stays on a line of its own accord: options first."""
    options, places = _usage_parts(chain[-1])
    return [*options, *places]


def _usage_parts(command: Command) -> tuple[list[str], list[str]]:
    options, places = ["[-h]"], []
    for entry in command.arguments:
        if isinstance(entry, OneOf):
            options.append(f"[{' | '.join(map(_typed, entry.arguments))}]")
        elif not entry.is_shown:
            continue
        elif not entry.is_option:
            places += _place(entry)
        elif entry.options.get("required"):
            options += [entry.names[0], _value(entry)]
        else:
            options.append(f"[{_typed(entry)}]")
    if command.parts:
        places += [command.parts_are, "..."]
    return options, places


def _typed(argument: Argument) -> str:
    return f"{argument.names[0]} {_value(argument)}".rstrip()


def _value(argument: Argument) -> str:
    """The value of an option, with whether it may be left out or repeated."""
    value = argument.value
    forms = {"?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]", "...": "..."}
    return forms.get(str(argument.options.get("nargs", "")), "{0}").format(value)


def _place(argument: Argument) -> list[str]:
    value = _value(argument)
    return value.split(" ", 1) if argument.options.get("nargs") == "+" else [value]


def _usage(chain: Chain, width: int) -> str:
    """The usage on one line, or wrapped between its words: first the options, then the rest."""
    lead, program = "usage: ", " ".join(command.name for command in chain)
    options, places = _usage_parts(chain[-1])
    whole = " ".join([lead + program, *options, *places])
    width = max(width, MIN_COLUMNS)
    if len(whole) <= width:
        return whole
    if len(lead) + len(program) <= 0.75 * width:
        indent = " " * (len(lead) + len(program) + 1)
        first, *more = _wrapped(options, indent, width)
        lines = [f"{lead}{program} {first[len(indent) :]}", *more]
        return "\n".join([*lines, *_wrapped(places, indent, width)])
    indent = " " * len(lead)
    lines = _wrapped([*options, *places], indent, width)
    if len(lines) > 1:
        lines = [*_wrapped(options, indent, width), *_wrapped(places, indent, width)]
    return "\n".join([lead + program, *lines])


def _wrapped(words: list[str], indent: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word)
    return lines
