"""The command line: only what may be meant is built, and nothing is missed by that."""

from __future__ import annotations

from console import arguments


def test_each_command_is_in_the_group_that_makes_it() -> None:
    for make, names in arguments.GROUPS:
        commands = arguments.Parser().add_subparsers(parser_class=arguments.Parser)
        make(commands)
        assert set(commands.choices) == names
