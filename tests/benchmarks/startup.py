"""How long a command takes to say anything: help against an interpreter that does nothing."""

import math
import sys
from collections.abc import Callable

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Row, in_turns

PAIRS = 15
MAX_RATIO = 8.0


def run(say: Callable[[str], None]) -> list[Row]:
    """Both helps against `python3 -c pass`, bytecode cached on both sides."""
    ours, python = surroundings.command(), sys.executable
    argvs = {
        "--help": [*ours, "--help"],
        "rollback --help": [*ours, "rollback", "--help"],
        "python3 -c pass": [python, "-c", "pass"],
        "python3 -S -c pass": [python, "-S", "-c", "pass"],
    }
    with surroundings.workplace() as place:
        env = surroundings.environment(place)
        ways = {name: surroundings.timed(argv, env) for name, argv in argvs.items()}
        times = in_turns(ways, PAIRS, warm_up=2)
    rows = []
    for name in ("--help", "rollback --help"):
        for peer, most in (("python3 -c pass", MAX_RATIO), ("python3 -S -c pass", math.inf)):
            rows.append(Row(f"omni-console {name}", peer, times[name], times[peer], most))
    return rows
