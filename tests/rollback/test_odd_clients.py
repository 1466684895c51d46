"""rollback.sh with a client that fails, or with busybox alone: it ends nobody for what it hears."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.script import write
from tests.rollback.conftest import DASH, Stage, in_script, run_script, serving

pytestmark = pytest.mark.skipif(DASH is None, reason="needs dash")


@pytest.mark.parametrize("told", [{}, {"most": 0}, {"health": 500}])
def test_a_client_that_cannot_ask_is_no_silence(
    stage: Stage, lines: Path, told: dict[str, int]
) -> None:
    """It asks the health path, and breaks when it is to post."""
    stage.base(ready_timeout_s=3.0)
    stage.seal(site_name="odd")
    before = serving(stage, lines, **told)
    body = f'case "$*" in *chat*) exit 127 ;; esac; exec {shutil.which("curl")} "$@"'
    done = run_script(stage, stage.tool("curl", body))
    assert done.returncode == 7, done.stdout
    assert process.alive(*before)
    assert "curl fails, and cannot ask it: nothing is known of it" in done.stdout
    assert evidence.state(stage.plan).word is Word.UNKNOWN


def test_another_client_takes_the_place_of_a_broken_one(stage: Stage, lines: Path) -> None:
    before = serving(stage, lines)
    done = run_script(stage, stage.tool("curl", "exit 127"))
    assert done.returncode == 0, done.stdout
    assert process.alive(*before)


def test_a_client_that_hangs_is_ended_as_busybox_ends_it(stage: Stage) -> None:
    """By a SIGTERM, which the script itself ignores, and so would the client."""
    slow = stage.tool("timeout", 'exec 2>/dev/null; shift; "$@" & sleep 1; kill $!; wait $!')
    stage.tool("curl", "exec sleep 600")
    body = f"PATH={slow}; trap '' TERM; CLIENT=curl; http_code \"$HEALTH\"\n"
    assert in_script(stage, body) == (0, "000\n")


def runs_its_own(box: str) -> bool:
    """Whether its shell runs a tool of its own that PATH does not have, as Debian's static one."""
    words = [box, "sh", "-c", "true; setsid --help"]
    done = subprocess.run(words, env={"PATH": ""}, capture_output=True, check=False)
    return done.returncode != 127


@pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox")
@pytest.mark.parametrize("wget", [True, False])
@pytest.mark.parametrize(("told", "state"), [
    (None, Word.SERVING), ({}, Word.SERVING), ({"status": 401}, Word.REFUSING),
    ({"drips": {"/v1/chat/completions": "HTTP/1.1 200 OK\r\nX-Slow: "}}, Word.UNKNOWN),
])  # fmt: skip
def test_with_busybox_alone(
    stage: Stage, lines: Path, told: dict[str, Any] | None, state: Word, wget: bool
) -> None:
    """Its wget knows no deadline and no --no-proxy, and it may have no nohup."""
    stage.base(ready_timeout_s=5.0, completion=replace(stage.plan.baseline.completion, timeout_s=2))
    stage.seal(site_name="odd")
    before = serving(stage, lines, **told) if told is not None else None
    box, tools = str(shutil.which("busybox")), stage.root / "tools"
    tools.mkdir()
    for name in subprocess.check_output([box, "--list"], text=True).split():
        if name != "wget" or wget:
            (tools / name).symlink_to(box)
    asks = wget or runs_its_own(box)
    made = write.write(stage.plan, stage.plan.rollback_dir)
    done = subprocess.run(
        [box, "sh", str(made)], env={"PATH": str(tools)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == (0 if asks and state is Word.SERVING else 7), done.stdout
    assert before is None or process.alive(*before), done.stdout
    assert stage.baseline_process() is not None, json.dumps(done.stdout)
    assert evidence.state(stage.plan).word is (state if asks else Word.UNKNOWN)
