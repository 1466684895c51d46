"""Host processes, with real children."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.common import files
from console.common.clock import SystemClock
from console.common.errors import ConsoleError
from console.host import process
from console.host.privileges import oom_score
from console.host.process import ProcessSpec
from console.journal.store import JournalError
from console.runtime.process_driver import ProcessDriver
from console.runtime.spec import Handle, Launch, ServiceSpec
from tests.clock import FakeClock
from tests.licences import CANDIDATE
from tests.waiting import some, until

Start = Callable[..., tuple[int, int]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def start(log: Path) -> Iterator[Start]:
    begun: list[tuple[int, int]] = []

    def go(*argv: str, cookie: str = "c", **spec: object) -> tuple[int, int]:
        made = ProcessSpec(argv, **spec)  # type: ignore[arg-type]
        begun.append(process.spawn(made, log=log, cookie=cookie))
        return begun[-1]

    yield go
    for pid, at in begun:
        for one in process.all_stats():
            if one.session == pid and one.start >= at:
                process.send(one.pid, one.start, signal.SIGKILL)


def test_start_time_survives_a_hostile_command_name(tmp_path: Path, start: Start) -> None:
    program = tmp_path / "a) S 1 (b c"
    program.write_text("#!/bin/sh\necho up\nsleep 600\n")
    program.chmod(0o755)
    pid, begun = start(str(program))
    until(lambda: "(a) S 1" in Path(f"/proc/{pid}/stat").read_text())
    assert process.start_time(pid) == begun
    assert process.start_time(pid) > process.start_time(1)  # type: ignore[operator]
    assert process.start_time(2**22 + 5) is None


def test_alive_wants_pid_and_start_and_no_zombie(start: Start) -> None:
    pid, begun = start("sleep", "600")
    assert process.alive(pid, begun)
    assert not process.alive(pid, begun + 1)
    child = subprocess.Popen(["true"])
    until(lambda: (s := process.stat(child.pid)) is not None and s.state == "Z")
    assert not process.alive(child.pid, process.start_time(child.pid) or 0)
    child.wait()


def test_spawned_child_does_not_stay_a_zombie(start: Start) -> None:
    pid, begun = start("sh", "-c", "exit 3")
    until(lambda: process.stat(pid) is None, "it is gone")
    until(lambda: process.exit_code(pid, begun) == 3, "its exit code is known")


def test_argv_environment_session_and_streams(
    start: Start, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    code = (
        "import json, os, sys; print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ),"
        "'cwd': os.getcwd(), 'sid': os.getsid(0), 'in': os.readlink('/proc/self/fd/0'),"
        "'fds': sorted(os.listdir('/proc/self/fd'))}), flush=True);"
        "print('err', file=sys.stderr, flush=True)"
    )
    log.write_text("before\n")  # it is appended to
    words = ["", "a b", "$(id)", "é", "-x", "l1\nl2", "'"]
    spec = {"env": (("MY", "own"),), "cwd": str(tmp_path)}
    pid, _ = start(sys.executable, "-c", code, *words, cookie="run-1", **spec)
    until(lambda: "err" in log.read_text(), "it says err")
    before, line, _ = log.read_text().splitlines()
    said = json.loads(line)
    assert before == "before"
    env, fds = said.pop("env"), said.pop("fds")
    assert said == {"argv": words, "cwd": str(tmp_path), "sid": pid, "in": "/dev/null"}
    assert (env["OMNI_RUN"], env["MY"], env["LC_TIME"]) == ("run-1", "own", "C")
    assert "HF_TOKEN" not in env
    assert len(fds) == 4  # three streams and the listing itself


def test_stop_group_ends_the_tree_gracefully(start: Start, log: Path) -> None:
    body = "trap 'echo bye; exit 0' TERM; sleep 600 & echo up; wait"
    pid, begun = start("sh", "-c", body)
    until(lambda: "up" in log.read_text(), "it says up")
    assert process.stop_group(pid, begun, grace_s=10, clock=SystemClock())
    assert "bye" in log.read_text()
    assert process.members(pid, begun) == []


class Hurried(FakeClock):
    """Ten times as quick as the machine's, which has to get round to what was killed."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        time.sleep(seconds / 10)


def test_stop_group_kills_what_ignores_the_signal(start: Start, log: Path) -> None:
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    pid, begun = start(sys.executable, "-c", code + "; time.sleep(600)")
    until(lambda: "up" in log.read_text(), "it says up")
    clock = Hurried()
    assert process.stop_group(pid, begun, grace_s=1, clock=clock)
    assert sum(clock.slept) >= 1
    until(lambda: process.exit_code(pid, begun) == -signal.SIGKILL, "its exit code is known")


