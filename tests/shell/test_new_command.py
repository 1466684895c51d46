"""A new command is a record, a module and a row of the docs: no other place has to know it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
    """The program with one more command, and its tests; what does not change is linked."""
    tree = tmp_path_factory.mktemp("tree")
    changed = {"", "console", "console/frontends", "docs", "docs/reference"}
    for place in sorted(changed):
        (tree / place).mkdir(exist_ok=True)
        for entry in (ROOT / place).iterdir():
            path = entry.relative_to(ROOT).as_posix()
            if path not in changed and not entry.name.startswith(".") and "pycache" not in path:
                (tree / path).symlink_to(entry)
    rows, room = tree / "docs/reference/commands.md", tree / "console/frontends/cli"
    rows.unlink()
    rows.write_text((ROOT / "docs/reference/commands.md").read_text() + ROW)
    room.unlink()
    shutil.copytree(ROOT / "console/frontends/cli", room)
    (room / "shade.py").write_text(MODULE)
    records = room / "commands/machine.py"
    records.write_text(records.read_text().replace("COMMANDS = (\n", RECORD, 1))
    return tree


def python(tree: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    own = {"PYTHONPATH": str(tree), "HOME": str(tree), "COLUMNS": "100"}
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")} | own
    return subprocess.run(
        [sys.executable, *argv], cwd=tree, env=env, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip


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
