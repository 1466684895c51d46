"""The machine, from a /proc and /sys of the test's own, and what a sentinel could get on it."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from console.checks.doctor import guard
from console.checks.doctor.facts import Level, each
from console.common import paths
from console.host import process
from tests.disk import nearly_full
from tests.doctor.conftest import PROCESS, Look, history
from tests.watch import guard_ring


def test_disks_that_have_room(tmp_path: Path, look: Look) -> None:
    assert look("machine.runs")[0].level in (Level.OK, Level.WARNING)
    (found,) = look("machine.home")
    assert found.detail.startswith(f"{tmp_path}/home: ")
    assert list((tmp_path / "home").iterdir()) == []
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize(
    ("free", "runs", "home"),
    [(2 << 30, Level.OK, Level.OK), (1 << 29, Level.WARNING, Level.WARNING),
     (1 << 20, Level.FAILED, Level.WARNING)],
)  # fmt: skip
def test_disks_that_are_full(
    monkeypatch: pytest.MonkeyPatch, look: Look, free: int, runs: Level, home: Level
) -> None:
    real = os.statvfs("/")
    fields = [*real]
    fields[1], fields[2], fields[4] = 4096, 1 << 30, free // 4096  # f_frsize, f_blocks, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    assert [look("machine.runs")[0].level, look("machine.home")[0].level] == [runs, home]


def test_a_state_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    """A file where the directory should be: not even root writes there."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    for check in ("machine.runs", "console.state"):
        (found,) = look(check)
        assert (found.level, "cannot be written" in found.detail) == (Level.FAILED, True)


def test_a_disk_that_takes_files_but_no_bytes(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    """As a full one does, or one whose quota is used up, whatever it says of free space."""
    directory = paths.state_dir()
    directory.mkdir(parents=True, exist_ok=True)
    nearly_full(monkeypatch, 1000)
    for check in ("machine.runs", "console.state"):
        (found,) = look(check)
        assert (found.level, "No space left on device" in found.detail) == (Level.FAILED, True)
    assert list(directory.iterdir()) == []


def test_directories_of_models(tmp_path: Path, look: Look) -> None:
    (tmp_path / "m").mkdir()
    body = "baseline: {process: {argv: [x]}, url: 'http://127.0.0.1:9', models: [m/a, m/b, n/c]}\n"
    found = look("machine.models", "schema: omni.site/v1\nname: ws\n" + body)
    assert [one.detail.partition(":")[0] for one in found] == [str(tmp_path / "m")]
    assert look("machine.models", PROCESS) == []


@pytest.mark.parametrize(
    ("check", "code", "level"),
    [("machine.oom", 0, Level.OK), ("machine.oom", 1, Level.NOTE),
     ("guard.score", 0, Level.OK), ("guard.score", 2, Level.WARNING)],
)  # fmt: skip
def test_a_score_of_the_oom_killer_is_tried_by_a_child(
    path_of: Callable[[str, str], Path], look: Look, check: str, code: int, level: Level
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    path_of("sh", f"exit {code}")
    (found,) = look(check)
    assert found.level is level
    assert Path("/proc/self/oom_score_adj").read_text() == before


def test_a_path_that_hangs_does_not_hide_the_others() -> None:
    gate = threading.Event()
    done = threading.Event()

    def call(path: str) -> str:
        if path == "dead":
            gate.wait(60)
            done.set()
        return path.upper()

    try:
        assert each("x", ["a", "dead", "b"], call, 1.0) == [("a", "A"), ("dead", None), ("b", "B")]
    finally:
        gate.set()
        assert done.wait(60)


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
