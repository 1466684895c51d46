"""RAM of services between two seconds: real processes, and a made-up control group."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import process
from console.host.cgroup import Cgroup
from console.recovery.guard.config import Limit
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.quick import KEPT, NEAR_POLL_S, REST_S, Members, Quick, level_of
from console.recovery.guard.observe.service_memory import ServiceMemoryCollector
from console.recovery.guard.observe.slow_io_child import Groups
from console.recovery.guard.observe.snapshot import FASTEST
from tests.guard.conftest import put
from tests.waiting import some, until

MIB = 1 << 20
ID = "ab" * 32
TAKES = """
import os, sys
kept = []
for line in sys.stdin:
    kept.append(bytearray(b"x" * (int(line) << 20)))
    print("has", flush=True)
"""
FORKS = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


class Hog:
    """A process in a session of its own that takes as many MiB as the test asks for."""

    def __init__(self, *argv: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", *(argv or (TAKES,))], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        start = process.start_time(self.child.pid) or 0
        self.target = Target("process", "cand", pid=self.child.pid, start=start)

    def take(self, mib: int) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{mib}\n".encode())
        self.child.stdin.flush()
        assert self.child.stdout.readline() == b"has\n"

    def close(self) -> None:
        os.killpg(self.child.pid, 9)
        self.child.wait(60)
        for pipe in (self.child.stdin, self.child.stdout):
            some(pipe).close()


@pytest.fixture
def hog(request: pytest.FixtureRequest) -> Iterator[Hog]:
    one = Hog(*getattr(request, "param", ()))
    yield one
    one.close()


@pytest.fixture
def quick() -> Iterator[Quick]:
    one = Quick()
    yield one
    one.close()


def limit(above: float, of: str = "cand") -> Limit:
    return Limit("service.ram_used", above=above, of=of)


def is_over(quick: Quick, at: float) -> bool:
    """Whether a target is over its limit at this tick."""
    quick.tick(at)
    return bool(quick.loads)


def test_a_process_that_passes_its_limit_is_seen_in_that_tick(hog: Hog, quick: Quick) -> None:
    hog.take(1)
    quick.watch((limit(200 * MIB),), (hog.target,), {})
    assert not is_over(quick, 1.0)
    hog.take(100)
    assert not is_over(quick, 1.05)
    assert quick.near
    hog.take(150)
    assert is_over(quick, 1.1)
    load = quick.loads["process", "cand"]
    assert load.ram is not None
    assert 250 * MIB < load.ram < 290 * MIB
    assert quick.held(hog.target) == (load.at, load.ram) == (1.1, load.ram)
    points = quick.points(limit(1), "cand")
    assert [at for at, _ in points] == [1.0, 1.05, 1.1]
    assert points[1][1] - points[0][1] == pytest.approx(100 * MIB, rel=0.1)


def test_the_pace(hog: Hog, quick: Quick) -> None:
    assert quick.wait_s(0.25) == 0.25
    quick.watch((limit(8_000_000_000),), (hog.target,), {})
    assert quick.wait_s(0.25) == REST_S, "nothing was read yet"
    quick.tick(0.9)
    assert quick.wait_s(1.0) == pytest.approx(8e9 / FASTEST, rel=0.05), "it is far off"
    assert quick.wait_s(0.15) == 0.15
    quick.watch((limit(300 * MIB),), (hog.target,), {})
    quick.tick(1.0)
    assert quick.wait_s(0.25) == REST_S
    assert quick.wait_s(0.02) == 0.02
    hog.take(100)
    quick.tick(1.1)
    assert quick.wait_s(0.25) == NEAR_POLL_S
    for at in range(2, KEPT + 9):
        quick.tick(at)
    assert quick.wait_s(0.25) == REST_S, "it holds much, and takes no more"
    assert len(quick.points(limit(1), "cand")) == KEPT


@pytest.mark.parametrize("hog", [(FORKS, TAKES)], indirect=True)
def test_what_a_child_takes_counts_once_it_is_named(hog: Hog, quick: Quick) -> None:
    hog.take(100)
    (child,) = [p for p in process.members(*pair(hog)) if p.pid != hog.child.pid]
    quick.watch((limit(80 * MIB),), (hog.target,), {})
    assert not is_over(quick, 1.0)
    quick.update(hog.child.pid, (child.pid, hog.child.pid), 120 * MIB, 2)
    assert is_over(quick, 1.1)
    quick.update(hog.child.pid, (child.pid, os.getpid()), 120 * MIB, 1)
    held = quick.held(hog.target) or (0.0, 0)
    assert is_over(quick, 1.2)
    assert 0 < (quick.held(hog.target) or held)[1] <= held[1], "somebody else's is not read"


def pair(hog: Hog) -> tuple[int, int]:
    return hog.target.pid, hog.target.start


def test_members_that_are_not_named_are_taken_as_they_were(hog: Hog) -> None:
    hog.take(10)
    members = Members(hog.target)
    own = some(members.guess())
    members.update((hog.target.pid,), own + 500 * MIB, 40)
    assert members.guess() == pytest.approx(own + 500 * MIB, abs=MIB)
    members.update((hog.target.pid,), own + 500 * MIB, 40)
    assert members.guess() == pytest.approx(own + 500 * MIB, abs=MIB), "told the same again"
    members.update((hog.target.pid,), own + 300 * MIB, 1, 300 * MIB)
    assert members.guess() == pytest.approx(own + 300 * MIB, abs=MIB), "shared memory counts"
    members.close()


def test_one_that_is_gone_is_not_known_and_leaves_nothing_open() -> None:
    before = os.listdir("/proc/self/fd")
    hog, quick = Hog(), Quick()
    quick.watch((limit(1),), (hog.target,), {})
    assert is_over(quick, 1.0)
    hog.close()
    until(lambda: process.stat(hog.child.pid) is None, "it is gone")
    quick.tick(1.1)
    assert quick.loads == {}
    assert not is_over(quick, 1.2)
    quick.watch((limit(1),), (), {})
    assert os.listdir("/proc/self/fd") == before


def test_only_who_has_a_limit_is_read(hog: Hog, quick: Quick) -> None:
    other = Target("process", "other", pid=1, start=1)
    assert level_of(hog.target, (limit(9), limit(5, ""), limit(1, "other"))) == 5
    assert level_of(other, (limit(9), Limit("service.ram_used", below=1))) is None
    quick.watch((limit(9),), (other,), {})
    assert not is_over(quick, 1.0)
    assert quick.held(other) is None


def box(root: Path, current: int, cache: int) -> None:
    put(root, "box/memory.current", f"{current * MIB}\n")
    put(root, "box/memory.stat", f"anon 1\nactive_file 0\ninactive_file {cache * MIB}\n")
    put(root, "box/memory.events", "oom_kill 0\n")


def test_a_container_whose_page_cache_grows_is_not_over(tmp_path: Path, quick: Quick) -> None:
    box(tmp_path, 100, 50)
    inode = (tmp_path / "box").stat().st_ino
    target = Target("container", "cand", ID, (Cgroup(str(tmp_path / "box"), inode, ""),))
    slow = ServiceMemoryCollector()
    slow.watch((target,))
    quick.watch((limit(200 * MIB),), (target,), slow.groups)
    assert not is_over(quick, 1.0), "its cache is not known yet"
    slow.loads(1.0)
    assert not is_over(quick, 1.05)
    box(tmp_path, 400, 350)
    assert not is_over(quick, 1.1), "350 of 400 MiB are cache"
    box(tmp_path, 600, 350)
    assert is_over(quick, 1.15)
    load = quick.loads["container", "cand"]
    assert (load.ram, load.at, load.oom) == (250 * MIB, 1.15, 0)
    slow.close()


SHARES = """
import mmap, os, time
kept = mmap.mmap(-1, 64 << 20)
kept.write(bytes(64 << 20))
if os.fork() == 0:
    sum(kept[::4096])
os.write(1, b"shares\\n")
time.sleep(600)
"""


@pytest.mark.parametrize("hog", [(SHARES,)], indirect=True)
def test_shared_memory_counts_once_for_all_who_share_it(hog: Hog) -> None:
    assert [some(hog.child.stdout).readline() for _ in "ab"] == [b"shares\n"] * 2
    (group,) = Groups([(*pair(hog), ())])()
    assert group["pids"] == 2
    assert 64 * MIB <= group["shared"] < 66 * MIB
    assert 64 * MIB < group["ram"] < 128 * MIB
