"""The reading of each second: swap traffic and control groups, on made-up trees."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host.cgroup import Cgroup, inode_of
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.service_memory import (
    GONE,
    NO_MEMORY,
    NOT_YET,
    ServiceMemoryCollector,
)
from console.recovery.guard.observe.snapshot import Load, Swap
from tests.guard.conftest import put

ID = "c" * 64
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[ServiceMemoryCollector]:
    put(tmp_path, "proc/vmstat", "nr_free_pages 5\npswpin 100\npswpout 1000\n")
    one = ServiceMemoryCollector(tmp_path)
    yield one
    one.close()


def group(root: Path, version: int, name: str = "box") -> Target:
    """A container with 5000 bytes of its own, 7000 of page cache, 2 OOM kills, a limit."""
    files = {
        2: {
            "memory.current": "12000\n", "memory.max": "99999\n", "memory.swap.current": "4096\n",
            "memory.stat": "anon 4900\nactive_file 3000\ninactive_file 4000\n",
            "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n", "pids.current": "17\n",
        },
        1: {
            "memory.usage_in_bytes": "12000\n", "memory.limit_in_bytes": "99999\n",
            "memory.stat": "cache 1\ntotal_swap 4096\ntotal_inactive_file 4000\n"
            "total_active_file 3000\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        },
    }[version]  # fmt: skip
    for file, text in files.items():
        put(root, f"cg/{name}/{file}", text)
    path = str(root / "cg" / name)
    groups = [Cgroup(path, inode_of(path), "" if version == 2 else "cpu,memory")]
    if version == 1:
        put(root, f"cg/{name}-pids/pids.current", "17\n")
        pids = str(root / "cg" / f"{name}-pids")
        groups.append(Cgroup(pids, inode_of(pids), "pids"))
    return Target("container", "big", ID, tuple(groups))


@pytest.mark.parametrize(
    ("version", "file", "text"),
    [(2, "memory.events", "oom_kill 5\n"), (1, "memory.oom_control", "under_oom 0\noom_kill 5\n")],
)
def test_what_a_container_holds(
    slow: ServiceMemoryCollector, tmp_path: Path, version: int, file: str, text: str
) -> None:
    slow.watch([group(tmp_path, version)])
    seen = Load("big", "container", 5.0, 5000, 4096, 99999, oom=0, restarts=0, pids=17)
    assert slow.loads(5.0) == (seen,)
    put(tmp_path, f"cg/box/{file}", text)
    assert slow.loads(5.0)[0].oom == 3, "counted from the arming"


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n"])
def test_no_limit(slow: ServiceMemoryCollector, tmp_path: Path, limit: str) -> None:
    target = group(tmp_path, 2)
    put(tmp_path, "cg/box/memory.max", limit)
    slow.watch([target])
    assert slow.loads(1)[0].limit is None


def test_a_container_without_a_group_or_with_one_that_accounts_no_memory_says_so(
    slow: ServiceMemoryCollector, tmp_path: Path
) -> None:
    path = str(put(tmp_path, "cg/bare/cgroup.procs", "").parent)
    for groups, why in (((), NOT_YET), ((Cgroup(path, inode_of(path)),), NO_MEMORY)):
        slow.watch([Target("container", "big", ID, groups)])
        (load,) = slow.loads(1)
        assert (load.ram, load.why) == (None, why)


def test_a_group_that_answers_nothing_is_not_known(
    slow: ServiceMemoryCollector, tmp_path: Path
) -> None:
    slow.watch([group(tmp_path, 2)])
    for file in (tmp_path / "cg/box").iterdir():
        file.write_text("")
    assert slow.loads(1) == (Load("big", "container", 1, limit=99999, restarts=0, why=GONE),)


def test_another_group_under_the_same_id_is_a_restart(
    slow: ServiceMemoryCollector, tmp_path: Path
) -> None:
    first, second = group(tmp_path, 2), group(tmp_path, 2, "again")
    slow.watch([first])
    slow.watch([first])
    assert slow.loads(1)[0].restarts == 0
    slow.watch([second])
    assert slow.loads(1)[0].restarts == 1


def test_watching_leaves_no_descriptor_behind(slow: ServiceMemoryCollector, tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    first, second = group(tmp_path, 2), group(tmp_path, 1, "again")
    for _ in range(50):
        slow.watch([first])
        slow.watch([second])
        slow.loads(1)
    slow.watch([])
    assert slow.loads(1) == ()
    assert os.listdir("/proc/self/fd") == before


def test_swap_traffic(slow: ServiceMemoryCollector, tmp_path: Path) -> None:
    assert (slow.swap(1).in_rate, slow.swap(1).out_rate) == (None, None)
    put(tmp_path, "proc/vmstat", "nr_free_pages 5\npswpin 110\npswpout 1500\n")
    assert slow.swap(3) == Swap(3, 5 * PAGE, 250 * PAGE)


def test_a_table_that_gets_longer_before_the_two_is_read_to_them(
    slow: ServiceMemoryCollector, tmp_path: Path
) -> None:
    rows = "nr_free_pages 5\npswpin 110\npswpout 1500\n" + "x 1\n" * 4000
    put(tmp_path, "proc/vmstat", rows)
    slow.swap(1)
    put(tmp_path, "proc/vmstat", rows.replace("1500", "1502"))
    assert slow.swap(2).out_rate == 2 * PAGE
    put(tmp_path, "proc/vmstat", "y 1\n" * 2000 + rows.replace("1500", "1503"))
    assert slow.swap(3).out_rate == PAGE


@pytest.mark.parametrize("text", ["", "nr_free_pages 5\n", "\npswpin x\npswpout y\n"])
def test_swap_that_nothing_counts_is_not_known(
    slow: ServiceMemoryCollector, tmp_path: Path, text: str
) -> None:
    slow.swap(1)
    put(tmp_path, "proc/vmstat", text)
    assert slow.swap(2) == Swap(2, None, None)
    put(tmp_path, "proc/vmstat", "\npswpin 100\npswpout 1000\n")
    assert slow.swap(3).in_rate is None  # no rate spans a gap
    assert slow.swap(4).in_rate == 0
