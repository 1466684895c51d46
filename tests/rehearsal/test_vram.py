"""Scripted VRAM counts while its holder lives, and pynvml's stand-in shows it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console.host.gpu.child import Session
from console.rehearsal.inside.settings import (
    HOLDS_VARIABLE,
    VARIABLE,
    OutOfMemory,
    Settings,
    held,
    hold,
    packed,
)

HOLDER = """
import sys, time
from pathlib import Path
from console.rehearsal.inside.settings import hold
hold(Path(sys.argv[1]), {"GPU-1": 700}, {"GPU-1": 1000})
print("held", flush=True)
time.sleep(600)
"""


def test_memory_goes_with_its_holder_even_by_kill_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the gauges read it as a driver would say it."""
    cards = [
        {"uuid": "GPU-1", "name": "RTX PRO 6000", "total": 1000},
        {"uuid": "GPU-2", "name": "RTX 5090", "total": 500},
    ]
    monkeypatch.setenv(VARIABLE, packed(Settings(cards=cards)))
    monkeypatch.setenv(HOLDS_VARIABLE, str(tmp_path))
    session = Session(lambda: importlib.import_module("console.rehearsal.standins.pynvml"))
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert held(tmp_path) == {"GPU-1": 700}
        with pytest.raises(OutOfMemory, match="300 free"):
            hold(tmp_path, {"GPU-1": 400}, {"GPU-1": 1000})
        gpus, trouble = session.look(time.monotonic())
        assert trouble == ""
        seen = [(gpu.uuid, gpu.used_bytes, gpu.total_bytes, gpu.why) for gpu in gpus]
        assert seen == [("GPU-1", 700, 1000, ""), ("GPU-2", 0, 500, "")]
        child.kill()
    assert held(tmp_path) == {}, "the file is still there, its lock is not"
    assert list(tmp_path.glob("*.hold"))
    gpus, _ = session.look(time.monotonic())
    assert [gpu.used_bytes for gpu in gpus] == [0, 0]
