"""What the kill tests share: real processes with a cookie, and made-up control groups."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import process
from console.host.cgroup import Hierarchy
from console.host.process import ProcessSpec
from console.recovery.guard.kill.killer import KillOperation
from console.recovery.rollback.live import Live
from tests.waiting import until

ID = "ab" * 32
OTHER = "cd" * 32


def finish(operation: KillOperation) -> None:
    """Advance the kill until it is over, as a sentinel does at its ticks."""
    try:
        until(operation.advance, "all of them are dead", where=lambda: str(operation.report()))
    finally:
        operation.close()


class Den:
    """Real processes in sessions of their own, ended when the test ends."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run_id = f"run-{os.urandom(6).hex()}"
        self.groups: list[tuple[int, int]] = []

    def spawn(self, code: str, cookie: str = "") -> tuple[int, int]:
        """Start a Python program in a session of its own."""
        spec = ProcessSpec((sys.executable, "-S", "-c", code))
        made = process.spawn(spec, log=self.root / "log", cookie=cookie or self.run_id)
        self.groups.append(made)
        return made

    def sleeper(self, cookie: str = "") -> tuple[int, int]:
        return self.spawn("import time; time.sleep(600)", cookie)

    def said(self, word: str) -> list[int]:
        """Return the pids that programs wrote after `word`."""
        with contextlib.suppress(OSError):
            rows = [line.split() for line in (self.root / "log").read_text().splitlines()]
            return [int(row[1]) for row in rows if len(row) == 2 and row[0] == word]
        return []

    def close(self) -> None:
        for pid, start in [*self.groups, *process.by_cookie(self.run_id)]:
            for one in process.members(pid, start):
                with contextlib.suppress(OSError):
                    process.send(one.pid, one.start, signal.SIGKILL)


@pytest.fixture
def lair(tmp_path: Path) -> Iterator[Den]:
    made = Den(tmp_path)
    yield made
    made.close()


def line(kind: str, name: str, who: tuple[int, int]) -> Live:
    return Live(kind, name, *who)


def made_up(root: Path, container: str = ID, *, version: int = 2) -> tuple[Hierarchy, ...]:
    """Make a hierarchy with one container's group in it, as plain files."""
    path = root / "docker" / container
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text("")
    if version == 2:
        (path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        (path / "cgroup.kill").write_text("")
    return (Hierarchy(str(root), "" if version == 2 else "memory"),)
