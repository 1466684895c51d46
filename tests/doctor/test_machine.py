"""The machine, read from a /proc and /sys of the test's own, and real directories."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from console.checks.doctor import machine
from console.checks.doctor.facts import Level, each
from console.host.machine import existing
from tests.doctor.conftest import PROCESS, Look

GIB = 1 << 20
"""A GiB in the kB of /proc/meminfo."""


def meminfo(**gib: int) -> str:
    return "".join(f"{name}: {value * GIB} kB\n" for name, value in gib.items())


def psi(full: str) -> str:
    rest = "avg60=0.00 avg300=0.00 total=1"
    return f"some avg10=80.00 {rest}\nfull avg10={full} {rest}\n"


NODE = "sys__devices__system__node__"
FIGURES: dict[str, tuple[str, dict[str, str]]] = {
    "memory": ("memory", {"proc__meminfo": meminfo(MemTotal=768, MemAvailable=640)}),
    "little memory": ("memory", {"proc__meminfo": meminfo(MemTotal=768, MemAvailable=30)}),
    "no memory": ("memory", {"proc__meminfo": "nonsense\nMemTotal: x kB\n"}),
    "no swap": ("swap", {"proc__meminfo": meminfo(SwapTotal=0, SwapFree=0)}),
    "swap": ("swap", {"proc__meminfo": meminfo(SwapTotal=64, SwapFree=60)}),
    "full swap": ("swap", {"proc__meminfo": meminfo(SwapTotal=64, SwapFree=4)}),
    "swap unknown": ("swap", {"proc__meminfo": ""}),
    "quiet": ("pressure", {"proc__pressure__memory": psi("0.00")}),
    "thrashing": ("pressure", {"proc__pressure__memory": psi("37.50")}),
    "no PSI": ("pressure", {}),
    "a node": ("numa", {f"{NODE}node0__cpulist": "0", f"{NODE}possible": "0"}),
    "nodes": ("numa", {f"{NODE}node{n}__cpulist": "0" for n in range(4)}),
    "no node": ("numa", {}),
}  # fmt: skip


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


def test_directories_of_models(tmp_path: Path, look: Look) -> None:
    (tmp_path / "m").mkdir()
    body = "baseline: {process: {argv: [x]}, url: 'http://127.0.0.1:9', models: [m/a, m/b, n/c]}\n"
    found = look("machine.models", "schema: omni.site/v1\nname: ws\n" + body)
    assert [one.detail.partition(":")[0] for one in found] == [str(tmp_path / "m")]
    assert look("machine.models", PROCESS) == []


@pytest.mark.parametrize("refuses", [True, False])
def test_the_score_of_the_oom_killer(
    path_of: Callable[[str, str], Path], look: Look, refuses: bool
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    path_of("sh", f"exit {int(refuses)}")
    (found,) = look("machine.oom")
    assert found.level is (Level.NOTE if refuses else Level.OK)
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


def test_the_nearest_directory_above(tmp_path: Path) -> None:
    assert existing(tmp_path / "a" / "b") == tmp_path
    assert existing(Path("/")) == Path("/")
    assert machine.refusal(tmp_path / "a" / "b") == ""
