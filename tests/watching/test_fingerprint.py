"""What the baseline runs on and with, and what a difference is called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.host.gpu import clocks
from console.watch import fingerprint, loop
from console.watch.fingerprint import Server, build_id, change_words, changes, gauge_words, machine
from console.watch.look import Look, Looker
from tests.watching.conftest import plan_of

BASIC = {
    "proc/sys/kernel/osrelease": "6.1.0-40-amd64\n",
    "proc/sys/kernel/random/boot_id": "1-2-3\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
    "575.57.08  Release Build  (dvs)\nGCC version:  gcc version 12.2.0\n",
    "proc/meminfo": "MemTotal:       395911168 kB\nMemFree: 1 kB\n",
    "sys/class/dmi/id/bios_version": "1401\n",
    "sys/devices/system/node/online": "0-3\n",
    "proc/pressure/cpu": "some avg10=9.00 avg60=41.50 avg300=1.00 total=1\nfull avg10=0\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in BASIC.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_machine(root: Path) -> None:
    assert machine(root) == {
        "kernel": "6.1.0-40-amd64", "boot": "1-2-3", "driver": "575.57.08", "RAM": "378 GiB",
        "BIOS": "1401", "NUMA nodes": "0-3",
    }  # fmt: skip
    assert fingerprint.gauges(root) == {"CPU pressure": 41.5}
    assert machine(root / "nothing") == {}
    assert machine()["kernel"] == os.uname().release


def test_changes_and_their_words(root: Path) -> None:
    old = machine(root)
    (root / "sys/devices/system/node/online").write_text("0\n")
    (root / "proc/driver/nvidia/version").write_text("NVRM  Kernel Module  580.65.06  x\n")
    (root / "sys/class/dmi/id/bios_version").unlink()
    found = changes(old, machine(root))
    assert [change_words(name, *sides) for name, sides in found.items()] == [
        "NUMA nodes 0-3 → 0", "driver 575.57.08 → 580.65.06",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("boot", "1", "2", "the machine was booted"),
        ("image", "sha256:" + "a" * 64, "sha256:" + "b" * 64,
         "image changed (aaaaaaaaaaaa → bbbbbbbbbbbb)"),
        ("command line", "srv -c 4096 -fa", "srv -c 8192 -fa --mlock",
         "command line: 4096 → 8192 --mlock"),
        ("command line", "srv -fa -ngl", "srv -ngl -fa",
         "command line: its words are in another order, or repeated"),
        ("library libggml-cuda.so", "build a", "build b", "library libggml-cuda.so changed"),
        ("library libx.so", "", "build b", "library libx.so is new"),
    ],
)  # fmt: skip
def test_words(name: str, old: str, new: str, words: str) -> None:
    assert change_words(name, old, new) == words


def test_gauges_count_when_they_are_different() -> None:
    told = (("CPU pressure", 1.0, 4.0), ("memory pressure", 0.0, 30.0),
            ("SM clock of X", 2400.0, 2350.0), ("memory clock of X", 9000.0, 4500.0))  # fmt: skip
    assert gauge_words(told) == ["memory pressure 0 % → 30 %", "memory clock of X 9000 → 4500 MHz"]


def test_files_that_could_not_be_read_once_have_not_changed() -> None:
    with_files = {"program": "1", "library a.so": "2"}
    assert changes(with_files, {"kernel": "6"}) == {}
    assert changes(with_files, {"program": "1"}) == {"library a.so": ("2", "")}


def test_a_real_process_its_files_and_no_secret() -> None:
    program = "import sys, time; print(1, flush=True); time.sleep(600)"
    argv = [sys.executable, "-S", "-c", program, "--api-key", "sk-very-secret-1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = fingerprint._process(child.pid)
        child.kill()
    assert "bytes of" in found["program"]
    assert any(name.startswith("library libc.so") for name in found)
    assert "--api-key" in found["command line"]
    assert "secret" not in found["command line"]


def test_a_build_id_is_that_of_readelf() -> None:
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf")
    library = next(
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()
        if "libc.so" in line
    )  # fmt: skip
    said = subprocess.run([readelf, "-n", library], capture_output=True, text=True, check=True)
    assert build_id(library) in said.stdout
    assert len(build_id(library)) >= 16
    assert build_id(__file__) == ""
    assert build_id("/nowhere") == ""


def test_a_container_is_what_its_engine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {
        "Id": "c" * 64, "Image": "sha256:" + "a" * 64,
        "Config": {"Image": "llama:b7000", "Entrypoint": ["/srv"], "Cmd": ["-c", "4096"]},
        "State": {"Pid": os.getpid()},
    }  # fmt: skip
    from dataclasses import replace

    plan = plan_of().sealed
    base = replace(plan.baseline, kind="container", container_name="llm", process=None)
    server = Server(replace(plan, baseline=base))
    monkeypatch.setattr(server, "_inspected", lambda: told)
    before = server.look()
    assert (before["image name"], before["command line"]) == ("llama:b7000", "/srv -c 4096")
    assert before["server process"] == f"{os.getpid()} {process.start_time(os.getpid())}"
    told["Image"] = "sha256:" + "b" * 64
    assert list(changes(before, server.look())) == ["image"]
    told.clear()
    assert "image" not in server.look(), "an engine that does not answer has changed nothing"


def test_cards_of_an_answer() -> None:
    answer = {"GPU-0000-abcd": {"name": "RTX PRO 6000", "power_limit_w": 450.0,
                                "sm_mhz": {"max": 2400.0}, "memory_mhz": None}}  # fmt: skip
    assert fingerprint.cards(answer) == (
        {"power limit of RTX PRO 6000 abcd": "450 W"}, {"SM clock of RTX PRO 6000 abcd": 2400.0},
    )  # fmt: skip


def test_cards_are_looked_at_beside_the_answer_and_a_late_driver_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = [{"GPU-ab": {"name": "X", "power_limit_w": 450.0, "sm_mhz": {"max": 2400.0}}}, {}]
    steps: list[str] = []

    class Watch:
        def start(self) -> None:
            steps.append("start")

        def stop(self) -> tuple[dict[str, Any], str]:
            steps.append("stop")
            return answers.pop(0), ""

    monkeypatch.setattr(clocks, "Watch", Watch)
    monkeypatch.setattr(loop, "DRIVER", tmp_path)
    plan = plan_of()
    looker, server = Looker(plan.sealed, plan.settings), Server(plan.sealed)
    monkeypatch.setattr(server, "pid", lambda: None)

    def look(pid: int | None) -> Look:
        steps.append("look")
        return Look("serving")

    monkeypatch.setattr(looker, "look", look)
    eyes = loop._Eyes(looker, server)
    eyes.look()
    fixed, moving = eyes.fingerprint()
    assert fixed["power limit of X U-ab"] == "450 W"
    assert moving["SM clock of X U-ab"] == 2400.0
    eyes.look()
    fixed, moving = eyes.fingerprint()
    assert fixed["power limit of X U-ab"] == "450 W"
    assert "SM clock of X U-ab" not in moving
    assert steps == ["start", "look", "stop"] * 2
