"""Where things are kept: functions of the environment alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from console import paths


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "OMNI_HOST_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/op")


def test_defaults() -> None:
    assert paths.state_dir() == Path("/home/op/.local/state/omni-console")
    assert paths.runs_dir() == Path("/home/op/.local/state/omni-console/runs")
    assert paths.default_site() == Path("/home/op/.config/omni-console/site.yaml")
    assert paths.cache_dir() == Path("/home/op/.cache/omni-console")
    assert paths.host_lock(0) == Path("/var/tmp/omni-console.0.lock")


@pytest.mark.parametrize("value", ["", "relative/state", "~/state"])
def test_a_variable_that_is_no_absolute_path_is_ignored(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", value)
    assert paths.state_dir() == Path("/home/op/.local/state/omni-console")


def test_variables_move_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("OMNI_HOST_DIR", "/h")
    assert paths.runs_dir() == Path("/s/omni-console/runs")
    assert paths.default_site() == Path("/c/omni-console/site.yaml")
    assert paths.host_lock(7) == Path("/h/omni-console.7.lock")


def test_every_user_has_a_pointer_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_HOST_DIR", "")
    assert paths.pointer(0) == Path("/var/tmp/omni-console.0.json")
    assert len({paths.pointer(uid) for uid in range(50)}) == 50
    assert paths.host_lock(0) not in {paths.pointer(uid) for uid in range(50)}


def test_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    paths.runs_dir(), paths.host_lock(1), paths.pointer(1)
    assert list(tmp_path.iterdir()) == []
