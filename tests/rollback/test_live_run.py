"""A candidate of another console's run, whose site has this site's name: its runner is alive."""

import subprocess
import sys

import pytest

from console.runtime.spec import RUN_LABEL
from tests.rollback.test_container_baseline import yard
from tests.rollback.test_ladder_engine import Yard

__all__ = ["yard"]
OTHER = "run-of-another-console"
WAITS = "import time; time.sleep(600)"


@pytest.mark.parametrize("alive", [True, False])
def test_it_ends_by_its_labels_only_once_its_runner_is_gone(yard: Yard, alive: bool) -> None:
    candidate = yard.candidate(**{RUN_LABEL: OTHER})
    argv = [sys.executable, "-c", WAITS, "runner", f"/elsewhere/runs/{OTHER}"]
    runner = subprocess.Popen(argv) if alive else None
    try:
        yard.roll_back()
    finally:
        if runner is not None:
            runner.kill()
            runner.wait()
    assert yard.up(candidate) is alive, yard.lines
    assert (f"it is of run {OTHER}, whose runner, pid " in str(yard.lines)) is alive
