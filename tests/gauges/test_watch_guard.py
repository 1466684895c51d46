"""`gauges --watch` beside a run: the guard's word and time, without a screen, a run or a GPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.cli import main
from console.host import process
from console.journal.run_dir import RunDir
from console.recovery.rollback import records
from console.recovery.rollback.records import Pointer
from tests.testbed.nvml import RTX_PRO_6000, Nvml
from tests.viewer.guard_ring import record, run_of

PAGE = {
    "level": "warn", "reasons": ["RAM full in 18.2 s"], "tte_s": 18.2, "filling": "RAM",
    "missing": ["oom_score_adj"],
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    return tmp_path


def on_now(run: RunDir) -> None:
    """This process is its runner."""
    start = process.start_time(os.getpid()) or 1
    records.write(
        Pointer(run.id, str(run.path), "me", os.getuid(), os.getpid(), start, "b", "ws", 1.0)
    )


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
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert child.stderr.read() == ""
    return lines


@pytest.mark.usefixtures("home")
def test_without_a_run() -> None:
    (line,) = watched(bool)
    assert "RAM " in line
    assert "no run" in line
    found = json.loads(watched(bool, "--json")[0])
    assert found["guard"]["state"] == "none"
    assert found["guard"]["tte_s"] is None
    assert found["guard"]["run"] is None


def test_beside_a_run_with_cards_and_their_age(home: Path, nvml: Nvml) -> None:
    run = run_of(home / "20261120-140312-book-1a2b")
    record(run, until=1.0, page={**PAGE, "mono": time.monotonic()})
    on_now(run)
    env = nvml.env(nvml.write(home / "script", (RTX_PRO_6000,)))
    told = json.loads(watched(bool, "--json", env=env)[0])["guard"]
    assert told["run"] == run.id
    assert (told["tte_s"], told["filling"]) == (18.2, "RAM")
    assert told["not_protected"] == ["oom_score_adj"]
    assert 0 <= told["age_s"] < 60
    line = watched(lambda line: "GPU0 " in line, env=env)[-1]
    assert "18 s" in line or "SILENT" in line
    assert re.search(r"cards \d+\.\d s old", line)


@pytest.mark.parametrize("text", ["0s", "soon", "1", "2h", ""])
def test_an_impossible_pace_is_bad_usage(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["gauges", "--watch", "--every", text]) == 2
    assert "--every" in capsys.readouterr().err
