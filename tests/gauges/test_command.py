"""`gauges` as a command: words for people, objects for programs, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.gauges.test_reader import gone
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Nvml
from tests.waiting import until

PROGRAM = """
import sys
from argparse import Namespace
from console.frontends.cli import machine
from console.host import sampler
watch, as_json, look_s, *paths = sys.argv[1:]
machine.LOOK_S = float(look_s)
sampler.SILENT_S = 60.0
asked = Namespace(watch=watch == "1", json=as_json == "1", path=paths, every="100ms")
try:
    code = machine.gauges(asked)
except KeyboardInterrupt:
    code = 130
assert {"textual", "rich"} & set(sys.modules) == set()
sys.exit(code)
"""
BUSY = RTX_PRO_6000.but(util=87, temp=91, power=412_000, mem_used=97_000 * 1024 * 1024)


def command(watch: bool, as_json: bool, *paths: str, look_s: float = 60) -> list[str]:
    flags = [str(int(watch)), str(int(as_json)), str(look_s)]
    return [sys.executable, "-c", PROGRAM, *flags, *paths]


def look(env: dict[str, str], *paths: str, as_json: bool = False, look_s: float = 60) -> str:
    done = subprocess.run(
        command(False, as_json, *paths, look_s=look_s), env={**os.environ, **env},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_one_look(nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(tmp_path / "script", (BUSY, RTX_5090.but(lost=True)))
    out = look({**nvml.env(script), "PYTHONIOENCODING": "utf-8"})
    lines = out.splitlines()
    assert lines[0].startswith("GPU0 RTX PRO 6000")
    assert "91 °C!!" in lines[0]
    assert "GPU1 " in lines[1]
    assert "lost: " in lines[1]
    assert any(line.startswith(f"GPU0 {BUSY.uuid}") for line in lines)
    assert "RAM " in out
    assert "DISK / " in out


def test_a_terminal_that_knows_only_ascii(nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(tmp_path / "script", (BUSY,))
    assert look({**nvml.env(script), "PYTHONIOENCODING": "ascii"}).isascii()


def test_an_object(nvml: Nvml, tmp_path: Path) -> None:
    env = nvml.env(nvml.write(tmp_path / "script", (BUSY,)))
    found = json.loads(look(env, "/", "/nowhere", as_json=True))
    (gpu,) = found["gpus"]
    assert (gpu["uuid"], gpu["utilisation"]) == (BUSY.uuid, 0.87)
    assert gpu["levels"] == {"vram": "critical", "temperature": "critical"}
    assert found["gpu_trouble"] == ""
    assert 0 <= found["gpu_age_s"] < 60
    assert found["memory"]["total"] > found["memory"]["available"] > 0
    assert [bool(disk["why"]) for disk in found["disks"]] == [False, True]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver_is_said_and_is_no_failure() -> None:
    assert "NVIDIA driver" in look({}).splitlines()[0]


def test_nvml_that_hangs_is_waited_for_but_not_for_ever(nvml: Nvml, tmp_path: Path) -> None:
    out = look(nvml.env(nvml.write(tmp_path / "script", hang={"all": 600})), look_s=1)
    assert "within 1 s" in out
    assert "RAM " in out


@pytest.mark.parametrize("as_json", [False, True], ids=["words", "object"])
def test_watch_until_interrupted(nvml: Nvml, tmp_path: Path, as_json: bool) -> None:
    env = {**os.environ, **nvml.env(nvml.write(tmp_path / "script", (BUSY,)))}
    with subprocess.Popen(
        command(True, as_json), env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        # the cards come a little later than the rest
        line = next(line for line in process.stdout if BUSY.uuid in line or "GPU0 " in line)
        readers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    if as_json:
        assert json.loads(line)["gpus"][0]["uuid"] == BUSY.uuid
    else:
        assert "94.7/95.6 GiB!! 87 % 91" in line
        assert "RAM " in line
    assert readers
    until(lambda: all(gone(reader) for reader in readers), "the readers' end")
