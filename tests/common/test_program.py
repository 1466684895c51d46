"""How the process `omni-console` ends."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

BUSY = """
import sys, threading
from pydantic import BaseModel, field_validator

class Model(BaseModel):
    rows: list[int]

    @field_validator("rows")
    @classmethod
    def look(cls, rows):
        for _ in range(2000):
            pass
        return rows

def work():
    while True:
        Model(rows=[1] * 10)

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
from console import cli

sys.argv[0] = "omni-console"
cli.program()
"""
"""The command, with threads that are always in the middle of a library written in Rust."""


def console(*args: str, stdout: int | None = subprocess.PIPE) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", BUSY, *args],
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("args", "code"), [(["keys"], 0), (["show", "no-such-run"], 2)])
def test_threads_inside_a_library_do_not_crash_the_end(args: list[str], code: int) -> None:
    done = console(*args)
    assert done.returncode == code, done.stderr
    assert done.stdout or done.stderr


def test_what_could_not_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = console("keys", stdout=full.fileno())
    assert done.returncode == 1
    assert "No space left" in done.stderr


INTERRUPTED = """
import os, signal, sys

MODULE = sys.argv.pop(1)

class Interrupt:
    \"\"\"Presses Ctrl-C when a module is about to be loaded.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
import console.__main__

sys.argv[0] = "omni-console"
console.__main__.program()
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("console.common.errors", -signal.SIGINT),
        ("console.frontends.cli.parser", 130),
        ("console.frontends.cli.lessons", 130),
        ("ruamel.yaml", 130),
    ],
)
def test_ctrl_c_leaves_no_traceback_at_any_moment(module: str, code: int) -> None:
    """Before the command has begun the signal itself ends the program, which a shell calls 130."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, "lessons", "gpu"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, "")


HELP = """
import sys

sys.argv[0] = "omni-console"
from console.__main__ import program

program()
if sys.stderr is not None:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], ["rollback", "--help"], ["check", "-h"]])
def test_help_loads_next_to_nothing(words: list[str]) -> None:
    """What takes as long to load as the interpreter takes to start is no part of it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", HELP, *words], capture_output=True, text=True, timeout=60,
        env=env | {"COLUMNS": "100"}, check=True,
    )  # fmt: skip
    loaded = set(done.stderr.split())
    assert "console.frontends.cli.commands.help" in loaded
    heavy = {"argparse", "re", "enum", "typing", "threading", "signal", "collections", "gettext"}
    assert loaded & (heavy | {"console.cli", "console.common.text", "textwrap"}) == set()
    assert done.stdout.startswith("usage: omni-console ")


def test_help_for_a_reader_that_is_gone_or_knows_only_ascii() -> None:
    command = [sys.executable, "-c", HELP, "--help"]
    for redirected in (">&-", ">/dev/full", "| true"):
        line = f"{shlex.join(command)} {redirected}"
        done = subprocess.run(["sh", "-c", f"{line} 2>/dev/null"], timeout=60, check=False)
        assert done.returncode == 0, redirected
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, timeout=60, env=env, check=True)
    assert b"tell a run: next, auto, pause, approve, ?" in done.stdout


def test_ctrl_c_while_help_is_loaded_leaves_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "console.frontends.cli.commands.help", "--help"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
