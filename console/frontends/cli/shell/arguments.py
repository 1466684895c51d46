"""The arguments of `completion` and `man`."""

from __future__ import annotations

import argparse
from typing import Any

from console.frontends.cli.parser import INTERNAL, Parser, add_command

SHELLS = {
    "bash": "eval \"$(omni-console completion bash)\" in ~/.bashrc",
    "zsh": "omni-console completion zsh >~/.zfunc/_omni-console, with ~/.zfunc in fpath",
    "fish": "omni-console completion fish >~/.config/fish/completions/omni-console.fish",
}  # fmt: skip
"""How each shell is given its script."""


def shell_commands(commands: Any) -> None:
    completion = commands.add_parser(
        "completion", help="the script with which a shell completes commands, runs and playbooks",
        description="a script for the Tab key: commands, options, runs, playbooks, inputs, lessons",
        epilog="\n".join(["To install it:", *(f"  {hint}" for hint in SHELLS.values())]),
    )  # fmt: skip
    shells = completion.add_subparsers(required=True, metavar="SHELL", parser_class=Parser)
    for name in SHELLS:
        parser = add_command(
            shells, name, "shell.completion:script", f"the script for {name}", data=False
        )
        parser.set_defaults(shell=name)
    values = add_command(
        shells, "values", "shell.values:values", f"{INTERNAL} what may stand there", hidden=True,
        data=False,
    )  # fmt: skip
    values.add_argument("kind")
    values.add_argument("words", nargs=argparse.REMAINDER)
    add_command(
        commands, "man", "shell.manual:manual",
        "the manual page: omni-console man | man -l -", data=False,
    )  # fmt: skip
