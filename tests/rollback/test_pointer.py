"""What a pointer tells after a reboot, and without a home; and what another user's process says."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import time
import tracemalloc

import pytest

from console.common import paths
from console.common.errors import ConsoleError
from console.host import process
from console.recovery.rollback import records
from console.recovery.rollback.command import rollback
from console.recovery.rollback.records import Pointer
from tests.rollback.conftest import NOBODY, Stage, as_root


@pytest.mark.parametrize("boot", ["another", process.boot_id()])
def test_a_runner_of_another_boot_is_nobody(stage: Stage, boot: str) -> None:
    """Pid and start time, both equal, are another process's after a reboot."""
    who = stage.sleeper("no")
    stage.point(pid=who[0], start=who[1], boot=boot)
    found = records.read(os.getuid())
    assert found is not None
    named = (0, 0) if boot == "another" else who
    assert (found.run_id, found.pid, found.start) == (stage.plan.run_id, *named)
    assert rollback(None, False, stage.lines.append).serving
    assert process.alive(*who) is (boot == "another")


def test_a_pointer_of_an_older_release_is_of_the_boot_that_it_was_written_in(stage: Stage) -> None:
    path = stage.point(pid=os.getpid(), start=7)
    value = json.loads(path.read_text())
    del value["boot"]
    path.write_text(json.dumps(value))
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for date, pid in ((booted + 60, os.getpid()), (booted - 60, 0)):
        os.utime(path, (date, date))
        found = records.read(os.getuid())
        assert found is not None
        assert found.pid == pid, date


@pytest.fixture
def homeless(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME is not set, and the list of users does not know this one."""

    def getpwuid(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", getpwuid)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_has_a_pointer(stage: Stage) -> None:
    stage.point()
    assert rollback(None, False, stage.lines.append).serving


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_or_a_pointer_is_told_so() -> None:
    with pytest.raises(ConsoleError, match="nothing says what to bring back") as raised:
        rollback(None, False, None)
    assert "HOME" in raised.value.detail
    assert "--site FILE" in raised.value.hint
    with pytest.raises(OSError, match="set HOME"):
        paths.make(paths.runs_dir())


@as_root
def test_what_another_users_rollback_prints_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo over; exit 7"
    monkeypatch.setattr(records, "module_argv", lambda name: ("/bin/sh", "-c", words, "sh"))
    notes: list[str] = []
    tracemalloc.start()
    try:
        records.roll_back_first(Pointer("theirs", "/r", "x", NOBODY, 2, 2), notes.append)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert notes[1:] == ["nobody: exit 7, over"]


def test_one_that_prints_for_ever_is_not_waited_for() -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            records.last_said(child, 0.1)
        child.kill()
