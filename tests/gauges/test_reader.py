"""The reader as a process: what it prints, and when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.testbed.nvml import ERROR_LIB_RM_VERSION_MISMATCH, RTX_5090, Nvml
from tests.waiting import until

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
        assert process.stdout is not None
        assert process.stdin is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()
        assert process.wait(60) == 0
    assert [len(line["gpus"]) for line in lines] == [2, 2, 2]


def test_it_ends_when_nobody_reads(nvml: Nvml, tmp_path: Path) -> None:
    with start(nvml.env(nvml.write(tmp_path / "script"))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0


def test_it_ends_with_stdin_while_nvml_hangs(nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(tmp_path / "script", hang={"all": 600})
    with start(nvml.env(script)) as process:
        assert process.stdin is not None
        process.stdin.close()
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


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver() -> None:
    with start({}) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        found = json.loads(process.stdout.readline())
        process.stdin.close()
        process.wait(60)
    assert (found["gpus"], "libnvidia-ml.so.1" in found["trouble"]) == ([], True)


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


def test_bad_usage_is_said() -> None:
    done = subprocess.run(ARGV[:-2], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"usage" in done.stderr
