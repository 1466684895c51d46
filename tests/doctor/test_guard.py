"""What a sentinel could get here, from a /proc and /sys of the test's own, and from real calls."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from console.checks.doctor import guard
from console.checks.doctor.facts import Facts, Level
from console.host import process
from tests.doctor.conftest import Look, tree
from tests.doctor.histories import history
from tests.viewer import guard_ring

ALL, NONE = "000001ffffffffff", "0" * 16
PRIVILEGES = [
    ("lock", ALL, 0), ("lock", NONE, 8 << 20), ("lock", NONE, -1),
    ("lock", NONE, 64 << 20), ("lock", NONE, (64 << 20) - 1),
    ("lock", "garbage", 0), ("priority", ALL, 0), ("priority", NONE, 40),
    ("priority", NONE, 0), ("priority", NONE, 30),
]  # fmt: skip
GROUPS: dict[str, dict[str, str]] = {
    "none": {}, "v1": {"sys__fs__cgroup__memory__tasks": ""},
    "v1, v2 beside it": {"sys__fs__cgroup__unified__cgroupDOTprocs": "",
                          "sys__fs__cgroup__unified__docker__cgroupDOTkill": ""},
    "v2, kill": {"sys__fs__cgroup__cgroupDOTcontrollers": "",
                  "sys__fs__cgroup__systemDOTslice__cgroupDOTkill": ""},
    "v2": {"sys__fs__cgroup__cgroupDOTcontrollers": ""},
}  # fmt: skip
PSI = "some avg10=0 total=5\nfull avg10=0 total=3\n"


def privileged(root: Path, capabilities: str) -> Facts:
    return tree(root, proc__self__status=f"Name:\tx\nCapEff:\t{capabilities}\n")


@pytest.mark.parametrize("allowed", [True, False])
def test_the_score_is_tried_by_a_child(
    look: Look, path_of: Callable[[str, str], Path], allowed: bool
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    path_of("sh", "exit 0" if allowed else "exit 2")
    (found,) = look("guard.score")
    assert found.level is (Level.OK if allowed else Level.WARNING)
    assert Path("/proc/self/oom_score_adj").read_text() == before


def test_a_call_says_what_the_kernel_says() -> None:
    assert guard.call(guard.PIDFD_OPEN) == errno.EINVAL
    assert guard.call(1 << 20) == errno.ENOSYS


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
