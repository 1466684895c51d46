"""A thread a card: the reader's lines while one card's call hangs, and afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.host.gpu.nvml import Lane
from tests.testbed.nvml import ERROR_GPU_IS_LOST, MIB, RTX_5090, RTX_PRO_6000, Card, Nvml

HANGS = {"nvmlDeviceGetPowerUsage": 2}
PROGRAM = """
from console.host.gpu import child as gpu
gpu.FIRST_S, gpu.PATIENCE_S, gpu.SILENT_S = 1.0, 0.2, 1.0
gpu.main(["--every", "0.05"])
"""


class Reader:
    """The reader's process on a script."""

    def __init__(self, nvml: Nvml, script: Path, first: Card = RTX_PRO_6000) -> None:
        self.nvml, self.script = nvml, script
        self.set(first, RTX_5090)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **nvml.env(script)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def set(self, *cards: Card) -> None:
        self.nvml.write(self.script, cards)

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def until(self, fits: Any) -> dict[str, Any]:
        while not fits(line := self.line()):
            pass
        return line

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(60)


@pytest.fixture
def reader(nvml: Nvml, tmp_path: Path) -> Iterator[Reader]:
    one = Reader(nvml, tmp_path / "script")
    yield one
    one.close()


def used(line: dict[str, Any]) -> list[int | None]:
    return [gpu["used_bytes"] and gpu["used_bytes"] // MIB for gpu in line["gpus"]]


def whys(line: dict[str, Any]) -> list[str]:
    return [gpu["why"][:6] for gpu in line["gpus"]]


def test_one_card_hangs_and_comes_back(reader: Reader) -> None:
    reader.until(lambda line: used(line) == [612, 15] and "ages" not in line)
    reader.set(RTX_PRO_6000.but(hang=HANGS), RTX_5090.but(mem_used=20 * MIB))
    hung = [RTX_PRO_6000.uuid]
    reader.until(lambda line: list(line.get("ages", ())) == hung and used(line) == [612, 20])
    silent = reader.until(lambda line: line["gpus"][0]["why"] and used(line) == [None, 20])
    assert silent["gpus"][0]["name"] == RTX_PRO_6000.name
    assert silent["gpus"][0]["why"].startswith("no answer for ")
    assert silent["ages"][RTX_PRO_6000.uuid] >= 1
    reader.set(RTX_PRO_6000.but(mem_used=700 * MIB), RTX_5090)
    back = reader.until(lambda line: used(line) == [700, 15] and "ages" not in line)
    assert [gpu["why"] for gpu in back["gpus"]] == ["", ""]


def test_a_card_that_hangs_from_the_start_has_no_name(nvml: Nvml, tmp_path: Path) -> None:
    one = Reader(nvml, tmp_path / "script", RTX_PRO_6000.but(hang={"nvmlDeviceGetUUID": 30}))
    try:
        line = one.until(lambda line: used(line)[1:] == [15])
        assert (line["gpus"][0]["uuid"], line["gpus"][0]["used_bytes"]) == ("index:0", None)
        assert line["gpus"][0]["why"].startswith("no answer for ")
        assert used(one.line())[1] == 15
    finally:
        one.close()


def test_a_lost_card_beside_one_that_hangs(reader: Reader) -> None:
    reader.until(lambda line: used(line) == [612, 15])
    reader.set(
        RTX_PRO_6000.but(fail={"nvmlDeviceGetMemoryInfo_v2": ERROR_GPU_IS_LOST}),
        RTX_5090.but(hang=HANGS),
    )
    reader.until(lambda line: whys(line) == ["lost: ", "no ans"])


def test_a_lane_does_one_thing_at_a_time() -> None:
    lane: Lane[int] = Lane("card")
    gate = threading.Event()
    lane.begin(lambda: gate.wait(60) and 5, 1.0)
    assert not lane.wait(0.01)
    assert lane.busy
    gate.set()
    assert lane.wait(60)
    assert (lane.result(), lane.answered_at) == (5, 1.0)
    lane.begin(lambda: 1 // 0, 2.0)
    assert lane.wait(60)
    with pytest.raises(ZeroDivisionError):
        lane.result()
    assert lane.answered_at == 1.0
