"""A sentinel in a control group with a limit checks the machine, and that limit beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.recovery.guard.config import defaults
from console.recovery.guard.decide.policy import NEAR_POLL_S, Policy
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.collect import REST_POLL_S, rest_s
from console.recovery.guard.observe.snapshot import Memory, Snapshot
from tests.guard.conftest import put
from tests.guard.judging import PLENTY, SWAP, TOTAL
from tests.guard.made_site import GIB, Site

LIMIT = 32
PLACE = "sys/fs/cgroup/user.slice/"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    """A machine of 64 GiB, of which this user may use 32."""
    machine = tmp_path / "machine"
    put(machine, "proc/self/mountinfo", "29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    put(machine, "proc/self/cgroup", "0::/user.slice\n")
    put(machine, PLACE + "memory.max", f"{LIMIT * GIB}\n")
    put(machine, PLACE + "memory.stat", "anon 1\ninactive_file 0\n")
    left(machine, 30)
    site = Site(tmp_path)
    site.pass_time(1)
    yield site
    site.close()


def left(machine: Path, gib: float) -> None:
    put(machine, PLACE + "memory.current", f"{int((LIMIT - gib) * GIB)}\n")


def test_the_machine_is_judged(one: Site) -> None:
    child = one.load()
    one.pass_time(1)
    assert one.page()["memory"]["total"] == 64 * GIB
    assert one.page()["base"]["available"] == 40 * GIB
    one.available(2.5)
    one.pass_time(0.2)
    assert child.poll() is None
    one.available(1.9)
    one.pass_time(0.1)
    assert child.wait(60) == -9
    one.pass_time(1)
    assert one.breach()["limit"]["below"] == defaults(64 * GIB, 0).floor


def test_a_host_process_is_stopped_before_the_bound_is_full(one: Site) -> None:
    child = one.load()
    left(one.machine, 2.1)
    one.pass_time(1)
    assert child.poll() is None
    assert one.page()["level"] == "warn"
    left(one.machine, 1.9)
    one.pass_time(0.1)
    assert child.wait(60) == -9
    one.pass_time(1)
    assert one.breach()["limit"]["metric"] == "host.bound_left"


def test_a_container_lives_outside_the_bound(one: Site) -> None:
    left(one.machine, 0.1)
    watch = one.deps.collector
    watch.tell(one.config, one.deps.ring.path, (Target("container", "big", "a" * 64),))
    memory = watch.memory()
    assert memory is not None
    assert memory.bound is None


def test_near_the_bound_it_is_read_more_often() -> None:
    policy = Policy((), defaults(TOTAL, SWAP, 64 * GIB))
    memory = Memory(0.0, TOTAL, PLENTY, SWAP, 0, 0, 0, 60 * GIB)
    for tick in range(40):
        memory = memory._replace(at=100 + tick / 20)
        found = policy.decide(Snapshot(memory.at, memory, beat_at=memory.at))
    assert (found.level, rest_s(policy, memory, found)) == ("ok", REST_POLL_S)
    near = memory._replace(at=102.1, bound=3 * GIB)
    found = policy.decide(Snapshot(near.at, near, beat_at=near.at))
    assert found.wait_s == rest_s(policy, near, found) == NEAR_POLL_S
