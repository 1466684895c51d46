"""What a sentinel could get here, from a /proc and /sys of the test's own, and from real calls."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from console.doctor import guard
from console.doctor.facts import Facts
from console.doctor.model import Level
from console.services import process
from tests.doctor.conftest import Look
from tests.doctor.histories import history
from tests.viewer import guard_ring

Machine = Callable[..., Facts]
ALL, NONE = "000001ffffffffff", "0" * 16


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Facts of a machine with these capabilities and files."""

    def make(capabilities: str = NONE, **files: str) -> Facts:
        root = tmp_path / "root"
        (root / "proc/self").mkdir(parents=True, exist_ok=True)
        (root / "proc/self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
        for name, text in files.items():
            path = root / name.replace("__", "/").replace("DOT", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Facts(root=root)

    return make


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Every resource limit is this."""

    def put(most: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda which: (most, most))

    return put


@pytest.mark.parametrize(
    ("capabilities", "most", "level", "said"),
    [
        (ALL, 0, Level.OK, "can lock its memory"),
        (NONE, 8 << 20, Level.WARNING, "8.0 MiB may be locked, 64.0 MiB are wanted"),
        (NONE, -1, Level.OK, "can lock"),
        (NONE, 64 << 20, Level.OK, "can lock"),
        ("garbage", 0, Level.WARNING, "0 B may be locked"),
    ],
)
def test_locking_memory(
    machine: Machine, limits: Callable[[int], None], look: Look,
    capabilities: str, most: int, level: Level, said: str,
) -> None:  # fmt: skip
    limits(most)
    (found,) = look("guard.lock", facts=machine(capabilities))
    assert (found.level, said in found.detail) == (level, True)
    assert ("LimitMEMLOCK=infinity" in found.hint) == (level is Level.WARNING)


@pytest.mark.parametrize(
    ("capabilities", "most", "level", "said"),
    [
        (ALL, 0, Level.OK, "nice -20"), (NONE, 40, Level.OK, "nice -20"),
        (NONE, 0, Level.WARNING, "at the priority of any program"),
        (NONE, 30, Level.WARNING, "at nice -10 at best"),
    ],
)  # fmt: skip
def test_priority(
    machine: Machine, limits: Callable[[int], None], look: Look,
    capabilities: str, most: int, level: Level, said: str,
) -> None:  # fmt: skip
    limits(most)
    (found,) = look("guard.priority", facts=machine(capabilities))
    assert (found.level, said in found.detail) == (level, True)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_score_is_tried_by_a_child(
    look: Look, path_of: Callable[[str, str], Path], allowed: bool
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    path_of("sh", "exit 0" if allowed else "exit 2")
    (found,) = look("guard.score")
    assert found.level is (Level.OK if allowed else Level.WARNING)
    assert Path("/proc/self/oom_score_adj").read_text() == before


@pytest.mark.parametrize("member", [True, False])
def test_signals(
    machine: Machine, look: Look, monkeypatch: pytest.MonkeyPatch, member: bool
) -> None:
    monkeypatch.setattr(guard, "in_docker_group", lambda: member)
    assert look("guard.signals", facts=machine(ALL))[0].level is Level.OK
    (found,) = look("guard.signals", facts=machine(NONE))
    assert found.level is Level.WARNING
    assert ("docker group only" in found.detail) == member
    assert "docs/root-helper.md" in found.hint
    monkeypatch.setattr("console.guard.helper_client.is_there", lambda: True)
    assert look("guard.signals", facts=machine(NONE))[0].level is Level.OK


@pytest.mark.parametrize(
    ("files", "level", "said"),
    [
        ({}, Level.WARNING, "no cgroup file system"),
        ({"sys__fs__cgroup__memory__tasks": ""}, Level.WARNING, "cgroup v1; no cgroup.kill"),
        (
            {"sys__fs__cgroup__unified__cgroupDOTprocs": "",
             "sys__fs__cgroup__unified__docker__cgroupDOTkill": ""},
            Level.OK, "cgroup v1, with an empty v2 tree beside it; cgroup.kill ends",
        ),
        (
            {"sys__fs__cgroup__cgroupDOTcontrollers": "",
             "sys__fs__cgroup__systemDOTslice__cgroupDOTkill": ""},
            Level.OK, "cgroup v2; cgroup.kill ends a container in one write",
        ),
        ({"sys__fs__cgroup__cgroupDOTcontrollers": ""}, Level.WARNING, "cgroup v2; no cgroup.kill"),
    ],
)  # fmt: skip
def test_control_groups(
    machine: Machine, look: Look, files: dict[str, str], level: Level, said: str
) -> None:
    (found,) = look("guard.cgroup", facts=machine(**files))
    assert (found.level, said in found.detail) == (level, True)


def test_a_group_that_this_login_may_not_kill(
    machine: Machine, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = machine(sys__fs__cgroup__cgroupDOTcontrollers="", sys__fs__cgroup__a__cgroupDOTkill="")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (found,) = look("guard.cgroup", facts=facts)
    assert (found.level, "cgroup.kill" in found.detail) == (Level.WARNING, True)


def test_calls_that_this_kernel_lacks(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "call", lambda number: errno.ENOSYS)
    mrelease, pidfd = look("guard.release")
    assert (mrelease.level, pidfd.level) == (Level.NOTE, Level.WARNING)


def test_a_call_says_what_the_kernel_says() -> None:
    assert guard.call(guard.PIDFD_OPEN) == errno.EINVAL
    assert guard.call(1 << 20) == errno.ENOSYS


@pytest.mark.parametrize(
    ("files", "level"),
    [
        ({"proc__pressure__memory": "some avg10=0 total=5\nfull avg10=0 total=3\n"}, Level.OK),
        ({}, Level.WARNING),
    ],
)
def test_pressure(machine: Machine, look: Look, files: dict[str, str], level: Level) -> None:
    (found,) = look("guard.pressure", facts=machine(**files))
    assert found.level is level


def test_a_run_that_broke_off_in_trouble(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look("guard.recording") == []
    run = history("20260101-a-1a2b", ("run.state", {"state": "running"}))
    assert look("guard.recording") == []
    with monkeypatch.context() as patch:
        patch.setattr(process, "boot_id", lambda: "before")
        guard_ring.record(run, until=guard_ring.KILL_S)
    (found,) = look("guard.recording")
    assert found.level is Level.WARNING
    assert "28.0 GiB" in found.detail
    assert "recorder 1a2b" in found.hint
    history("20260102-b", ("run.state", {"state": "succeeded"}))
    assert look("guard.recording") == []
