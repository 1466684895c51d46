"""Commands of a rehearsal's steps: a `docker` that only looks, or touches stand-ins."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from console.rehearsal import workspace as place
from console.rehearsal.inside.settings import Settings
from console.rehearsal.workspace import join
from console.runtime.spec import ROLE_LABEL, ROLE_VARIABLE, role_label, role_of


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rehearsal's docker, over a real one that prints what it is told."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "docker").write_text('#!/bin/sh\necho "did $*"\n')
    (real / "docker").chmod(stat.S_IRWXU)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{real}:/usr/bin:/bin")
    for name in ("OMNI_HOST_DIR", "PYTHONPATH", "OMNI_REHEARSAL", "OMNI_REHEARSAL_HOLDS",
                 ROLE_VARIABLE):  # fmt: skip
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


def test_a_step_may_look_and_use_stand_ins(docker: Path) -> None:
    for words in (
        "images", "version --format x", "image inspect a:1", "run --rm omni-rehearsal/a:1 x",
        "build -t omni-rehearsal/a:1 .",
    ):  # fmt: skip
        assert said(docker, *words.split()) == (0, f"did {words}\n")


def test_a_step_never_touches_what_is_real(docker: Path) -> None:
    for words in (
        "stop deepseek-r1",
        "image rm a:1",
        "build -t omni/kt:1 .",
        "run real:1",
        "rmi a",
    ):
        code, text = said(docker, *words.split())
        assert (code, text.endswith(f"docker {words}\n"), "did " in text) == (1, True, False)
        assert said(docker, *words.split(), step="") == (0, f"did {words}\n"), "the console may"


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


def test_what_a_rehearsal_starts_has_a_role_of_its_own(docker: Path) -> None:
    assert role_label() == place.role_label() != ROLE_LABEL
    assert role_of({role_label(): "candidate"}) == role_of({ROLE_LABEL: "candidate"}) == "candidate"
    assert role_of({"omni.rehearsal": "stand-in"}) == ""


def test_names_differ_between_state_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for where in ("/a", "/b"):
        monkeypatch.setenv("XDG_STATE_HOME", where)
        found |= {place.own_name("baseline"), place.role_label()}
    assert len(found) == 4


def test_a_plan_leaves_what_a_rehearsal_put_there(docker: Path) -> None:
    kept = place.directory()
    before = (kept / "environment.json").read_text()
    with place.only_planned():
        assert place.directory() != kept
        place.enter(Settings(fault="ram"))
    assert place.directory() == kept
    assert docker.exists()
    assert (kept / "environment.json").read_text() == before
    assert not (kept / "plan" / "plan").exists()
