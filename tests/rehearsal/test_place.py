"""Commands of a rehearsal's steps: a `docker` that only looks, or touches stand-ins."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from console.rehearsal import place
from console.rehearsal.inside.settings import Settings
from console.rehearsal.join import join


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rehearsal's docker, over a real one that prints what it is told."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "docker").write_text('#!/bin/sh\necho "did $*"\n')
    (real / "docker").chmod(stat.S_IRWXU)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{real}:/usr/bin:/bin")
    for name in ("OMNI_HOST_DIR", "PYTHONPATH", "OMNI_REHEARSAL", "OMNI_REHEARSAL_HOLDS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    place.enter(Settings(cards=[{"uuid": "GPU-1", "name": "Card", "total": 1 << 30}]))
    return place.directory() / "bin" / "docker"


def said(command: Path, *arguments: str, step: str = "x") -> tuple[int, str]:
    done = subprocess.run(
        [command, *arguments], env={"PATH": "/usr/bin:/bin", "OMNI_STEP": step}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    ["images", "version --format x", "image inspect a:1", "run --rm omni-rehearsal/a:1 x",
     "build -t omni-rehearsal/a:1 ."],
)  # fmt: skip
def test_a_step_may_look_and_use_stand_ins(docker: Path, words: str) -> None:
    assert said(docker, *words.split()) == (0, f"did {words}\n")


@pytest.mark.parametrize(
    "words", ["stop deepseek-r1", "image rm a:1", "build -t omni/kt:1 .", "run real:1", "rmi a"]
)
def test_a_step_never_touches_what_is_real(docker: Path, words: str) -> None:
    code, text = said(docker, *words.split())
    assert (code, text) == (1, f"stand-in of a rehearsal: not done: docker {words}\n")
    assert said(docker, *words.split(), step="") == (0, f"did {words}\n"), "the console itself may"


def test_nvidia_smi_knows_the_cards_without_any_variable(docker: Path) -> None:
    query = ["--query-gpu=uuid,memory.total", "--format=csv,noheader"]
    code, text = said(docker.with_name("nvidia-smi"), *query)
    assert code == 0
    assert "GPU-1, 1024 MiB\n" in text
    assert "stand-in" in text


def test_another_terminal_joins_it(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_HOST_DIR", "/elsewhere")
    assert join() == str(place.site())
    assert os.environ["OMNI_HOST_DIR"] == str(place.directory() / "host")
