"""A new command is a record, a module and a row of the docs: no other place has to know it."""

from pathlib import Path

import pytest

from tests.copied import changed, copied_tree, python

RECORD = """COMMANDS = (
    Command(
        "shade",
        "how much shade this machine has",
        "shade:shade",
        (JSON, option("--of", "SERVICE", "whose shade", default="all")),
        danger=LOOKS,
    ),
"""
MODULE = '''"""`shade`: how much shade this machine has."""


def shade(args):
    print(f"shade of {args.of}, json {args.json}")
    return 4
'''
ROW = "| `shade` | how much shade this machine has |\n"
HOLDS = (
    "tests/shell/test_help.py",
    "tests/shell/test_completion.py::test_the_script_is_printed_and_offers_nothing_internal",
    "tests/lessons/test_command.py::test_an_export_says_of_every_command_whether_it_is_safe",
    "tests/canary/test_commands.py::test_every_call_is_one_that_its_command_takes",
)
"""Tests that look at every command."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with one more command, and its tests."""
    page = "docs/reference/commands.md"
    return copied_tree(tmp_path_factory.mktemp("tree"), {
        "console/frontends/cli/shade.py": MODULE,
        **changed("console/frontends/cli/commands/machine.py", "COMMANDS = (\n", RECORD),
        page: Path(page).read_text("utf-8") + ROW,
    })  # fmt: skip


def printed(tree: Path, *words: str) -> str:
    done = python(tree, "-m", "console", *words)
    assert (done.returncode, done.stderr) == (0, ""), words
    return done.stdout


def test_it_is_run_and_everything_that_lists_commands_has_it(tree: Path) -> None:
    done = python(tree, "-m", "console", "shade", "--of", "a")
    assert (done.returncode, done.stdout) == (4, "shade of a, json False\n"), done.stderr
    assert python(tree, "-m", "console", "shade").stdout == "shade of all, json False\n"
    machine = printed(tree, "--help").partition("\nMachine:\n")[2]
    assert machine.startswith("  shade        how much shade this machine has\n  doctor ")
    help_text = printed(tree, "shade", "--help")
    assert help_text.startswith("usage: omni-console shade [-h] [--json] [--of SERVICE]\n")
    script = printed(tree, "completion", "bash")
    assert "_omni_console_shade___of_COMPGEN=_omni_services" in script
    assert "_omni_console_shade_option_strings=(" in script
    assert ".B omni\\-console shade [\\-\\-json] [\\-\\-of SERVICE]" in printed(tree, "man")
    assert ROW in printed(tree, "lessons", "--export", "-")
    assert "did you mean 'shade'?" in python(tree, "-m", "console", "shad").stderr


def test_what_holds_for_every_command_holds_for_it(tree: Path) -> None:
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not full", *HOLDS)
    assert done.returncode == 0, done.stdout + done.stderr
