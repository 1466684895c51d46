"""Every command in one record, under its heading: a module for each heading.

`--help`, the parser, completion, the manual page and the guide for agents are made of `COMMANDS`.
"""

from console import VERSION
from console.common.output import EXIT_MEANING
from console.frontends.cli.commands import (
    emergency,
    hosts,
    machine,
    models,
    running,
    seeing,
    setting_up,
)
from console.frontends.cli.commands.record import SUPPRESS, Argument, Command, option, switch
from console.frontends.cli.commands.shared import SITE_HELP

ABOUT = "Operator console for large language models on your own workstation."
HEADINGS = {
    "Run": running.COMMANDS,
    "See": seeing.COMMANDS,
    "Models": models.COMMANDS,
    "Machine": machine.COMMANDS,
    "Hosts": hosts.COMMANDS,
    "Emergency": emergency.COMMANDS,
    "Set-up": setting_up.COMMANDS,
}
"""The commands in the order of `--help`."""
COMMANDS = tuple(command for commands in HEADINGS.values() for command in commands)
ROOT = Command(
    "omni-console",
    f"{ABOUT}\nWithout a command it opens its screens.",
    "console:open_console",
    (
        Argument(
            "--version", action="version", version=f"omni-console {VERSION}",
            help="show program's version number and exit",
        ),
        option("--site", "FILE", SITE_HELP, dest="console_site", type="path"),
        switch(
            "--readonly", "open screens that only show, and change nothing",
            dest="console_readonly",
        ),
        switch("--rehearse", "open the screens on the rehearsal, not the site"),
    ),
    epilog="Exit codes:\n"
    + "".join(f"  {code} {meaning}\n" for code, meaning in EXIT_MEANING.items())
    + "\n`omni-console COMMAND --help` says more of a command, `omni-console man` everything on "
    "one page.",
    parts=COMMANDS,
    parts_are="COMMAND",
    values={"json": False, "readonly": False},
)  # fmt: skip
HIDDEN = frozenset(
    part.name for command in (ROOT, *COMMANDS) for part in command.parts if part.hidden
)
"""The names of what no person types."""


def shown() -> tuple[Command, ...]:
    """The commands that people use."""
    return tuple(command for command in COMMANDS if not command.hidden)


def chain_of(words: list[str]) -> tuple[Command, ...]:
    """The program, the command and the part that the words name; () where they name no command."""
    chain: tuple[Command, ...] = (ROOT,)
    for word in words:
        part = next((part for part in chain[-1].parts if part.name == word), None)
        if part is None:
            return ()
        chain = (*chain, part)
    return chain


def defaults(chain: tuple[Command, ...]) -> dict[str, object]:
    """What the handler of a command is given where nothing but its name stands in the command line;
    empty where more has to stand there."""
    values: dict[str, object] = {}
    if not chain or not chain[-1].handler:
        return values
    if any(argument.is_required for argument in chain[-1].flat):
        return values
    for command in chain:
        values |= {argument.field: argument.default for argument in command.flat
                   if argument.default != SUPPRESS}  # fmt: skip
        values |= {"handler": command.handler, "follows": command.follows, **command.values}
    return values
