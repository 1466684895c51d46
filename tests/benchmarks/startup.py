"""How long a command takes to say anything: help against an interpreter that does nothing."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Row, in_turns

PAIRS = 15
MAX_RATIOS = {"--help": 2.0, "rollback --help": 1.6}
TERMINAL = {"COLUMNS": "100"}
"""As on a terminal, where long lines are folded."""


def run(say: Callable[[str], None]) -> list[Row]:
    """Both helps against `python3 -c pass`, bytecode cached on both sides."""
    ours, python = surroundings.command(), sys.executable
    if "import re\n" in Path(ours[0]).read_text():
        say("an older pip made the command, which loads `re`: make .venv anew")
    argvs = {
        **{name: [*ours, *name.split()] for name in MAX_RATIOS},
        "python3 -c pass": [python, "-c", "pass"],
        "python3 -S -c pass": [python, "-S", "-c", "pass"],
    }
    with surroundings.workplace() as place:
        env = surroundings.environment(place, **TERMINAL)
        ways = {name: surroundings.timed(argv, env) for name, argv in argvs.items()}
        times = in_turns(ways, PAIRS, warm_up=2)
    rows = []
    for name, max_ratio in MAX_RATIOS.items():
        for peer, most in (("python3 -c pass", max_ratio), ("python3 -S -c pass", math.inf)):
            rows.append(Row(f"omni-console {name}", peer, times[name], times[peer], most))
    return rows
