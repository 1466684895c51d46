"""How long a command takes to say anything: help against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Row, in_turns

PAIRS = 15
BAR = Bar(most_ratio=8.0)
SHOWN = 6


def run(say: Callable[[str], None]) -> list[Row]:
    """Both helps against `python3 -c pass`, bytecode cached on both sides."""
    with surroundings.workplace() as place:
        env = surroundings.environment(place)
        ours = surroundings.command()
        python = sys.executable
        argvs = {
            "--help": [*ours, "--help"],
            "rollback --help": [*ours, "rollback", "--help"],
            "python3 -c pass": [python, "-c", "pass"],
            "python3 -S -c pass": [python, "-S", "-c", "pass"],
        }
        ways = {name: surroundings.timed(argv, env) for name, argv in argvs.items()}
        times = in_turns(ways, PAIRS, warm_up=2)
        say(f"imports that cost most in --help: {_costliest([*ours, '--help'], env)}")
    empty, siteless = times["python3 -c pass"], times["python3 -S -c pass"]
    rows = []
    for name in ("--help", "rollback --help"):
        rows.append(Row(f"omni-console {name}", "python3 -c pass", times[name], empty, BAR))
        # What site-packages put into every start-up flatters the ratio above; not this one.
        rows.append(Row(f"omni-console {name}", "python3 -S -c pass", times[name], siteless))
    return rows


def _costliest(argv: list[str], env: dict[str, str]) -> str:
    """The imports with most time of their own children included, by -X importtime."""
    if Path(argv[0]).name == "omni-console":
        argv = [sys.executable, *argv]
    done = subprocess.run(
        [argv[0], "-X", "importtime", *argv[1:]],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[tuple[int, str]] = []
    for line in done.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[1].strip().isdigit():
            found.append((int(parts[1]), parts[2].strip()))
    most = sorted(found, reverse=True)[:SHOWN]
    return ", ".join(f"{name} {micros / 1e3:.1f} ms" for micros, name in most)