def test_stop_group_finds_children_of_a_dead_leader(start: Start, log: Path) -> None:
    pid, begun = start("sh", "-c", "sleep 600 & echo up")
    until(lambda: process.stat(pid) is None, "it is gone")
    assert len(process.members(pid, begun, cookie="c")) == 1
    assert process.stop_group(pid, begun, grace_s=5, clock=SystemClock(), cookie="c")
    assert process.members(pid, begun, cookie="c") == []


def test_a_group_without_its_leader_is_known_by_its_cookie(start: Start, log: Path) -> None:
    """Its number may belong to a daemon by now, and each of those is in a session without a leader.
    One member with the cookie vouches for all of them: one that has changed its title, as vLLM's
    engine does, may have written over its environment."""
    pid, begun = start("sh", "-c", "sleep 600 & env -i sleep 600 & echo up")
    until(lambda: process.stat(pid) is None and "up" in log.read_text(), "it is gone")
    for cookie in ("", "c2"):
        assert not process.stop_group(pid, begun - 5000, grace_s=0, cookie=cookie)

    def carry() -> list[bool]:
        return sorted(
            process.carries(one.pid, "c") for one in process.members(pid, begun, cookie="c")
        )

    until(lambda: carry() == [False, True], "`env -i` has become the program it runs", where=carry)


def test_a_server_that_changes_its_title_keeps_its_cookie() -> None:
    """py-setproctitle, which vLLM and SGLang use, leaves the environment alone then."""
    assert process.environment([], "c")["SPT_NOENV"] == "1"
    assert process.environment([("SPT_NOENV", "")], "c")["SPT_NOENV"] == ""


def test_a_group_is_known_that_was_seen_with_its_leader(start: Start, log: Path) -> None:
    pid, begun = start("sh", "-c", "env -i sleep 600 & echo up; wait")
    group = process.Group(pid, begun, "c")
    until(lambda: "up" in log.read_text() and len(group.members()) == 2, "both are seen")
    process.send(pid, begun, signal.SIGKILL)
    until(lambda: process.stat(pid) is None, "the leader is gone")
    (left,) = group.members()
    assert process.members(pid, begun, cookie="c") == []
    process.send(left.pid, left.start, signal.SIGKILL)
    until(lambda: group.members() == [], "nobody is left")


def test_stop_group_reaches_a_group_of_its_own_in_the_session(start: Start, log: Path) -> None:
    code = "import os,time; os.fork() or os.setpgid(0, 0); print('up', flush=True)"
    pid, begun = start(sys.executable, "-c", code + "; time.sleep(600)")
    until(lambda: log.read_text().count("up") == 2)
    assert len({s.group for s in process.members(pid, begun)}) == 2
    process.stop_group(pid, begun, grace_s=5, clock=SystemClock())
    assert process.members(pid, begun) == []


def test_own_group_is_never_a_member() -> None:
    me = os.getpid()
    found = process.members(os.getsid(0), 0)
    assert me not in {s.pid for s in found}
    assert not {s.pid for s in found} & process.ancestry(me)


def test_by_cookie_matches_exactly(start: Start) -> None:
    cookie = f"cookie-{os.getpid()}-77"  # nobody else's on this machine
    mine = start("sleep", "600", cookie=cookie)
    other = start("sleep", "600", cookie=f"{cookie}7")
    until(lambda: mine in process.by_cookie(cookie) and other in process.by_cookie(f"{cookie}7"))
    assert process.by_cookie(cookie) == [mine]


def service(name: str, *argv: str) -> ServiceSpec:
    return ServiceSpec(name, "http://127.0.0.1:1", ProcessSpec(argv))


def test_driver_life(tmp_path: Path, log: Path) -> None:
    driver = ProcessDriver(service("cand", "sleep", "600"), tmp_path / "records")
    assert driver.find() is None
    seen: list[Handle] = []
    handle = driver.start(Launch("run-2", log, seen.append))
    try:
        assert seen == [handle]
        again = ProcessDriver(service("cand", "sleep", "600"), tmp_path / "records")
        assert again.find() == handle
        other = ProcessDriver(service("cand", "sleep", "601"), tmp_path / "records")
        assert other.find() is None
        assert again.start(Launch("run-3", log, seen.append)) == handle
        assert driver.status(handle).alive
        assert oom_score(handle.pid) == 1000, "the kernel takes it before everything else"
    finally:
        driver.stop(CANDIDATE, handle, 5)
    assert driver.find() is None
    until(lambda: driver.status(handle).exit_code == -signal.SIGTERM, "its exit code is known")
    assert "SIGTERM" in driver.status(handle).detail


