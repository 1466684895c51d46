"""The reader as a process: what it prints, when it ends; a thread a card, while one hangs."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.host.gpu.nvml import CardWorker
from tests.testbed.nvml import (
    ERROR_GPU_IS_LOST,
    ERROR_LIB_RM_VERSION_MISMATCH,
    MIB,
    RTX_5090,
    RTX_PRO_6000,
    Card,
    Nvml,
)
from tests.waiting import some, until

ARGV = [sys.executable, "-m", "console.host.gpu.child", "--every", "0.05"]
OWNER = """
import sys, time
from console.host.sampler import GpuWatch
GpuWatch(0.05).start()
time.sleep(600)
"""


def gone(process: psutil.Process) -> bool:
    """Whether it has ended, be it reaped or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start(env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ARGV, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_a_line_a_tick_until_stdin_closes(nvml: Nvml, tmp_path: Path) -> None:
    with start(nvml.env(nvml.write(tmp_path / "script"))) as process:
        lines = [json.loads(some(process.stdout).readline()) for _ in range(3)]
        some(process.stdin).close()
        assert process.wait(60) == 0
    assert [len(line["gpus"]) for line in lines] == [2, 2, 2]


def test_it_ends_when_nobody_reads(nvml: Nvml, tmp_path: Path) -> None:
    with start(nvml.env(nvml.write(tmp_path / "script"))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("hang", [{}, {"all": 600}], ids=["answering", "hanging"])
def test_it_does_not_survive_its_owner(nvml: Nvml, tmp_path: Path, hang: dict[str, int]) -> None:
    script = nvml.write(tmp_path / "script", (RTX_5090,), hang=hang)
    env = {**os.environ, **nvml.env(script)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER], env=env)
    try:
        (reader,) = until(lambda: psutil.Process(owner.pid).children(), "the reader")
        # only once it is the reader itself, and not still the owner's image
        until(lambda: "console.host.gpu.child" in reader.cmdline(), "the reader's own image")
        assert os.getsid(reader.pid) == reader.pid
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait(60)
    until(lambda: gone(reader), "the reader's end")


def test_a_misfit_that_stays_is_met_by_a_fresh_start(nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(
        tmp_path / "script", fail={"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    )
    program = (
        "import console.host.gpu.child as gpu\n"
        "print('begun', flush=True)\n"
        "gpu.FRESH_S = 0.1\n"
        "gpu.main(['--every', '0.05'])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **nvml.env(script)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        starts = 0
        while starts < 2:
            line = process.stdout.readline()
            assert line
            starts += line == "begun\n"
        nvml.write(script)
        while '"trouble": ""' not in process.stdout.readline():
            assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 0


# -- a thread a card -----------------------------------------------------------------------------

HANGS = {"nvmlDeviceGetPowerUsage": 2}
PROGRAM = """
from console.host.gpu import child as gpu
gpu.FIRST_S, gpu.PATIENCE_S, gpu.SILENT_S = 1.0, 0.2, 1.0
gpu.main(["--every", "0.05"])
"""


class Reader:
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
        found: dict[str, Any] = json.loads(some(self.process.stdout).readline())
        return found

    def until(self, fits: Any) -> dict[str, Any]:
        while not fits(line := self.line()):
            pass
        return line

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            some(pipe).close()
        self.process.wait(60)


@pytest.fixture
def reader(nvml: Nvml, tmp_path: Path) -> Iterator[Reader]:
    with closing(Reader(nvml, tmp_path / "script")) as one:
        yield one


def used(line: dict[str, Any]) -> list[int | None]:
    return [gpu["used_bytes"] and gpu["used_bytes"] // MIB for gpu in line["gpus"]]


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
    hangs = RTX_PRO_6000.but(hang={"nvmlDeviceGetUUID": 30})
    with closing(Reader(nvml, tmp_path / "script", hangs)) as one:
        line = one.until(lambda line: used(line)[1:] == [15])
        assert (line["gpus"][0]["uuid"], line["gpus"][0]["used_bytes"]) == ("index:0", None)
        assert line["gpus"][0]["why"].startswith("no answer for ")
        assert used(one.line())[1] == 15


def test_a_lost_card_beside_one_that_hangs(reader: Reader) -> None:
    reader.until(lambda line: used(line) == [612, 15])
    reader.set(
        RTX_PRO_6000.but(fail={"nvmlDeviceGetMemoryInfo_v2": ERROR_GPU_IS_LOST}),
        RTX_5090.but(hang=HANGS),
    )
    reader.until(lambda line: [gpu["why"][:6] for gpu in line["gpus"]] == ["lost: ", "no ans"])


def test_a_lane_does_one_thing_at_a_time() -> None:
    worker: CardWorker[int] = CardWorker("card")
    gate = threading.Event()
    worker.begin(lambda: gate.wait(60) and 5, 1.0)
    assert not worker.wait(0.01)
    assert worker.busy
    gate.set()
    assert worker.wait(60)
    assert (worker.result(), worker.answered_at) == (5, 1.0)
    worker.begin(lambda: 1 // 0, 2.0)
    assert worker.wait(60)
    with pytest.raises(ZeroDivisionError):
        worker.result()
    assert worker.answered_at == 1.0
