"""Processor, memory limits and driver, as the verdicts of `check` will use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor.facts import Level
from tests.doctor.conftest import Look, tree
from tests.testbed.nvml import RTX_5090, Nvml

GIB = 1 << 30
MOUNT = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def test_the_processor_is_named_with_what_kernels_ask_for(tmp_path: Path, look: Look) -> None:
    cpu = "processor\t: 0\nmodel name\t: AMD Threadripper\nflags\t\t: avx2 avx512f\n"
    (found,) = look("machine.processor", facts=tree(tmp_path, proc__cpuinfo=cpu))
    assert found.level is Level.OK
    have, _, lacks = found.detail.partition("; ")
    assert ("AMD Threadripper: AVX2, AVX-512" in have, "AMX INT8" in lacks) == (True, True)


@pytest.mark.parametrize(
    ("used", "level", "left"), [(2, Level.NOTE, "6.0 GiB"), (8, Level.WARNING, "0 B")]
)
def test_a_limit_above_this_login_is_named(
    tmp_path: Path, look: Look, used: int, level: Level, left: str
) -> None:
    group = "sys__fs__cgroup__userDOTslice__"
    files = {
        "proc__self__mountinfo": MOUNT,
        "proc__self__cgroup": "0::/user.slice\n",
        f"{group}memoryDOTmax": f"{8 * GIB}\n",
        f"{group}memoryDOTcurrent": f"{used * GIB}\n",
        f"{group}memoryDOTstat": "inactive_file 0\nactive_file 0\n",
    }
    (found,) = look("machine.limits", facts=tree(tmp_path, **files))
    assert found.level is level
    assert f"user.slice leaves {left} of 8.0 GiB" in found.detail


def test_the_driver_and_what_each_card_can_compute(
    nvml: Nvml, tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: dict[str, Any] = nvml.env(nvml.write(tmp_path / "script", (RTX_5090,)))
    for name, value in script.items():
        monkeypatch.setenv(name, value)
    (found,) = look("gpu.driver")
    assert found.level is Level.OK
    assert "sm_120" in found.detail
    assert "CUDA up to" in found.detail


def test_without_a_driver_nothing_more_is_said(look: Look) -> None:
    assert not look("gpu.driver")
