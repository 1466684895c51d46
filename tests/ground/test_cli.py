"""The command line: only what may be meant is built, and nothing is missed by that."""

from __future__ import annotations

import json

import pytest

from console.cli import main
from console.common.errors import Exit
from console.frontends.cli import arguments


def test_each_command_is_in_the_group_that_makes_it() -> None:
    for make, names in arguments.GROUPS:
        commands = arguments.Parser().add_subparsers(parser_class=arguments.Parser)
        make(commands)
        assert set(commands.choices) == names


def test_bad_usage_is_one_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "--json", "--nope"])
    assert ended.value.code == Exit.USAGE
    assert json.loads(capsys.readouterr().out)["exit_code"] == Exit.USAGE
