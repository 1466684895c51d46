"""After a reboot: which run left the baseline down, and what the unit file says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import UsageError
from console.host import systemd
from console.journal.run_dir import RunDir
from console.recovery.rollback import records
from console.runner import boot
from tests.run.unit.journals import BEGUN, Told, shelved


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers, state and site of this machine stay out of it: these tests call `rollback`."""
    for name in ("OMNI_HOST_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("OMNI_SITE", raising=False)


def pointed(run: RunDir) -> None:
    """As a runner of another boot left it."""
    records.write(records.Pointer(run.id, str(run.path), "me", os.getuid(), 2, 3))


DOWN: Told = BEGUN
BACK: Told = [*BEGUN, ("outage", "", 0, {"down": False, "restore_s": 1.0})]
FAILED: Told = [*BEGUN, ("run.state", "", 0, {"state": "rollback_failed"})]
CASES = [
    (DOWN, True, True), (BACK, True, False), (BEGUN[:2], True, False),
    (FAILED, False, True), (BACK, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("told", "points", "down"), CASES)
def test_only_an_outage_that_never_ended_counts(told: Told, points: bool, down: bool) -> None:
    run = shelved(told)
    if points:
        pointed(run)
    assert (boot.left_down() is not None) == down


def test_a_run_that_the_one_pointed_at_has_set_aside_counts() -> None:
    first = shelved(DOWN)
    second = shelved(BEGUN[:2], "20260102-000000-x-1a2b")
    pointed(first)
    second.rollback.mkdir()
    records.set_aside(os.getuid(), second.rollback)
    pointed(second)
    found = boot.left_down()
    assert found is not None
    assert found.path == first.path


def test_no_run_at_all_and_a_broken_journal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback", "--if-interrupted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nothing_to_do"] is True
    run = shelved(BACK)
    run.journal.write_bytes(b"\0" * 4096)
    assert boot.left_down() is None
    pointed(run)
    assert boot.left_down() is not None


def test_a_word_in_the_unit_file_stays_one_word() -> None:
    one = systemd.Unit(True, "ann")
    text = boot.text_of(
        systemd.Unit(False, "root"), '/s/a "b" $c %d.yaml', {"PATH": "/x y", "KEY": "s"}
    )
    assert '"/s/a \\"b\\" $$c %%d.yaml"' in text
    assert ('Environment="PATH=/x y"' in text, "KEY" in text) == (True, False)
    assert "User=ann" in boot.text_of(one, None, {})
    with pytest.raises(UsageError):
        boot.text_of(one, None, {"PATH": "a\nExecStart=b"})


def test_without_systemd_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "SYSTEMD", tmp_path / "no")
    units = tmp_path / "units"
    units.mkdir()
    monkeypatch.setattr(systemd, "SYSTEM_UNITS", units)
    assert main(["boot", "install"]) == main(["boot", "install", "--system"]) == 2
    assert main(["boot", "status"]) == 5
    assert main(["boot", "remove"]) == 0
    assert [*units.iterdir(), *(tmp_path / "XDG_CONFIG_HOME").iterdir()] == []
