"""`gauges` as a command: words for people, objects for programs, nothing left behind; `--watch`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from console.cli import main
from console.host import process
from console.recovery.rollback import records
from console.recovery.rollback.records import Pointer
from tests.host.test_reader import gone
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Nvml
from tests.waiting import until
from tests.watch.guard_ring import record, run_of

PROGRAM = """
import sys
from argparse import Namespace
from console.frontends.cli import machine
from console.host import sampler
as_json, look_s, *paths = sys.argv[1:]
machine.LOOK_S = float(look_s)
sampler.SILENT_S = 60.0
code = machine.gauges(Namespace(watch=False, json=as_json == "1", path=paths, every="100ms"))
assert {"textual", "rich"} & set(sys.modules) == set()
sys.exit(code)
"""
BUSY = RTX_PRO_6000.but(util=87, temp=91, power=412_000, mem_used=97_000 * 1024 * 1024)


def look(env: dict[str, str], *paths: str, as_json: bool = False, look_s: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(as_json)), str(look_s), *paths],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False,
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


# -- `--watch`, beside a run or none -------------------------------------------------------------


PAGE = {
    "level": "warn", "reasons": ["RAM full in 18.2 s"], "tte_s": 18.2, "filling": "RAM",
    "missing": ["oom_score_adj"],
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    return tmp_path


def watched(
    last: Callable[[str], bool], *options: str, env: dict[str, str] | None = None
) -> list[str]:
    """Lines up to the last one that is wanted; it is interrupted then."""
    argv = [sys.executable, "-P", "-m", "console.cli", "gauges", "--watch", "--every", "100ms"]
    with subprocess.Popen(
        [*argv, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        lines = []
        while not lines or not last(lines[-1]):
            lines.append(child.stdout.readline())
            assert lines[-1], child.stderr.read()
        readers = psutil.Process(child.pid).children()
        assert readers or "GPU0 " not in lines[-1]
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert child.stderr.read() == ""
    until(lambda: all(gone(reader) for reader in readers), "the readers' end")
    return lines


@pytest.mark.usefixtures("home")
def test_without_a_run() -> None:
    (line,) = watched(bool)
    assert "RAM " in line
    assert "no run" in line
    found = json.loads(watched(bool, "--json")[0])["guard"]
    assert (found["state"], found["tte_s"], found["run"]) == ("none", None, None)


def test_beside_a_run_with_cards_and_their_age(home: Path, nvml: Nvml) -> None:
    run = run_of(home / "20261120-140312-book-1a2b")
    record(run, until=1.0, page={**PAGE, "mono": time.monotonic()})
    start = process.start_time(os.getpid()) or 1
    records.write(
        Pointer(run.id, str(run.path), "me", os.getuid(), os.getpid(), start, "b", "ws", 1.0)
    )
    env = nvml.env(nvml.write(home / "script", (BUSY,)))
    told = json.loads(watched(bool, "--json", env=env)[0])["guard"]
    assert (told["run"], told["tte_s"], told["filling"]) == (run.id, 18.2, "RAM")
    assert told["not_protected"] == ["oom_score_adj"]
    assert 0 <= told["age_s"] < 60
    line = watched(lambda line: "GPU0 " in line, env=env)[-1]
    assert "18 s" in line or "SILENT" in line
    assert "94.7/95.6 GiB!! 87 % 91" in line
    assert re.search(r"cards \d+\.\d s old", line)


@pytest.mark.parametrize("text", ["0s", "soon", "1", "2h", ""])
def test_an_impossible_pace_is_bad_usage(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["gauges", "--watch", "--every", text]) == 2
    assert "--every" in capsys.readouterr().err
