"""A real run whose candidate takes the machine's memory: it is killed and the baseline is back,
while operator and console notice nothing but the message. `heavy.py` has more."""

from __future__ import annotations

import signal

import pytest

from console.host import process
from tests.guard.yard import memory
from tests.guard.yard.scene import Scene
from tests.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.alone]

SLACK, ECHO_S = 2 * memory.GIB, 10.0
"""Bounds for a machine that others use; `make yard` and the benchmark measure how soon it is."""
RATE = memory.GIB // 2


def test_a_host_process_is_killed_and_the_baseline_serves(scene: Scene) -> None:
    scene.guarded()
    scene.run()
    found = scene.ended(slack=SLACK, echo_s=ECHO_S)
    assert "RAM" in str(found["reason"]), found
    assert not scene.world.pids("process")


def test_without_console_and_runner(scene: Scene) -> None:
    """Both are killed while the hog grows: only sentinel and standby are left."""
    scene.guarded(rate=RATE)
    scene.run()
    until(lambda: scene.world.pids("process"), "the hog is up")
    scene.terminal.child.send_signal(signal.SIGKILL)
    for runner in scene.world.pids("runner"):  # on a slow machine the rollback is faster
        process.send(*runner, signal.SIGKILL)
    scene.ended(terminal=False, slack=SLACK, echo_s=ECHO_S)
    assert not process.alive(*scene.before)
