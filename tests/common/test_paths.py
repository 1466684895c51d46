"""Where things are kept: functions of the environment alone."""

import os
import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from console.cli import main
from console.common import paths


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


def test_state_is_closed_to_others_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "fresh" / "state"))
    own, before = paths.state_dir(), os.umask(0)
    try:
        paths.make(own / "runs")
        assert [one.stat().st_mode & 0o777 for one in (own, own.parent)] == [0o700, 0o700]
        own.chmod(0o777)  # as an earlier release left it
        paths.make(own / "runs")
        assert own.stat().st_mode & 0o777 == 0o700
        (tmp_path / "ours").mkdir(0o775)
        paths.make(tmp_path / "ours")
        assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o775
    finally:
        os.umask(before)


def test_two_names_never_share_a_file() -> None:
    assert paths.file_name("ws-1.a_B") == "ws-1.a_B", "files of plain names stay where they are"
    odd = [paths.file_name(name) for name in ("büro", "bäro", "b-ro", "b/ro", "\udcff-ro")]
    assert len(set(odd)) == len(odd)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", name) for name in odd)


@pytest.mark.parametrize(("has", "given", "again"), [
    ("utf-8", {}, False), ("iso8859-1", {}, True), ("iso8859-1", {"PYTHONUTF8": "1"}, False),
])  # fmt: skip
def test_paths_are_the_same_text_in_every_locale(
    monkeypatch: pytest.MonkeyPatch, has: str, given: dict[str, str], again: bool
) -> None:
    """In another one the command starts again, once, in UTF-8 mode."""
    environment, started = dict(given), Mock(side_effect=SystemExit(0))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: has)
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-P", "-m", "console.cli", "--version"])
    monkeypatch.setattr(sys, "argv", ["omni-console", "--version"])
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(os, "execv", started)
    with pytest.raises(SystemExit):
        main()
    command = [sys.executable, "-P", "-m", "console.cli", "--version"]
    assert [call.args for call in started.mock_calls] == [(sys.executable, command)] * again
    assert environment.get("PYTHONUTF8") == ("1" if again or given else None)
