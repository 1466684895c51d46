"""The compose command: its environment, its words, and that it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from console.common.errors import EngineTimeout
from console.host import process
from console.runtime.docker.compose import compose
from console.runtime.docker.engine_state import silent
from tests.waiting import until


def program(folder: Path, text: str) -> Callable[[float], str]:
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return lambda seconds: compose(
        [str(path)], "unix:///x", {"WORD": "v"}, "Reading", seconds, silent
    )


def test_a_command_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: groups.append(pid) or kill(pid, number))
    call = program(tmp_path, "sleep 600 & wait")
    with pytest.raises(EngineTimeout):
        call(0.5)
    monkeypatch.undo()
    until(lambda: not _alive(groups[0]))


def _alive(group: int) -> bool:
    return any(one.group == group and one.state not in "ZX" for one in process.all_stats())


def test_the_environment_is_allow_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    monkeypatch.setenv("DOCKER_CONFIG", "/kept")
    text = program(tmp_path, "env; head -c1; ps -o sid= -p $$ >/dev/null")(30)
    assert "canary" not in text
    assert "DOCKER_CONTEXT" not in text
    assert {"DOCKER_HOST=unix:///x", "DOCKER_CONFIG=/kept", "WORD=v"} <= set(text.split())


def test_command_that_outlives_sigkill_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child in state D does not end: here nobody kills it, which looks the same from outside."""
    pids: list[int] = []
    real = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: pids.append(pid))
    call = program(tmp_path, "exec sleep 600")
    with pytest.raises(EngineTimeout):
        call(0.3)
    real(pids[0], 9)
