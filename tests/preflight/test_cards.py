"""The cards through the real pynvml, on scripted ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from console.host.gpu.inventory import Cards, ask
from console.host.sample import Card
from tests.testbed import nvml as testbed
from tests.testbed.nvml import (
    ERROR_LIB_RM_VERSION_MISMATCH,
    MIB,
    RTX_5090,
    RTX_PRO_6000,
    Nvml,
    ensure_nvml,
)


def asked(
    nvml: Nvml, tmp_path: Path, *which: testbed.Card, seconds: float = 30, **more: Any
) -> Cards:
    env = nvml.env(nvml.write(tmp_path / "script", which, **more))
    return ask(seconds, {**os.environ, **env})


def test_two_cards_with_their_capability(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(nvml, tmp_path, RTX_PRO_6000, RTX_5090)
    assert (found.driver, found.cuda, found.words) == ("580.105.08", (13, 0), "")
    assert found.cards == (
        Card(RTX_PRO_6000.name, RTX_PRO_6000.uuid, 97_887 * MIB, 97_275 * MIB, (12, 0)),
        Card(RTX_5090.name, RTX_5090.uuid, 32_607 * MIB, 32_592 * MIB, (12, 0)),
    )


def test_what_a_card_does_not_say_is_none(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(
        nvml, tmp_path,
        RTX_5090.but(capability=None), RTX_5090.but(mem_total=None), RTX_5090.but(mig=1),
        RTX_5090.but(lost=True),
    )  # fmt: skip
    plain, without, parted, lost = found.cards
    assert (plain.compute, plain.total) == (None, 32_607 * MIB)
    assert (without.compute, without.total, without.free) == ((12, 0), None, None)
    assert (parted.compute, parted.total) == ((12, 0), None), "its memory is its instances'"
    assert (lost.uuid, lost.total, lost.compute) == ("index:3", None, None)


def test_a_driver_that_does_not_fit(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(
        nvml, tmp_path, RTX_5090, fail={"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    )
    assert found.cards == ()
    assert "mismatch" in found.words


def test_a_driver_that_hangs_is_left(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(nvml, tmp_path, RTX_5090, seconds=1.0, hang={"nvmlDeviceGetCount_v2": 60})
    assert (found.cards, "within 1.00 s" in found.words) == ((), True)


def test_an_old_driver_without_the_newer_calls(tmp_path: Path) -> None:
    old = ensure_nvml(without=["nvmlDeviceGetMemoryInfo_v2", "nvmlSystemGetCudaDriverVersion_v2"])
    found = asked(old, tmp_path, RTX_5090)
    assert found.cards[0].total == 32_607 * MIB
    assert found.words == ""


def test_an_answer_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "console.host.gpu.inventory.module_argv", lambda name: ("echo", '{"cards": 1}')
    )
    assert "cannot be read" in ask(10).words
    monkeypatch.setattr("console.host.gpu.inventory.module_argv", lambda name: ("/nowhere",))
    assert "cannot be asked" in ask(10).words


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver() -> None:
    assert "NVIDIA driver" in ask().words
