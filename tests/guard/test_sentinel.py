"""The real sentinel as a process: it kills a hog, and what is left after its own death."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.host import process
from console.recovery.guard.config import RING, Limit
from console.recovery.rollback.live import Live
from tests.guard.yard import post as yard
from tests.waiting import some, until

MIB = 1 << 20
TOO_MUCH = Limit("service.ram_used", above=200 * MIB, source="site.yaml")
HOG = """
import sys, time
step, steps, pause = (float(word) for word in sys.argv[1:])
kept = []
for _ in range(int(steps)):
    kept.append(bytearray(b"x" * int(step)))
    time.sleep(pause)
time.sleep(600)
"""


class Post(yard.Post):
    """A run directory without a standby, and the real sentinel of it."""

    def watch(self, *limits: Limit, **extra: Any) -> subprocess.Popen[bytes]:
        """Start a sentinel with these limits and wait until it says that it watches."""
        self.extra = extra
        self.write_config(*limits)
        return self.start()

    def hog(self, step: int = 16 * MIB, steps: int = 32, pause: float = 0.02) -> tuple[int, int]:
        """Start a process in a session of its own that takes `step` bytes at a time."""
        argv = [sys.executable, "-c", HOG, str(step), str(steps), str(pause)]
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        self.children.append(child)
        return child.pid, process.start_time(child.pid) or 0

    def ended(self, who: tuple[int, int]) -> int:
        return next(one for one in self.children if one.pid == who[0]).wait(60)


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    one = Post(tmp_path / f"run-{os.getpid()}-{tmp_path.name}", ())
    one.make_directories()
    yield one
    one.close()


def children(pid: int) -> dict[psutil.Process, str]:
    """Return the children of a process with their command lines; one that just died has none."""
    found = {}
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):
            found[child] = " ".join(child.cmdline())
    return found


def test_a_process_that_takes_too_much_is_killed(post: Post) -> None:
    sentinel = post.watch(TOO_MUCH)
    neighbour = post.hog(MIB, 1)
    hog = post.hog()
    post.arm(Live("process", "big", *hog))
    path = post.guard / "breach.json"
    until(path.exists)
    for _ in range(20):
        assert json.loads(path.read_text())["cause"] == "guard", "it is whole at any time"
    assert post.ended(hog) == -signal.SIGKILL
    found = until(
        lambda: found if (found := post.breach or {}).get("empty_s") is not None else None
    )
    assert found["limit"]["metric"] == "service.ram_used"
    assert [(one["who"], one["rung"]) for one in found["killed"]] == [(f"pid {hog[0]}", "signals")]
    assert found["limit"]["source"] == "site.yaml"
    assert len(found["window"]["fast"]) > 3
    # no rollback is triggered here: there is no standby, and the command finds no run to restore
    until(lambda: post.events("ladder"), "it is written")
    assert process.alive(*neighbour)
    assert sentinel.poll() is None
    assert [text.split(" ")[0] for text in post.events("armed")] == ["big"]
    assert post.events("breach") == [found["reason"]]


def test_what_it_says_of_itself(post: Post) -> None:
    sentinel = post.watch(disks=(str(post.run_dir),), lease_s=60)
    ready = some(post.ready)
    assert (ready["pid"], ready["start"]) == (sentinel.pid, process.start_time(sentinel.pid))
    assert {"kill path", "priority", "oom_score_adj", "memory"} <= ready["protections"].keys()
    page = until(lambda: post.status if post.status.get("disks") else None, "it is written")
    assert page["level"] in ("ok", "warn")
    assert page["protections"] == ready["protections"]
    assert page["missing"] == ready["missing"]
    assert {one["metric"] for one in page["limits"]} >= {"host.ram_available", "host.pressure"}
    assert page["memory"]["available"] <= page["memory"]["total"]
    recording = post.recording()
    assert recording.alive
    assert (recording.run_id, recording.pid) == (post.run_id, sentinel.pid)
    samples = until(lambda: s if len(s := recording.fast()) > 4 else None, "more is recorded")
    assert all(one.total == page["memory"]["total"] for one in samples)
    until(lambda: recording.slow(), "more is recorded")
    assert page["own"]["rss"] > MIB  # `make bench` measures the exact size


@pytest.mark.full
def test_after_its_death_the_recording_is_there(post: Post) -> None:
    sentinel = post.watch(TOO_MUCH)
    hog = post.hog()
    post.arm(Live("process", "big", *hog))
    assert post.ended(hog) == -signal.SIGKILL
    post.breached()
    left = children(sentinel.pid)
    newest = post.recording().fast(0)[0].mono
    sentinel.kill()
    sentinel.wait(60)
    shared = post.recording()
    assert (shared.path.parent, shared.alive) == (Path("/dev/shm"), False)
    assert shared.fast(0)[0].mono >= newest
    assert shared.events()[-1]["what"] in ("kill", "ladder", "disarmed", "ok", "warn")
    until(lambda: not any(one.is_running() for one in left), "its children have ended")
    shared.path.unlink()
    disk = post.recording()
    assert disk.path == post.guard / RING
    assert disk.fast(0)[0].mono >= newest
    assert [one["text"] for one in disk.events() if one["what"] == "breach"]


def test_told_to_quit_it_leaves_the_copy_on_disk_only(post: Post) -> None:
    sentinel = post.watch()
    left = children(sentinel.pid)
    assert left
    shared = post.recording().path
    post.tell(do="quit")
    assert sentinel.wait(60) == 0
    assert not shared.exists()
    until(lambda: not any(one.is_running() for one in left), "its children have ended")
    assert post.recording().path == post.guard / RING
    assert len(post.events("end")) == 1


def test_only_one_watches_a_run(post: Post) -> None:
    first = post.watch()
    before = post.words()
    assert post.spawn().wait(60) == 3
    assert post.words() != before
    assert first.poll() is None
    assert post.ready
    first.kill()
    first.wait(60)
    post.watch()


def test_a_terminal_that_goes_away_ends_nothing(post: Post) -> None:
    sentinel = post.watch()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        os.kill(sentinel.pid, number)
    before = post.recording().fast(0)[0].mono
    until(lambda: post.recording().fast(0)[0].mono > before + 0.2, "more is recorded")
    assert sentinel.poll() is None


def test_a_sheet_that_cannot_be_used(post: Post) -> None:
    (post.guard / "guard.json").write_text('{"schema": "omni.guard/v1"}')
    child = post.spawn()
    assert child.wait(60) == 2
    assert post.words()
    assert post.ready is None


def test_children_have_an_ordinary_priority(post: Post) -> None:
    sentinel = post.watch(gpus=("GPU-1",))
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def priorities() -> list[int]:
        with suppress(psutil.Error):  # the child that frees memory is as urgent as the sentinel
            found = children(sentinel.pid).items()
            return [child.nice() for child, words in found if "mrelease" not in words]
        return []

    until(lambda: priorities() == [own, own])
