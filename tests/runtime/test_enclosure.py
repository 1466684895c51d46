"""Whoever a host process starts stays in its group, and ends with it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import cgroup, process
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import Deny, sort_out
from console.recovery.rollback import live
from console.recovery.rollback.live import Live
from tests.children import end
from tests.waiting import some, until

ROOT = Path(__file__).parents[2]
ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.fixture
def escaping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that at once starts one which shares nothing with it any more."""
    argv = [sys.executable, "-S", "-c", ESCAPE]
    with cgroup.popen(argv, stdin=subprocess.DEVNULL, start_new_session=True) as child:
        yield child
        start = process.start_time(child.pid) or 0
        cgroup.end(cgroup.of_process(child.pid, start), child.pid, start)
        child.kill()


def escaped(child: subprocess.Popen[bytes]) -> tuple[str, int, int]:
    """The group, and the pid and start time of the one who got away."""
    start = process.start_time(child.pid) or 0
    path = cgroup.of_process(child.pid, start)
    assert path, "root makes groups here"

    def away() -> list[int]:
        """Read twice: the one between has ancestors no more once it has ended."""
        found = [pid for pid in cgroup.pids(path) if pid != child.pid]
        alone = len(found) == 1 and process.ancestry(found[0]).isdisjoint({child.pid})
        return found if alone and {*cgroup.pids(path)} == {child.pid, *found} else []

    (pid,) = until(away, "it is away")
    assert [one.pid for one in process.members(child.pid, start)] == [child.pid]
    return path, pid, process.start_time(pid) or 0


def gone(pid: int, start: int) -> bool:
    return not process.alive(pid, start)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a control group")
def test_the_end_of_a_process_is_the_end_of_all_it_started(
    escaping: subprocess.Popen[bytes],
) -> None:
    path, pid, start = escaped(escaping)
    end(escaping)
    assert cgroup.end(path, escaping.pid, int(path.rpartition(".")[2]), spared={pid}) == 0
    assert not gone(pid, start), "somebody in it is spared: it is left alone"
    assert cgroup.end(path, escaping.pid, int(path.rpartition(".")[2])) == 1
    until(lambda: gone(pid, start), "it is dead")
    until(lambda: not cgroup.pids(path), "the group is empty")
    cgroup.sweep()
    assert not Path(path).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a control group")
@pytest.mark.parametrize("leader", ["lives", "is gone"])
def test_a_guard_kills_who_got_away(
    escaping: subprocess.Popen[bytes], tmp_path: Path, leader: str
) -> None:
    path, pid, start = escaped(escaping)
    entry = Live("process", "cand", escaping.pid, int(path.rpartition(".")[2]), group=path)
    live.append(tmp_path / live.LIVE, entry)
    (read,) = live.read(tmp_path / live.LIVE)
    assert read == entry
    if leader == "is gone":
        end(escaping)
    deny = Deny()
    (target,) = sort_out([read], deny)[0]
    killer = Killer("", deny, release=False)
    operation = killer.kill([target])
    until(lambda: operation.advance() or operation.over, "all are dead")
    assert gone(pid, start)
    assert "cgroup.kill" in operation.killed[0].stages
    operation.close()
    killer.close()


def test_the_command_is_what_it_would_be_without(tmp_path: Path) -> None:
    """Its pid, session, arguments and environment, byte for byte, and no signal ignored."""
    show = "import os, sys; os.write(1, repr((os.getpid() == os.getsid(0), sys.argv, os.getcwd(),"
    show += " open('/proc/self/environ', 'rb').read(), os.listdir('/proc/self/fd'),"
    # SigQ counts the signals of every process of this user
    show += " [row for row in open('/proc/self/status')"
    show += " if row.startswith('Sig') and not row.startswith('SigQ')])).encode())"
    argv = [sys.executable, "-S", "-c", show, "", "-x", "a b", os.fsdecode(b"\xff\n$(id)")]
    said = []
    for popen in (subprocess.Popen, cgroup.popen):
        with popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
            cwd=tmp_path, env={"LC_ALL": "C", "ODD-NAME": "\udcff", "A": "=b"},
        ) as child:  # fmt: skip
            said.append(some(child.stdout).read())
    assert said[0] == said[1]
    assert b"True" in said[0]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where groups are made, for a while: none but this test's are there."""
    own = Path(cgroup._home() or "/nowhere")
    made = own / f"home.{os.getpid()}"
    if os.access(own, os.W_OK):
        made.mkdir()
        monkeypatch.setattr(cgroup, "_home", lambda: str(made))
    yield made
    if made.exists():
        made.rmdir()


@pytest.mark.parametrize("argv", [["no-such-program"], ["/etc/passwd"], ["/nowhere/at all", "x"]])
def test_a_command_that_cannot_be_run_is_the_same_error(argv: list[str], home: Path) -> None:
    found = []
    for popen in (subprocess.Popen, cgroup.popen):
        with pytest.raises(OSError, match=argv[0]) as raised:
            popen(argv, start_new_session=True)
        found.append((raised.value.errno, raised.value.strerror))
    assert found[0] == found[1]
    assert list(home.glob("omni.*")) == [], "no group is left behind"


def test_a_bad_directory_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        cgroup.popen(["true"], cwd=str(tmp_path / "nowhere"))
    assert raised.value.filename == str(tmp_path / "nowhere")


def test_libraries_of_the_command_are_not_the_interpreters(tmp_path: Path) -> None:
    """An engine's LD_LIBRARY_PATH may have libraries with which Python does not start."""
    (tmp_path / "libm.so.6").write_bytes(b"no library")
    env = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": os.environ["PATH"]}
    show = 'echo "$LD_LIBRARY_PATH"'
    with cgroup.popen(["/bin/sh", "-c", show], stdout=subprocess.PIPE, env=env) as child:
        assert some(child.stdout).read().decode().strip() == str(tmp_path)
    assert child.returncode == 0


def test_without_groups_it_is_started_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for home in ("", "/proc/self", "/nowhere"):
        monkeypatch.setattr(cgroup, "_home", lambda home=home: home)
        with cgroup.popen(["true"]) as child:
            assert child.wait() == 0


def test_a_forged_group_is_nobodys() -> None:
    pid, start = os.getpid(), process.start_time(os.getpid()) or 0
    for path in (
        "",
        "/",
        "/sys/fs/cgroup",
        f"/tmp/omni.{pid}.{start}",
        f"/sys/../omni.{pid}.{start}",
    ):
        assert cgroup.of(path, pid, start) is None
        assert cgroup.end(path, pid, start) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a control group")
def test_it_is_found_from_another_session(escaping: subprocess.Popen[bytes]) -> None:
    """For root every login has a group of its own."""
    path = escaped(escaping)[0]
    aside = Path(path).with_name(f"elsewhere.{os.getpid()}")
    aside.mkdir()
    start = path.rpartition(".")[2]
    asked = f"of_process({escaping.pid}, {start})"
    ask = f"from console.host.cgroup import of_process; print({asked})"
    move = f'echo 0 > {aside}/cgroup.procs && exec "$0" -c "$1"'
    try:
        said = subprocess.check_output(["sh", "-c", move, sys.executable, ask], cwd=ROOT)
    finally:
        aside.rmdir()
    assert said.decode().strip() == path