def test_a_baseline_is_no_candidate_to_the_kernels_killer(tmp_path: Path, log: Path) -> None:
    driver = ProcessDriver(service("baseline", "sleep", "600"), tmp_path / "records")
    handle = driver.start(Launch("run-2", log, lambda _: None))
    try:
        assert oom_score(handle.pid) == oom_score()
    finally:
        driver.stop(CANDIDATE, handle, 5)


def short(monkeypatch: pytest.MonkeyPatch, path: str, times: float) -> None:
    """The kernel lacks memory when that file of its is read, so many times."""
    real, left = files.read_kernel, [times]

    def read(asked: Path | str) -> bytes:
        if str(asked) == path and left[0] > 0:
            left[0] -= 1
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)
        return real(asked)

    monkeypatch.setattr(files, "read_kernel", read)
    monkeypatch.setattr(files, "_lasting", [-files.LASTS_S])


def test_a_moment_without_memory_makes_nothing_gone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, begun = start("sleep", "600")
    short(monkeypatch, f"/proc/{pid}/stat", 1)
    assert process.send(pid, begun, signal.SIGKILL)
    until(lambda: not process.alive(pid, begun), "it is dead")


def test_a_process_that_the_kernel_says_nothing_of_runs_and_is_not_signalled(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, begun = start("sleep", "600")
    short(monkeypatch, f"/proc/{pid}/stat", math.inf)
    assert process.alive(pid, begun)
    with pytest.raises(PermissionError):
        process.send(pid, begun, signal.SIGKILL)
    monkeypatch.undo()
    assert process.alive(pid, begun)


@pytest.mark.parametrize(
    "error", [OSError(errno.EROFS, os.strerror(errno.EROFS), "live.jsonl"), JournalError("full")]
)
def test_what_cannot_be_recorded_does_not_live(tmp_path: Path, log: Path, error: Exception) -> None:
    """A rollback ends what is on record: anything else would run beside the baseline."""
    seen: list[Handle] = []

    def record(handle: Handle) -> None:
        seen.append(handle)
        raise error

    driver = ProcessDriver(service("cand", "sleep", "600"), tmp_path / "records")
    with pytest.raises(ConsoleError):
        driver.start(Launch("run-2", log, record))
    [handle] = seen
    assert not driver.status(handle).alive


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}'])
def test_garbage_record_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "cand.json").write_text(text)
    assert ProcessDriver(service("cand", "true"), tmp_path).find() is None


def test_record_of_another_boot_is_no_process(tmp_path: Path, start: Start) -> None:
    spec = ProcessSpec(("sleep", "600"))
    pid, begun = start("sleep", "600")
    process.write_record(tmp_path, "cand", spec, pid, begun)
    assert process.read_record(tmp_path, "cand", spec) == (pid, begun)
    value = json.loads((tmp_path / "cand.json").read_text())
    (tmp_path / "cand.json").write_text(json.dumps({**value, "boot_id": "earlier"}))
    assert process.read_record(tmp_path, "cand", spec) is None


HEADLESS = """
import ctypes, platform, threading, time
kept = bytearray(b"x" * (64 << 20))
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_leader_that_ended_before_its_threads_is_alive(start: Start) -> None:
    pid, begun = start(sys.executable, "-c", HEADLESS)
    until(lambda: "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text(), "it is in that state")
    found = some(process.stat(pid))
    assert found.state == "z"
    assert process.alive(pid, begun)
    assert [one.pid for one in process.members(pid, begun)] == [pid]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not process.alive(pid, begun), "it is dead")
    assert process.exit_code(pid, begun) in (None, -signal.SIGKILL)


@pytest.mark.parametrize(("kills", "words"), [
    ([5, 6], "; the kernel counted 1 OOM kill meanwhile"),
    ([5, 5], "; the kernel counted no OOM kill meanwhile, so somebody killed it"),
    ([None], ": out of memory, or somebody killed it"),
])  # fmt: skip
def test_an_end_by_sigkill_names_the_kernels_count(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, kills: list[int | None], words: str
) -> None:
    told = iter(kills)
    monkeypatch.setattr("console.runtime.process_driver.oom_kills", lambda: next(told))
    monkeypatch.setattr("console.host.memory.oom_kills", lambda: next(told))
    driver = ProcessDriver(service("cand", "sleep", "600"), tmp_path)
    handle = driver.start(Launch("r", log, lambda handle: None))
    process.send(handle.pid, handle.start, signal.SIGKILL)
    until(lambda: process.exit_code(handle.pid, handle.start) is not None, "it is reaped")
    assert driver.status(handle).detail == f"ended by signal 9 (SIGKILL){words}"
