"""Whether a service's program starts at all, tried out while the baseline still serves.

A program is asked for its version, in the environment, directory and control group in which the
service would run. That loads no model, and shows what would else be found in the outage: a shared
library that is missing or of another version, an interpreter that is gone, a file system without
the right to execute.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from console.common.errors import ServiceError
from console.common.options.engines import OTHER, engine_of
from console.common.text import decode, one_line
from console.host import cgroup, children
from console.host.process import ProcessSpec, environment

LIMIT_S = 20.0
"""Seconds for a version: an engine in Python imports its libraries first. One that is slower is not
judged."""
NOT_RUN = (126, 127)
"""Exit codes of the dynamic linker, and of shells, for what could not be run."""


def trouble(runs: ProcessSpec) -> str:
    """Why the program of a known engine does not start here, in clean words; "" if it does, or if
    that cannot be tried: nobody knows what another program does when it is asked for its version.
    """
    engine = engine_of(runs.argv)
    if engine is None or engine is OTHER:
        return ""
    program = runs.argv[0]
    try:
        variables = environment(runs.env, "", within=runs.within)
        child = cgroup.popen(
            [program, "--version"], env=variables, cwd=runs.cwd or None,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"{one_line(program, 200)} cannot be run: {error.strerror}"
    except ServiceError as error:
        return str(error)
    try:
        _, output = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return ""
    finally:
        children.abandon(child)
    if child.returncode not in NOT_RUN and child.returncode >= 0:
        return ""
    lines = decode(output).strip().splitlines()
    how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
    words = one_line(lines[-1], 300) if lines else "without a word"
    return f"{one_line(Path(program).name, 80)} --version ends with {how}: {words}"
