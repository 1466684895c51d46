"""Real memory pressure, and what the recorder keeps of it."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from console.host import process
from console.recovery.guard.record.read import open_newest
from tests.guard.yard import memory
from tests.guard.yard.scene import Scene
from tests.waiting import some, until

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


# -- the recorder ------------------------------------------------------------------------------


SLOW = 400 * memory.MIB
LOST_S = 15.0
"""The copy is written once a second to a disk that others use; two minutes are recorded."""


def test_the_last_seconds_outlive_everybody(scene: Scene) -> None:
    scene.guarded(rate=SLOW)
    scene.run()
    world = scene.world
    path = world.run.guard / "breach.json"
    until(path.exists, f"a breach: {world.words}", 60.0)

    def nobody_is_left() -> bool:
        # sentinel, runner, standby, its children, the console, the baseline
        for pid, start in world.mine():
            with suppress(OSError):
                process.send(pid, start, signal.SIGKILL)
        return not world.mine()

    until(nobody_is_left, "nobody is left")
    shared = some(open_newest(world.run.path))
    until(lambda: not shared.alive, "its process is gone, too")
    last = shared.fast(20.0)
    assert min(one.available for one in last) < scene.limit
    _shown(scene)
    assert Path("/dev/shm") in shared.path.parents
    # a reboot removes what was in memory: the copy on disk is used, a second or two older
    os.unlink(shared.path)
    copied = some(open_newest(world.run.path))
    assert last[-1].mono - copied.fast()[-1].mono < LOST_S
    _shown(scene)


def _shown(scene: Scene) -> None:
    done = scene.world.console("recorder")
    assert done.code == 0, done
    assert "RAM left" in done.out
    assert "cause" in done.out, done
    told = json.loads(scene.world.console("recorder", "--json").out)
    assert told, told
