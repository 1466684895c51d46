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
from tests.doctor.conftest import Look, tree
from tests.doctor.histories import history
from tests.viewer import guard_ring

ALL, NONE = "000001ffffffffff", "0" * 16
OK, NOTE, WARNING = Level.OK, Level.NOTE, Level.WARNING
PRIVILEGES = [
    ("lock", ALL, 0, OK), ("lock", NONE, 8 << 20, WARNING), ("lock", NONE, -1, OK),
    ("lock", NONE, 64 << 20, OK), ("lock", NONE, (64 << 20) - 1, WARNING),
    ("lock", "garbage", 0, WARNING), ("priority", ALL, 0, OK), ("priority", NONE, 40, OK),
    ("priority", NONE, 0, WARNING), ("priority", NONE, 30, WARNING),
]  # fmt: skip
GROUPS: dict[str, tuple[dict[str, str], Level]] = {
    "none": ({}, WARNING), "v1": ({"sys__fs__cgroup__memory__tasks": ""}, WARNING),
    "v1, v2 beside it": ({"sys__fs__cgroup__unified__cgroupDOTprocs": "",
                          "sys__fs__cgroup__unified__docker__cgroupDOTkill": ""}, OK),
    "v2, kill": ({"sys__fs__cgroup__cgroupDOTcontrollers": "",
                  "sys__fs__cgroup__systemDOTslice__cgroupDOTkill": ""}, OK),
    "v2": ({"sys__fs__cgroup__cgroupDOTcontrollers": ""}, WARNING),
}  # fmt: skip
PSI = "some avg10=0 total=5\nfull avg10=0 total=3\n"


def privileged(root: Path, capabilities: str) -> Facts:
    return tree(root, proc__self__status=f"Name:\tx\nCapEff:\t{capabilities}\n")


def test_locking_memory_and_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    for check, capabilities, most, level in PRIVILEGES:
        monkeypatch.setattr(resource, "getrlimit", lambda which, most=most: (most, most))
        (found,) = look(f"guard.{check}", facts=privileged(tmp_path, capabilities))
        assert found.level is level, (check, capabilities, most)
        wanted = {"lock": "LimitMEMLOCK=infinity", "priority": "LimitNICE"}[check]
        assert (wanted in found.hint) == (level is WARNING)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_score_is_tried_by_a_child(
    look: Look, path_of: Callable[[str, str], Path], allowed: bool
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    path_of("sh", "exit 0" if allowed else "exit 2")
    (found,) = look("guard.score")
    assert found.level is (Level.OK if allowed else Level.WARNING)
    assert Path("/proc/self/oom_score_adj").read_text() == before


def test_signals(tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = "console.guard.helper_client.is_there"
    monkeypatch.setattr(helper, lambda: False)
    for member in (True, False):
        monkeypatch.setattr(guard, "in_docker_group", lambda member=member: member)
        assert look("guard.signals", facts=privileged(tmp_path, ALL))[0].level is OK
        (found,) = look("guard.signals", facts=privileged(tmp_path, NONE))
        assert (found.level, "docker group" in found.detail) == (WARNING, member)
    monkeypatch.setattr(helper, lambda: True)
    assert look("guard.signals", facts=privileged(tmp_path, NONE))[0].level is OK


def test_control_groups(tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (files, level) in GROUPS.items():
        (found,) = look("guard.cgroup", facts=tree(tmp_path / name, **files))
        assert found.level is level, name
    facts = tree(tmp_path / "v2, kill")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert look("guard.cgroup", facts=facts)[0].level is WARNING, "this login may not kill it"


def test_calls_that_this_kernel_lacks(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "call", lambda number: errno.ENOSYS)
    mrelease, pidfd = look("guard.release")
    assert (mrelease.level, pidfd.level) == (Level.NOTE, Level.WARNING)


def test_a_call_says_what_the_kernel_says() -> None:
    assert guard.call(guard.PIDFD_OPEN) == errno.EINVAL
    assert guard.call(1 << 20) == errno.ENOSYS


def test_pressure(tmp_path: Path, look: Look) -> None:
    assert look("guard.pressure", facts=tree(tmp_path / "none"))[0].level is WARNING
    facts = tree(tmp_path, proc__pressure__memory=PSI)
    assert look("guard.pressure", facts=facts)[0].level is OK


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
