"""What a pointer tells after a reboot."""

from __future__ import annotations

import json
import os
import time

import pytest

from console.host import process
from console.recovery.rollback import records
from console.recovery.rollback.command import rollback
from tests.rollback.conftest import Stage


def test_a_runner_of_another_boot_is_nobody(stage: Stage) -> None:
    """Pid and start time, both equal, are another process's after a reboot."""
    who = stage.sleeper("no")
    stage.point(pid=who[0], start=who[1], boot="another")
    found = records.read(os.getuid())
    assert found is not None
    assert (found.run_id, found.pid, found.start) == (stage.plan.run_id, 0, 0)
    assert rollback(None, False, stage.lines.append).serving
    assert process.alive(*who)


@pytest.mark.parametrize("plan", [True, False])
def test_a_runner_of_this_boot_is_ended(stage: Stage, plan: bool) -> None:
    who = stage.sleeper("no")
    stage.point(pid=who[0], start=who[1], boot=process.boot_id())
    if not plan:
        (stage.plan.rollback_dir / "plan.json").unlink()
    rollback(None, False, stage.lines.append)
    assert not process.alive(*who)


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
