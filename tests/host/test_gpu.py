"""The GPU reader on scripted cards, through the real pynvml; time is handed in."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from console.host.gpu.child import FRESH_S, REOPEN_S, RETRY_S, SLOW_S
from tests.testbed.nvml import (
    ERROR_GPU_IS_LOST,
    ERROR_LIB_RM_VERSION_MISMATCH,
    ERROR_NO_PERMISSION,
    ERROR_RESET_REQUIRED,
    ERROR_UNKNOWN,
    MIB,
    RTX_5090,
    RTX_PRO_6000,
    WORKSTATION,
    Card,
    Nvml,
    ensure_nvml,
)

PROGRAM = """
import json, sys
from dataclasses import asdict
from console.host.gpu import child as gpu
gpu.FIRST_S = gpu.PATIENCE_S = 60.0  # no card hangs here, and a busy machine is no card
session = gpu.Session()
for line in sys.stdin:
    gpus, trouble = session.look(float(line))
    found = {"gpus": [asdict(gpu) for gpu in gpus], "trouble": trouble}
    print(json.dumps({**found, "stuck": session.stuck(float(line))}), flush=True)
"""


class Looker:
    """A session in a process of its own, asked at times that the test chooses."""

    def __init__(self, nvml: Nvml, script: Path) -> None:
        self.nvml, self.script = nvml, script
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **nvml.env(script)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def look(self, now: float, *cards: Card, **more: Any) -> dict[str, Any]:
        self.nvml.write(self.script, cards or WORKSTATION, **more)
        return self.ask(now)

    def ask(self, now: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{now}\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def one(self, now: float, card: Card, **more: Any) -> dict[str, Any]:
        (gpu,) = self.look(now, card, **more)["gpus"]
        assert isinstance(gpu, dict)
        return gpu

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture
def looker(nvml: Nvml, tmp_path: Path) -> Iterator[Looker]:
    one = Looker(nvml, tmp_path / "script")
    yield one
    one.close()


def test_every_figure(looker: Looker) -> None:
    busy = RTX_PRO_6000.but(util=87, temp=64, power=412_300, mem_used=91_000 * MIB)
    found = looker.look(0, busy, RTX_5090.but(name="RTX\x1b]52;c;eA==\x07 \x1b[2J[/red]"))
    assert found["trouble"] == ""
    assert found["gpus"][0] == {
        "uuid": busy.uuid, "index": 0, "name": busy.name, "used_bytes": 91_000 * MIB,
        "total_bytes": 97_887 * MIB, "utilisation": 0.87, "temperature_c": 64.0,
        "power_w": 412.3, "power_limit_w": 600.0, "why": "",
    }  # fmt: skip
    assert (found["gpus"][1]["utilisation"], found["gpus"][1]["name"]) == (0.0, "RTX [/red]")


LACKS: list[tuple[dict[str, Any], str, dict[str, object]]] = [
    ({"util": None}, "", {"utilisation": None}), ({"temp": None}, "", {"temperature_c": None}),
    ({"power": None}, "", {"power_w": None}), ({"power_limit": None}, "", {"power_limit_w": None}),
    ({"util": 4_000_000}, "", {"utilisation": None}),
    ({"temp": 4_294_967_295}, "", {"temperature_c": None}),
    ({"power": 4_294_967_295}, "", {"power_w": None}),
    ({"mem_used": 99_999_999 * MIB}, "", {"used_bytes": None}),
    ({"mig": 1}, "MIG: ", {"utilisation": None}),
    ({"mem_used": None, "mem_total": None}, "unified memory",
     {"used_bytes": None, "total_bytes": None}),
    ({"mem_used": 0, "mem_total": 0}, "unified memory",
     {"used_bytes": None, "total_bytes": None}),
    ({"fail": {"nvmlDeviceGetPowerUsage": ERROR_NO_PERMISSION}}, "no permission",
     {"power_w": None}),
    ({"fail": {"nvmlDeviceGetMemoryInfo_v2": ERROR_UNKNOWN,
               "nvmlDeviceGetMemoryInfo": ERROR_UNKNOWN}}, "unknown NVML",
     {"used_bytes": None, "total_bytes": None}),
]  # fmt: skip


def test_what_a_card_cannot_tell_is_none_and_the_rest_stays(looker: Looker) -> None:
    """A query that it lacks, an impossible figure, MIG, unified memory, an error of one query."""
    whole = looker.one(0, RTX_5090)
    assert None not in whole.values()
    for number, (changes, why, wanted) in enumerate(LACKS, 1):
        found = looker.one(number * SLOW_S, RTX_5090.but(**changes))
        assert found.pop("why")[: len(why) or None] == why
        assert {**found, "why": ""} == {**whole, **wanted}, changes


@pytest.mark.parametrize(
    ("code", "word"), [(ERROR_GPU_IS_LOST, "lost: "), (ERROR_RESET_REQUIRED, "reset required: ")]
)
def test_a_lost_card_leaves_the_other(looker: Looker, code: int, word: str) -> None:
    looker.look(0)
    lost = RTX_PRO_6000.but(fail={"nvmlDeviceGetMemoryInfo_v2": code})
    for now in (1, 2):
        first, second = looker.look(now, lost, RTX_5090)["gpus"]
        assert (first["uuid"], first["name"]) == (lost.uuid, lost.name)
        assert first["why"].startswith(word)
        figures = ("used_bytes", "utilisation", "temperature_c", "power_w")
        assert {first[name] for name in figures} == {None}
        assert (second["uuid"], second["used_bytes"]) == (RTX_5090.uuid, 15 * MIB)
    back = looker.look(REOPEN_S + 3)["gpus"]
    assert [gpu["why"] for gpu in back] == ["", ""]


def test_a_card_lost_before_the_start_has_no_name_and_none_at_all_is_said(looker: Looker) -> None:
    looker.script.write_text("count 0\n")
    assert looker.ask(0)["trouble"].startswith("no NVIDIA card")
    first, second = looker.look(1, RTX_PRO_6000.but(lost=True), RTX_5090)["gpus"]
    assert (first["uuid"], first["index"], first["name"]) == ("index:0", 0, "")
    assert (first["why"][:6], second["why"]) == ("lost: ", "")


def test_a_card_that_is_no_longer_listed_is_lost(looker: Looker) -> None:
    looker.look(0)
    looker.look(1, RTX_PRO_6000.but(lost=True), RTX_5090)
    # the session is opened anew, and the driver counts one card less
    looker.look(REOPEN_S + 1, RTX_PRO_6000.but(lost=True), RTX_5090)
    found = looker.look(REOPEN_S + 2, RTX_5090)["gpus"]
    assert {gpu["uuid"]: gpu["why"][:5] for gpu in found} == {
        RTX_5090.uuid: "", RTX_PRO_6000.uuid: "lost:",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "words"),
    [(ERROR_LIB_RM_VERSION_MISMATCH, "driver/library version"),
     (ERROR_NO_PERMISSION, "no permission"), (9, "NVIDIA driver not"),
     (ERROR_UNKNOWN, "unknown NVML"), (77, "")],
)  # fmt: skip
def test_trouble_has_words_of_its_own_and_is_retried(looker: Looker, code: int, words: str) -> None:
    found = looker.look(0, fail={"nvmlInitWithFlags": code})
    assert found["gpus"] == []
    assert found["trouble"]
    assert found["trouble"].startswith(words)
    assert looker.look(RETRY_S - 1)["trouble"] == found["trouble"]
    back = looker.look(RETRY_S)
    assert (len(back["gpus"]), back["trouble"]) == (2, "")


def test_a_driver_that_goes_away_and_comes_back(looker: Looker) -> None:
    assert looker.look(0)["trouble"] == ""
    gone = looker.look(1, fail={"nvmlDeviceGetCount_v2": 9})
    assert gone == {"gpus": [], "trouble": gone["trouble"], "stuck": False}
    assert gone["trouble"].startswith("NVIDIA driver not")
    assert len(looker.look(1 + RETRY_S)["gpus"]) == 2


def test_a_misfit_that_stays_wants_a_fresh_process(looker: Looker) -> None:
    fail = {"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    assert not looker.look(0, fail=fail)["stuck"]
    assert looker.look(FRESH_S, fail=fail)["stuck"]
    assert not looker.look(FRESH_S + RETRY_S)["stuck"]


def test_slow_figures_are_asked_now_and_then(looker: Looker) -> None:
    assert looker.one(0, RTX_5090)["power_limit_w"] == 575.0
    lower = RTX_5090.but(power_limit=400_000)
    assert looker.one(SLOW_S - 1, lower)["power_limit_w"] == 575.0
    assert looker.one(SLOW_S, lower)["power_limit_w"] == 400.0


def test_an_old_driver(tmp_path: Path) -> None:
    without = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode")
    with closing(Looker(ensure_nvml(without), tmp_path / "script")) as looker:
        found = looker.one(0, RTX_5090)
        assert (found["used_bytes"], found["why"]) == (15 * MIB, "")


# -- memory alone, as the sentinel asks for it -----------------------------------------------------

WHOLE = {"used": 612 * MIB, "total": 97_887 * MIB}


def ask(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "console.host.gpu.nvml"]
    return subprocess.run(
        argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


def asked(
    nvml: Nvml, tmp_path: Path, *which: Card, **more: Any
) -> subprocess.CompletedProcess[str]:
    return ask(nvml.env(nvml.write(tmp_path / "script", which, **more)))


def test_what_is_not_known_is_null_with_a_word(nvml: Nvml, tmp_path: Path) -> None:
    done = asked(nvml, tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, {}), "no card at all"
    for card, word in (
        (RTX_5090.but(mem_used=None, mem_total=None), "not supported"),
        (RTX_5090.but(mem_used=0, mem_total=0), "unified memory"),
        (RTX_5090.but(mig=1), "mig mode"),
        (RTX_5090.but(fail={"nvmlDeviceGetMemoryInfo": ERROR_UNKNOWN}), "unknown error"),
    ):
        done = asked(nvml, tmp_path, RTX_PRO_6000, card)
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        answer = json.loads(done.stdout)
        why = answer[card.uuid].pop("why")
        assert word in why.lower()
        assert answer == {RTX_PRO_6000.uuid: WHOLE, card.uuid: {"used": None, "total": None}}


def test_a_lost_card_is_a_failure_that_leaves_the_others(nvml: Nvml, tmp_path: Path) -> None:
    done = asked(nvml, tmp_path, RTX_PRO_6000, RTX_5090.but(lost=True))
    assert done.returncode == 3
    assert "lost" in done.stderr
    assert done.stderr.count("\n") == 1
    answer = json.loads(done.stdout)
    assert answer.pop(RTX_PRO_6000.uuid) == WHOLE
    (lost,) = answer.values()
    assert lost["used"] is None


def test_no_usable_driver(nvml: Nvml, tmp_path: Path) -> None:
    misfit = {"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    found = [asked(nvml, tmp_path, RTX_5090, fail=misfit)]
    if not Path("/dev/nvidiactl").exists():
        found.append(ask({}))
    for done in found:
        assert (done.returncode, done.stdout) == (3, "")
        assert "GPU driver" in done.stderr
        assert done.stderr.count("\n") == 1
