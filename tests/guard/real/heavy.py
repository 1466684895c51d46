"""The rest of the pressure tests, which takes minutes: only `make yard` runs it."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.recovery.guard.config import Limit
from console.recovery.rollback.live import Live
from tests.guard.yard import hogs, memory
from tests.guard.yard.post import posted
from tests.guard.yard.scene import Scene, alloc, box, on_word
from tests.testbed.engine import Engine
from tests.waiting import until

SLOW = 200 * memory.MIB
BURNERS = 8
CHILDREN, PIDS = 300, 64
FILE = memory.GIB
SWAPPED = 512 * memory.MIB
ANYHOW = 2 * memory.GIB


@dataclass
class Boxes:
    """Candidates in containers of an engine for these tests alone."""

    scene: Scene
    engine: Engine
    pid: int

    def start(self, command: list[str], guards: Sequence[Any] = (), **more: Any) -> Path:
        """Start a candidate that waits for a file; returns that file."""
        scene, place = self.scene, self.scene.world.root / "place"
        place.mkdir()
        scene.world.env |= self.engine.env()
        hog = box(scene.world.cand_url, command, place, **more)
        scene.write(hog, guards, engine={"host": self.engine.host})
        scene.run()
        until(lambda: self.engine.run("ps", "-q").split(), f"it runs: {scene.world.words}", 60)
        return place / "go"

    def ended(self) -> dict[str, Any]:
        found = self.scene.ended()
        until(lambda: not self.engine.run("ps", "-q").split(), "no container runs")
        return found


@pytest.fixture
def boxes(scene: Scene, own: tuple[Engine, int]) -> Boxes:
    scene.guarded()
    return Boxes(scene, *own)


def test_with_the_engine_stopped(boxes: Boxes) -> None:
    word = boxes.start(on_word(alloc()))
    os.kill(boxes.pid, signal.SIGSTOP)
    try:
        word.touch()
        found = boxes.scene.breached()
        until(boxes.scene.world.serves, "the baseline serves without the engine", 60)
    finally:
        os.kill(boxes.pid, signal.SIGCONT)
    assert found["killed"], found
    boxes.ended()


def test_with_every_core_burning(scene: Scene) -> None:
    scene.guarded()
    with hogs.burning(BURNERS):
        scene.run()
        scene.ended()


def test_a_fork_bomb_in_a_container(boxes: Boxes) -> None:
    command = f"sh -c '/yard/hog fork {CHILDREN} & exec {alloc(rate=SLOW)}'"
    word = boxes.start(on_word(command), pids=PIDS)
    (container,) = boxes.engine.run("ps", "-q").split()
    word.touch()

    def processes() -> int:
        return len(boxes.engine.run("top", container).splitlines()) - 1

    until(lambda: processes() >= PIDS - 1, "it forks")
    assert processes() <= PIDS
    boxes.ended()


def test_a_slow_leak(scene: Scene) -> None:
    scene.guarded(rate=SLOW)
    scene.run()
    scene.ended()


def test_a_mapped_file_that_thrashes_inside_its_limit(boxes: Boxes) -> None:
    """There is enough RAM, but two readers wait for its pages all the time: only PSI shows it."""
    waiting = {"metric": "host.pressure_some", "above": "20%", "for": "500ms"}
    boxes.scene.limit = ANYHOW  # this test is not about RAM
    command = on_word("/yard/hog thrash /place/file 2")
    word = boxes.start(command, [waiting], limit="256MiB")
    with (word.parent / "file").open("wb") as file:
        for _ in range(FILE // memory.MIB):
            file.write(b"\1" * memory.MIB)
        file.flush()
        os.fsync(file.fileno())
        # pages that this process read are not charged to the container
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    word.touch()
    found = boxes.ended()
    assert "pressure" in str(found["limit"]), found["reason"]


def test_with_swap_on(scene: Scene, tmp_path: Path) -> None:
    with memory.swap_file(tmp_path):
        scene.guarded()
        scene.run()
        scene.ended()


def test_swap_that_grows(tmp_path: Path) -> None:
    """The limit on swap growth ends it, and nothing of the sentinel is ever swapped out."""
    grown = Limit("host.swap_growth", above=float(SWAPPED), source="yard")
    with (
        memory.swap_file(tmp_path),
        posted(tmp_path, grown) as post,
        hogs.waiting(["alloc", str(3 * memory.GIB // 2), "0"], ram=256 * memory.MIB) as hog,
    ):
        post.arm(Live("container", "cand", container=hog.cgroup.name))
        until(lambda: post.armed, f"armed: {post.status}")
        hog.go()
        found = post.breached()
        assert "swap" in found["reason"], found
        until(lambda: not hog.alive, "the hog is dead")
        status = Path(f"/proc/{post.pid}/status").read_text()
        assert "VmSwap:\t       0 kB" in status, status
