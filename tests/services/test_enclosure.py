"""Whoever a host process starts stays in its group, and ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.guard.kill import Killer
from console.guard.target import Deny, find_targets
from console.rollback import live
from console.rollback.live import Live
from console.services import cgroup, enclosure, process
from tests.run.e2e.world import until

ESCAPE = """
import os, sys, time
sys.stdin.readline()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.fixture
def escaping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that on a line starts one which shares nothing with it any more."""
    argv = [sys.executable, "-S", "-c", ESCAPE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True) as child:
        yield child
        start = process.start_time(child.pid) or 0
        enclosure.end(enclosure.of_process(child.pid, start), child.pid, start)
        child.kill()


def escaped(child: subprocess.Popen[bytes]) -> tuple[str, int, int]:
    """The group, and the pid and start time of the one who got away."""
    start = process.start_time(child.pid) or 0
    path = enclosure.enclose(child.pid, start)
    assert path, "root makes groups here"
    assert child.stdin is not None
    child.stdin.write(b"\n")
    child.stdin.flush()

    def away() -> list[int]:
        found = [pid for pid in cgroup.pids(path) if pid != child.pid]
        return [pid for pid in found if process.ancestry(pid).isdisjoint({child.pid})]

    (pid,) = until(away, "it is away")
    assert [one.pid for one in process.members(child.pid, start)] == [child.pid]
    return path, pid, process.start_time(pid) or 0


def gone(pid: int, start: int) -> bool:
    return not process.alive(pid, start)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a control group everywhere")
def test_the_end_of_a_process_is_the_end_of_all_it_started(
    escaping: subprocess.Popen[bytes],
) -> None:
    path, pid, start = escaped(escaping)
    escaping.kill()
    escaping.wait()
    assert enclosure.end(path, escaping.pid, int(path.rpartition(".")[2]), spared={pid}) == 0
    assert not gone(pid, start), "somebody in it is spared: it is left alone"
    assert enclosure.end(path, escaping.pid, int(path.rpartition(".")[2])) == 1
    until(lambda: gone(pid, start), "it is dead")
    until(lambda: not cgroup.pids(path), "the group is empty")
    enclosure.sweep()
    assert not Path(path).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a control group everywhere")
@pytest.mark.parametrize("leader", ["lives", "is gone"])
def test_a_guard_kills_who_got_away(
    escaping: subprocess.Popen[bytes], tmp_path: Path, leader: str
) -> None:
    path, pid, start = escaped(escaping)
    entry = Live("process", "cand", escaping.pid, int(path.rpartition(".")[2]), group=path)
    live.append(tmp_path / live.LIVE, entry)
    (read,) = live.read(tmp_path / live.LIVE)
    assert read == entry
    if leader == "is gone":
        escaping.kill()
        escaping.wait()
    deny = Deny()
    (target,) = find_targets([read], deny)
    killer = Killer("", deny, release=False)
    strike = killer.strike([target])
    until(lambda: strike.look() or strike.over, "all are dead")
    assert gone(pid, start)
    assert "cgroup.kill" in strike.killed[0].rungs
    strike.close()
    killer.close()


def test_only_a_child_is_moved() -> None:
    before = cgroup.paths_of("self")
    for pid in (os.getpid(), os.getppid(), 1):
        assert enclosure.enclose(pid, process.start_time(pid) or 0) == ""
    assert cgroup.paths_of("self") == before


def test_a_forged_group_is_nobodys() -> None:
    pid, start = os.getpid(), process.start_time(os.getpid()) or 0
    for path in (
        "",
        "/",
        "/sys/fs/cgroup",
        f"/tmp/omni.{pid}.{start}",
        f"/sys/../omni.{pid}.{start}",
    ):
        assert enclosure.of(path, pid, start) is None
        assert enclosure.end(path, pid, start) == 0
