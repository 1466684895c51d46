"""GPU memory through the real pynvml, on scripted cards; every case in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.nvml import (
    ERROR_LIB_RM_VERSION_MISMATCH,
    ERROR_UNKNOWN,
    MIB,
    RTX_5090,
    RTX_PRO_6000,
    Card,
    Nvml,
)


def ask(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "console.host.gpu.nvml"]
    return subprocess.run(
        argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


def cards(
    nvml: Nvml, tmp_path: Path, *which: Card, **more: Any
) -> subprocess.CompletedProcess[str]:
    return ask(nvml.env(nvml.write(tmp_path / "script", which, **more)))


def test_two_cards(nvml: Nvml, tmp_path: Path) -> None:
    done = cards(nvml, tmp_path, RTX_PRO_6000, RTX_5090)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout) == {
        RTX_PRO_6000.uuid: {"used": 612 * MIB, "total": 97_887 * MIB},
        RTX_5090.uuid: {"used": 15 * MIB, "total": 32_607 * MIB},
    }


def test_no_card_is_an_empty_answer(nvml: Nvml, tmp_path: Path) -> None:
    done = cards(nvml, tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, {})


@pytest.mark.parametrize(
    ("card", "word"),
    [
        (RTX_5090.but(mem_used=None, mem_total=None), "not supported"),
        (RTX_5090.but(mig=1), "mig mode"),
        (RTX_5090.but(fail={"nvmlDeviceGetMemoryInfo": ERROR_UNKNOWN}), "unknown error"),
    ],
)
def test_what_is_not_known_is_null_with_a_word(
    nvml: Nvml, tmp_path: Path, card: Card, word: str
) -> None:
    done = cards(nvml, tmp_path, RTX_PRO_6000, card)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer[RTX_PRO_6000.uuid]["used"] == 612 * MIB
    assert answer[card.uuid]["used"] is None
    assert answer[card.uuid]["total"] is None
    assert word in answer[card.uuid]["why"].lower()


def test_a_lost_card_is_a_failure_that_leaves_the_others(nvml: Nvml, tmp_path: Path) -> None:
    done = cards(nvml, tmp_path, RTX_PRO_6000, RTX_5090.but(lost=True))
    assert done.returncode == 3
    assert "lost" in done.stderr
    assert done.stderr.count("\n") == 1
    answer = json.loads(done.stdout)
    assert answer.pop(RTX_PRO_6000.uuid) == {"used": 612 * MIB, "total": 97_887 * MIB}
    (lost,) = answer.values()
    assert lost["used"] is None


def test_a_driver_that_does_not_fit_its_library(nvml: Nvml, tmp_path: Path) -> None:
    done = cards(
        nvml, tmp_path, RTX_5090, fail={"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "GPU driver" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver() -> None:
    done = ask({})
    assert (done.returncode, done.stdout) == (3, "")
    assert "GPU driver" in done.stderr
    assert done.stderr.count("\n") == 1
