"""What it takes to ask a build's own `llama-fit-params` about a model, beyond reading its header.

Each question is asked in a process of its own, as `check gguf` and `check checkpoint` ask it, with
the real program (`tests.testbed.fit_params`). What the architecture alone takes of a remote file is
in `gguf`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from tests.benchmarks.figures import Figure, Measured
from tests.benchmarks.surroundings import ROOT, CannotRun
from tests.testbed.cache import Unavailable
from tests.testbed.fit_params import ensure_fit_params

ROUNDS = 5
MODELS = ("Llama-3.1-8B", "gpt-oss-120b", "DeepSeek-R1")
MAX_S, MAX_MB = 1.0, 100.0

OURS = """
import json, os, resource, sys, time
from console.checks.preflight.architecture import memory
from console.checks.preflight.architecture.on_host import HostProgram
from console.models.sizing.loader_plan import LlamaPlan
from tests.sizing.known import KNOWN
program, name = sys.argv[1:]
header, plan = KNOWN[name](), LlamaPlan(ctx=32768, parallel=1)
build = HostProgram((program,), {"LD_LIBRARY_PATH": os.path.dirname(program)})
peak = lambda who: resource.getrusage(who).ru_maxrss * 1024
before, begun = peak(resource.RUSAGE_SELF), time.perf_counter()
said = memory.ask(build, program, header, plan)
took = time.perf_counter() - begun
grown = peak(resource.RUSAGE_SELF) - before
answered = isinstance(said, memory.Reserved)
print(json.dumps([took, grown, peak(resource.RUSAGE_CHILDREN), answered or said]))
"""


def run(say: Callable[[str], None]) -> list[Measured]:
    """Wall time of the question, and the peak of the console's growth and the program together."""
    try:
        program = ensure_fit_params()
    except Unavailable as error:
        raise CannotRun(error.reason) from error
    rows: list[Measured] = []
    for name in MODELS:
        seconds, megabytes = [], []
        for _ in range(ROUNDS):
            took, grown, child = _asked(program, name)
            seconds.append(took)
            megabytes.append((grown + child) / 1e6)
        say(f"{name}: the console grows, and the program takes, {max(megabytes):.0f} MB at most")
        rows += [
            Figure(f"{name}, the question", "s", seconds, MAX_S),
            Figure(f"{name}, memory beyond the header", "MB", megabytes, MAX_MB, "worst"),
        ]
    return rows


def _asked(program: str, name: str) -> tuple[float, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", OURS, program, name], cwd=ROOT, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    took, grown, child, said = json.loads(done.stdout)
    assert said is True, (name, said)
    return took, grown, child
