"""`man`: the manual page, made from the records of the commands, so that it says what they take."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence

from console import VERSION
from console.common.errors import Exit
from console.common.output import EXIT_MEANING
from console.frontends.cli.commands import ABOUT, HEADINGS, ROOT
from console.frontends.cli.commands.help import Chain, usage_of
from console.frontends.cli.commands.record import Command

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
    out = [
        f'.TH OMNI-CONSOLE 1 "" "omni-console {VERSION}" "User Commands"',
        ".nh", ".ad l",  # a name that is to be typed is not hyphenated
        ".SH NAME", f"omni-console \\- {_text(ABOUT[0].lower() + ABOUT[1:-1])}",
        ".SH SYNOPSIS", ".B omni-console", _text(_usage((ROOT,)).partition(" ")[2]),
        ".SH DESCRIPTION", *map(_text, ROOT.text.splitlines()),
        *_entries(ROOT), *EVERYWHERE, ".SH COMMANDS",
    ]  # fmt: skip
    for heading, commands in HEADINGS.items():
        out.append(f".SS {_text(heading)}")
        for command in commands:
            out += _command((ROOT, command))
    codes = [(str(code), words) for code, words in EXIT_MEANING.items()]
    out += [".SH EXIT STATUS", *_pairs(codes)]
    out += [".SH FILES", *_pairs(FILES), ".SH ENVIRONMENT", *_pairs(ENVIRONMENT)]
    return out


def _command(chain: Chain) -> Iterator[str]:
    """A command that people use, and its parts."""
    command = chain[-1]
    if command.hidden:
        return
    yield ".TP"
    yield f".B {_text(_usage(chain))}"
    yield _text(command.text)
    more = [*_entries(command, but=("--json", "--site"))]
    if more:
        yield from (".RS", *more, ".RE")
    for part in command.parts:
        yield from _command((*chain, part))


def _usage(chain: Chain) -> str:
    """The usage in a line, without what all commands have."""
    names = [command.name for command in chain]
    return " ".join([*names, *(word for word in usage_of(chain) if word != "[-h]")])


def _entries(command: Command, but: Sequence[str] = ()) -> Iterator[str]:
    """Every argument of a command with its description; none for those of all commands."""
    for argument in command.flat:
        if argument.is_shown and argument.names[0] not in but:
            names = ", ".join(argument.names) if argument.is_option else ""
            yield from _pairs([(f"{names} {argument.value}".strip(), argument.help)])


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, words in pairs:
        yield from (".TP", f".B {_text(name)}", _text(words))


def _text(words: str) -> str:
    """Words as roff takes them: a hyphen is one that can be copied, and no line is a request."""
    plain = words.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
