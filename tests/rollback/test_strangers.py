"""Another local user: what that user puts somewhere, holds or runs decides nothing."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console import paths
from console.errors import HostBusy
from console.rollback import pointer
from console.run import lock
from console.services import process, relay
from console.services.base import COOKIE, ProcessSpec
from tests.ports import free_port
from tests.rollback.conftest import Stage
from tests.waiting import until

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")

HOLDER = """
import fcntl, os, socket, sys, time
os.setgroups([])
os.setuid(65534)
if sys.argv[1].isdigit():
    door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
elif sys.argv[1] != "-":
    fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stranger(stage: Stage) -> Callable[..., tuple[int, int]]:
    """A process of another user's that holds a file's lock or listens on a port."""

    def begin(what: object, *words: str, cookie: str = "theirs") -> tuple[int, int]:
        said = stage.root / "log"
        said.unlink(missing_ok=True)
        argv = (sys.executable, "-S", "-c", HOLDER, str(what), *words)
        found = process.spawn(ProcessSpec(argv), log=said, cookie=cookie)
        stage.groups.append(found)
        until(lambda: "held" in said.read_text(), "it holds it")
        return found

    return begin


@pytest.fixture
def sticky(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host directory that everybody may write to; this process is no root in it."""
    path = paths.host_dir()
    path.chmod(0o1777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    return path


def theirs(path: Path) -> Path:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


@pytest.mark.parametrize("thing", ["fifo", "file", "link", "directory"])
def test_what_is_planted_holds_no_run_up(stage: Stage, sticky: Path, thing: str) -> None:
    """In the place of the lock and of the pointer. A sticky directory lets nobody remove it."""
    for path in (paths.host_lock(os.getuid()), paths.pointer(os.getuid())):
        make = {"fifo": os.mkfifo, "directory": os.mkdir, "file": Path.touch}
        if thing == "link":
            path.symlink_to(stage.root / "victim")
        else:
            make[thing](path)
        theirs(path)
    held = lock.HostLock()
    with pytest.raises(HostBusy):
        lock.HostLock()
    stage.point()
    assert [one.run_id for one in pointer.find_all()] == [stage.plan.run_id]
    pointer.clear(stage.plan.run_id)
    assert pointer.find_all() == []
    held.release()
    assert lock.is_free()
    assert not (stage.root / "victim").exists()


def test_a_lock_that_is_only_held_is_no_run(
    stage: Stage, sticky: Path, stranger: Callable[..., tuple[int, int]]
) -> None:
    """Only a run counts: the pointer's process, which holds its user's own lock."""
    path = theirs_lock()
    pid, start = stranger(path)
    assert lock.is_free()
    made = stage.point(uid=NOBODY, run_id="theirs", pid=pid, start=start)
    theirs(made)
    with pytest.raises(HostBusy, match="another run holds this host"):
        lock.HostLock()
    theirs(stage.point(uid=NOBODY, run_id="theirs", alive=True))
    assert lock.is_free()


def theirs_lock() -> Path:
    path = paths.host_lock(NOBODY)
    path.touch()
    return theirs(path)


def test_a_command_line_of_another_user_is_no_relay(
    stage: Stage, stranger: Callable[..., tuple[int, int]]
) -> None:
    """Unless that user really has the port; and what its environment says is not believed."""
    port = free_port()
    url = f"http://localhost:{port}"
    words = ("-m", relay.MODULE, f"127.0.0.1:{port}", "127.0.0.1:9", "cand")
    pid, _ = stranger("-", *words[1:])
    assert relay.at(url) is None
    assert pid in {one.pid for one in relay.every()}
    with socket.create_server(("127.0.0.2", port)):
        assert relay.at(url) is None
    pid, _ = stranger(port, *words[1:], cookie="../../evil")
    found = relay.at(url)
    assert found is not None
    assert (found.uid, found.run) == (NOBODY, "")
    assert COOKIE in Path(f"/proc/{pid}/environ").read_text()


def test_a_relay_at_another_address_is_left_alone(
    stage: Stage, restore: Callable[[], None]
) -> None:
    """On the same port, for clients of another site; ours is on every address."""
    port = relay.port_of(stage.plan.baseline.url)
    argv = (sys.executable, "-S", "-c", "import time; time.sleep(600)", relay.MODULE)
    far, near, wide = (
        stage.spawn([*argv, f"{host}:{port}", "127.0.0.1:9", "cand"], cookie="other")
        for host in ("192.168.1.5", "127.0.0.1", "0.0.0.0")
    )
    until(lambda: {far[0], near[0], wide[0]} <= {one.pid for one in relay.every()}, "they are up")
    assert {one.pid for one in relay.all_at(stage.plan.baseline.url)} == {near[0], wide[0]}
    restore()
    assert [process.alive(*one) for one in (far, near, wide)] == [True, False, False]
