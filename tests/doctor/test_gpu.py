"""Cards through the real pynvml on a scripted NVML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor.facts import Level
from tests.doctor.conftest import PROCESS, Look
from tests.testbed.nvml import (
    ERROR_LIB_RM_VERSION_MISMATCH,
    ERROR_UNKNOWN,
    RTX_5090,
    RTX_PRO_6000,
    Card,
    Nvml,
)

Script = Callable[..., None]
BOTH = f"gpus: [{{uuid: {RTX_PRO_6000.uuid}, name: RTX PRO 6000}}, {{uuid: {RTX_5090.uuid}}}]\n"


@pytest.fixture
def cards(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Cards that every child process sees from now on."""

    def script(*which: Card, **more: Any) -> None:
        env = nvml.env(nvml.write(tmp_path / "script", which, **more))
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    return script


def test_each_card_with_its_memory_and_its_name(cards: Script, look: Look) -> None:
    cards(RTX_PRO_6000, RTX_5090)
    one, other = look("gpu.cards", PROCESS + BOTH)
    assert (one.level, other.level) == (Level.OK, Level.OK)
    assert RTX_PRO_6000.uuid in one.detail
    assert "612.0 MiB of 95.6" in one.detail
    assert RTX_5090.uuid in other.detail
    assert "15.0 MiB of 31.8" in other.detail


def test_a_driver_that_does_not_fit(cards: Script, look: Look) -> None:
    cards(RTX_5090, fail={"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH})
    (found,) = look("gpu.cards")
    assert found.level is Level.FAILED
    assert "mismatch" in found.detail.lower()
    assert "reboot" in found.hint


def test_a_lost_card_fails_and_leaves_the_other(cards: Script, look: Look) -> None:
    cards(RTX_PRO_6000, RTX_5090.but(lost=True))
    found = look("gpu.cards", PROCESS + BOTH)
    assert [one.level for one in found] == [Level.OK, Level.FAILED]
    assert "lost" in found[1].detail
    (missing,) = look("gpu.named", PROCESS + BOTH)
    assert (missing.level, RTX_5090.uuid in missing.detail) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        ({"mig": 1}, Level.NOTE, "MIG mode"),
        ({"mem_used": None, "mem_total": None}, Level.NOTE, "not supported"),
        ({"fail": {"nvmlDeviceGetMemoryInfo": ERROR_UNKNOWN}}, Level.WARNING, "unknown error"),
    ],
)
def test_memory_that_is_not_known(
    cards: Script, look: Look, change: dict[str, Any], level: Level, word: str
) -> None:
    cards(RTX_5090.but(**change))
    (found,) = look("gpu.cards")
    assert (found.level, word.lower() in found.detail.lower()) == (level, True), found


@pytest.mark.usefixtures("impatient")
def test_a_driver_that_hangs_is_not_waited_for(cards: Script, look: Look) -> None:
    cards(RTX_5090, hang={"all": 60})
    (found,) = look("gpu.cards")
    assert (found.level, "within 0.5 s" in found.detail) == (Level.FAILED, True)
    assert "nvidia-smi" in found.hint


def test_cards_that_the_site_names(cards: Script, look: Look) -> None:
    cards(RTX_PRO_6000, RTX_5090)
    (found,) = look("gpu.named", PROCESS + BOTH)
    assert (found.level, "2" in found.detail) == (Level.OK, True)
    cards(RTX_PRO_6000)
    (found,) = look("gpu.named", PROCESS + BOTH)
    assert found.level is Level.FAILED
    assert (RTX_5090.uuid in found.detail, RTX_PRO_6000.uuid in found.hint) == (True, True)
    (found,) = look("gpu.named", PROCESS)
    assert found.level is Level.NOTE
    assert f"gpus: [{{uuid: {RTX_PRO_6000.uuid}}}]" in found.hint


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver_is_bad_only_where_the_site_names_cards(look: Look) -> None:
    (found,) = look("gpu.cards")
    assert (found.level, found.hint) == (Level.NOTE, "")
    assert "NVML" in found.detail
    assert look("gpu.named") == []
    (found,) = look("gpu.cards", PROCESS + BOTH)
    assert found.level is Level.FAILED
    (found,) = look("gpu.named", PROCESS + BOTH)
    assert found.level is Level.NOTE
