"""What several of these tests share: made-up trees of files, and real processes with a cookie."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.host.cgroup import Hierarchy
from console.host.process import ProcessSpec
from console.recovery.guard import breach
from console.recovery.guard.config import Limit
from console.recovery.guard.kill.killer import Killer, KillOperation
from console.recovery.guard.kill.targets import Target
from console.recovery.rollback.live import Live
from tests.children import making
from tests.testbed.plugin import lacking
from tests.waiting import until

ID = "ab" * 32
OTHER = "cd" * 32


def put(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def kill_all(killer: Killer, found: Sequence[Target]) -> KillOperation:
    """Kill to the end, which has to be a good one, as a sentinel does at its ticks."""
    operation = killer.kill(found)
    try:
        until(operation.advance, "all of them are dead", where=lambda: str(operation.report()))
    finally:
        operation.close()
    assert operation.empty, operation.report()
    return operation


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
        with suppress(OSError):
            rows = [line.split() for line in (self.root / "log").read_text().splitlines()]
            return [int(row[1]) for row in rows if len(row) == 2 and row[0] == word]
        return []

    def close(self) -> None:
        for pid, start in [*self.groups, *process.by_cookie(self.run_id)]:
            for one in process.members(pid, start):
                with suppress(OSError):
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


@pytest.fixture(autouse=True)
def _a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let breach.json be on disk before a test reads it, however long the disk takes."""
    monkeypatch.setattr(breach, "WRITE_S", 60.0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A guard loop on a made-up machine (`made_site.Site`) that has run for a second."""
    from tests.guard.made_site import Site

    def one(*limits: Limit, **changes: Any) -> Site:
        site = Site(tmp_path, *limits, **changes)
        site.pass_time(1)
        return site

    with making(one, Site.close) as make:
        yield make


UID = 54321
ROOT = Path(__file__).parents[2]
DROP = """
import json, os, sys
import console.recovery.guard.kill.killer, console.recovery.guard.kill.targets
import console.recovery.guard.kill.signals, console.recovery.rollback.live
groups, arguments = json.loads(sys.argv[1])
os.setgroups(groups)
os.setgid({uid})
os.setuid({uid})
"""


def as_user(code: str, groups: list[int], *arguments: Any) -> Any:
    """Return what `code` prints, as JSON. The code has `arguments`, and its modules are loaded as
    root before."""
    if os.geteuid() != 0:
        lacking("only root can become another user")
    program = DROP.format(uid=UID) + code
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps([groups, arguments])],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KILL = """
import time
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import Deny, sort_out
from console.recovery.rollback.live import Live
identity, engine, helper, limit_s = arguments
killer = Killer("", Deny(), engine=engine, helper=helper, release=False)
targets = sort_out([Live("container", "hog", container=identity)], Deny())[0]
begun = time.monotonic()
operation = killer.kill(targets)
while not operation.advance() and time.monotonic() - begun < limit_s: time.sleep(0.005)
operation.close()
print(json.dumps([operation.empty, operation.report()]))
"""


def kill_as_user(
    groups: list[int], container: str, *, engine: str = "", helper: str = "/nowhere",
    limit_s: float = 60.0,
) -> tuple[bool, dict[str, Any]]:  # fmt: skip
    """Return whether a user of these groups has killed a container, and the report."""
    empty, report = as_user(KILL, groups, container, engine, helper, limit_s)
    return empty, report
