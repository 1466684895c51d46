"""Clocks, power and heat through the real pynvml on scripted cards; a driver that hangs."""

import sys
from pathlib import Path
from typing import Any

import pytest

from console.host.gpu import clocks
from console.host.gpu.clocks import Looks, Watch
from tests.testbed import nvml as testbed
from tests.testbed.nvml import ERROR_LIB_RM_VERSION_MISMATCH, RTX_5090, RTX_PRO_6000, Nvml
from tests.waiting import until

PROGRAM = """
import pathlib, sys, types
from console.host.gpu import clocks
def marked(call):
    def marks(*arguments):
        pathlib.Path(sys.argv[1]).touch()
        return call(*arguments)
    return marks
if sys.argv[2] == "hangs":
    nvml = clocks.known.load()
    nvml.nvmlDeviceGetPowerUsage = marked(nvml.nvmlDeviceGetPowerUsage)
else:
    clocks.time = types.SimpleNamespace(sleep=marked(clocks.time.sleep))
clocks.main(float(sys.argv[3]))
"""
"""The watch, which leaves a mark behind its first look, or before the call that hangs."""


def watched(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *cards: testbed.Card,
    hangs: bool = False, **more: Any,
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """What a watch tells that has looked; or, where it `hangs`, that has begun to."""
    env = nvml.env(nvml.write(tmp_path / "script", cards, **more))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(clocks, "EVERY_S", 0.02)
    looked = tmp_path / "looked"
    argv = [sys.executable, "-c", PROGRAM, str(looked), "hangs" if hangs else "looks"]
    monkeypatch.setattr(clocks, "module_argv", lambda name: argv)
    watch = Watch()
    watch.start()
    until(looked.exists, "the first look at the cards")
    return watch.stop(60)


def test_two_cards(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = RTX_5090.but(clock=None, power=None, temp=88)
    found, words = watched(nvml, tmp_path, monkeypatch, RTX_PRO_6000, hot)
    assert words == ""
    card = found[RTX_PRO_6000.uuid]
    assert card["looks"] >= 1
    assert card["sm_mhz"] == {"min": 2400, "mean": 2400, "max": 2400}
    assert card["power_w"] == {"min": 20.0, "mean": 20.0, "max": 20.0}
    assert (card["power_limit_w"], card["name"], card["slowed"]) == (600.0, RTX_PRO_6000.name, {})
    other = found[hot.uuid]
    assert (other["sm_mhz"], other["power_w"]) == (None, None)
    assert other["temperature_c"]["max"] == 88


@pytest.mark.parametrize(
    ("cards", "fail", "reason"),
    [
        ((RTX_5090,), {"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}, "mismatch"),
        ((), {}, "lists none"),
    ],
)
def test_a_driver_that_tells_nothing(
    cards: tuple[testbed.Card, ...], fail: dict[str, int], reason: str,
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found, words = watched(nvml, tmp_path, monkeypatch, *cards, fail=fail)
    assert (found, reason in words) == ({}, True)


def test_a_driver_that_hangs_holds_nobody_up(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that answers does not ask NVML."""
    card = RTX_5090.but(hang={"nvmlDeviceGetPowerUsage": 600})
    found, words = watched(nvml, tmp_path, monkeypatch, card, hangs=True)
    assert (found, words) == ({}, Looks().words)


def test_the_watch_itself_starts_and_answers(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first look or after it."""
    for name, value in nvml.env(nvml.write(tmp_path / "script", ())).items():
        monkeypatch.setenv(name, value)
    watch = Watch()
    watch.start()
    found, words = watch.stop(60)
    assert (found, words in (Looks().words, "no NVIDIA card: the driver lists none")) == ({}, True)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("/nowhere",), "not asked"),
        (("echo", "no json"), "cannot be read"),
        (("echo", '{"cards": 1}'), "cannot be read"),
        (("sleep", "60"), "within 0.2 s"),
    ],
)
def test_a_child_that_does_not_answer(
    argv: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "module_argv", lambda name: argv)
    watch = Watch()
    watch.start()
    found, said = watch.stop(0.2 if "sleep" in argv else 60)
    assert (found, words in said) == ({}, True)
    assert "not asked" in watch.stop()[1]


def test_least_mean_and_most() -> None:
    looks = Looks()
    for mhz, slowed in ((2400.0, 0), (1200.0, 0x40), (None, 0x60), (600.0, 0x04)):
        looks.add("GPU-1", "card", 575.0, slowed, [mhz, None, 100.0, 80.0])
    card = looks.answer()["cards"]["GPU-1"]
    assert card["sm_mhz"] == {"min": 600.0, "mean": 1400.0, "max": 2400.0}
    assert card["memory_mhz"] is None
    assert card["slowed"] == {"heat": 2}, "a power cap is how such a card is run"
    assert card["looks"] == 4
