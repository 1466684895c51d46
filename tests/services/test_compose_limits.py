"""Compose at its limits: a command that does not end, a restart policy in its other place."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from console.errors import EngineTimeout
from console.services.base import ComposeSpec
from console.services.compose import Resolved, override_of
from tests.services.test_compose import program


def test_command_that_outlives_sigkill_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child in state D does not end: here nobody kills it, which looks the same from outside."""
    pids: list[int] = []
    real = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: pids.append(pid))
    call = program(tmp_path, "exec sleep 600")
    begun = time.monotonic()
    with pytest.raises(EngineTimeout):
        call(0.3)
    took = time.monotonic() - begun
    real(pids[0], 9)
    assert took < 60


def test_restart_policy_of_deploy_is_overruled() -> None:
    runs = ComposeSpec((Path("/a.yaml"),), "web")
    service = {"deploy": {"restart_policy": {"condition": "any"}}}
    resolved = Resolved({}, service, "image", "sha", "digest", "project")
    content = override_of(resolved, {}, "run", runs, lambda kind, name: False)
    assert content["services"]["web"]["deploy"] == {"restart_policy": {"condition": "none"}}
    resolved = replace(resolved, service={})
    content = override_of(resolved, {}, "run", runs, lambda kind, name: False)
    assert "deploy" not in content["services"]["web"]
