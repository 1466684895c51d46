"""`--help` and the manual page: under headings, whole, and nothing of what no person types."""

import argparse
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.cli import main
from console.frontends.cli.commands import HEADINGS, HIDDEN, ROOT, defaults, shown
from console.frontends.cli.commands.help import Chain, _folded, laid_out, print_help
from console.frontends.cli.parser import Parser, parser_for
from console.frontends.cli.shell.manual import page

COMMANDS = Path(__file__).parents[2] / "docs/reference/commands.md"
Capture = pytest.CaptureFixture[str]


def helped(capsys: Capture, *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*argv, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_every_command_stands_under_one_heading(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = helped(capsys).splitlines()
    for heading, commands in HEADINGS.items():
        names = [command.name for command in commands if not command.hidden]
        at = lines.index(f"{heading}:") + 1
        assert [line.split()[0] for line in lines[at : at + len(names)]] == names
        assert lines[at + len(names)] == ""


def test_what_no_person_types_is_nowhere(capsys: Capture) -> None:
    told = helped(capsys) + helped(capsys, "completion") + "\n".join(page())
    for argv in (["zzzz"], ["completion", "zzzz"]):
        with pytest.raises(SystemExit):
            main(argv)
        told += capsys.readouterr().err
    assert "there is no command 'zzzz'" in told
    for name in HIDDEN:
        assert f"'{name}'" not in told
        assert f"\n  {name} " not in told
        assert f"omni\\-console {name}" not in told


def chains(chain: Chain = (ROOT,)) -> Iterator[Chain]:
    """The program, every command and every part of one, each with what it is a part of."""
    yield chain
    for part in chain[-1].parts:
        yield from chains((*chain, part))


def words_of(chain: Chain) -> list[str]:
    return [command.name for command in chain[1:]]


def parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from parsers(part)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="its argparse lays some lines out anew")
@pytest.mark.parametrize("width", [20, 40, 58, 78, 98, 1 << 20])
def test_help_has_the_form_of_argparse(width: int) -> None:
    """The lists of the program and of `check` have titles that argparse would not give them."""
    for parser in parsers(parser_for([])):
        command = parser.chain[-1]
        if command is ROOT or command.parts_title:
            continue
        parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, width=width
        )
        parser.epilog = command.epilog
        expected = argparse.ArgumentParser.format_help(parser)
        assert laid_out(parser.chain, width) == expected, words_of(parser.chain)


def test_words_are_folded_as_textwrap_does() -> None:
    texts = {
        words
        for chain in chains()
        for words in (chain[-1].listed, *(one.help for one in chain[-1].flat if one.is_shown))
        if words
    }
    assert len(texts) > 200
    for words in (*texts, "an on-line x-y, -w, --flag-name, re-entrant a-b", "x" * 50):
        for width in (11, 17, 30, 54, 76):
            assert _folded(words, width) == textwrap.wrap(words, width), (words, width)


def test_help_of_a_command_is_that_of_the_parser(capsys: Capture) -> None:
    """The process prints it without a parser, which prints the same where there are other words."""
    for chain in chains():
        words = words_of(chain)
        for asked in ("-h", "--help"):
            assert print_help([*words, asked])
            printed = capsys.readouterr().out
            assert printed == helped(capsys, *words)
    for words in ([], ["run"], ["nope", "--help"], ["--site", "x", "--help"], ["run", "x", "-h"]):
        assert not print_help(words)
    assert capsys.readouterr().out == ""


def test_a_command_alone_is_what_the_parser_makes_of_it() -> None:
    called = 0
    for chain in chains():
        if usual := defaults(chain):
            called += 1
            assert usual == vars(parser_for(words_of(chain)).parse_args(words_of(chain)))
        elif chain[-1].handler:
            with pytest.raises(SystemExit):
                parser_for(words_of(chain)).parse_args(words_of(chain))
    assert called > 30


def test_the_parser_of_one_command_is_that_of_all() -> None:
    """Only the command that is meant has a parser made for it."""

    def takes(parser: Parser) -> list[str]:
        return [repr(action) for part in parsers(parser) for action in part._actions[:-1]]

    every = {parser.prog: takes(parser) for parser in parsers(parser_for([]))}
    for command in shown():
        _, own, *_ = parsers(parser_for([command.name, "x"]))
        assert takes(own) == every[own.prog]


def test_help_is_as_wide_as_there_is_room(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = helped(capsys, "run")
    assert max(map(len, whole.splitlines())) > 120, "a pipe gets whole lines"
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, helped(capsys, "run").splitlines())) <= 60
    assert len(helped(capsys, "run").splitlines()) > len(whole.splitlines())


def test_the_manual_page_has_every_command_and_option(capsys: Capture) -> None:
    assert main(["man"]) == 0
    text = capsys.readouterr().out.replace("\\-", "-")
    for command in shown():
        assert f".B omni-console {command.name}" in text
        assert command.text in text
    assert "SUPPRESS" not in text
    for part in ("--rehearse", ".SH EXIT STATUS", "/etc/omni-console/site.yaml", "--prefer"):
        assert part in text


def test_the_page_of_commands_has_every_one() -> None:
    text = COMMANDS.read_text("utf-8")
    missing = [command.name for command in shown() if not re.search(rf"`{command.name}[` ]", text)]
    assert missing == []


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_the_manual_page_is_read_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings=w", "-l", "-"], input="\n".join(page()).encode(), capture_output=True,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"bring the baseline back, now; nothing is deleted" in done.stdout
