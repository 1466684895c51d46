"""What processes hold, and how long their end may take."""

from __future__ import annotations

import os
import subprocess
import sys

from console.host import memory
from console.host.memory import GIB, Resident
from tests.waiting import until

HOLD = "import sys; held = bytearray(64 << 20); print('up', flush=True); sys.stdin.read()"


def test_what_a_process_holds_for_itself() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        one = memory.resident([child.pid])
        assert 64 << 20 <= one.own <= one.total
        assert memory.resident([child.pid, child.pid]).own >= 2 * (64 << 20)
        child.kill()
        until(lambda: memory.resident([child.pid]) == Resident(0, 0), "it holds nothing any more")


def test_the_wait_grows_with_what_is_held() -> None:
    assert memory.kill_wait_s(Resident(0, 0)) == 10.0
    assert 157 <= memory.kill_wait_s(Resident(377 * GIB, 0)) <= 300, "as long as was measured"


def test_nothing_is_nobodys_container() -> None:
    assert memory.pids_of_container("") == []
    assert os.getpid() not in memory.pids_of_container("f" * 64)
