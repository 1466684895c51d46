"""Killing real processes, and control groups made of files: every stage, and what is left."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import cgroup, process
from console.host.cgroup import Hierarchy
from console.recovery.guard.kill import mrelease, sequence, signals
from console.recovery.guard.kill.killer import RESTARTS, Killer
from console.recovery.guard.kill.signals import UnixRequest, kill_request, socket_of, status
from console.recovery.guard.kill.targets import Deny, Target, sort_out
from console.recovery.rollback.live import Live
from tests.clock import FakeClock
from tests.guard.conftest import ID, Den, kill_all, line, made_up
from tests.runtime.serving import serving, unix_listener
from tests.testbed.plugin import lacking
from tests.waiting import until

NONE: tuple[Hierarchy, ...] = ()


@pytest.fixture
def killer(lair: Den) -> Iterator[Killer]:
    made = Killer(lair.run_id, Deny(), helper="/nowhere", release=False)
    yield made
    made.close()


def test_whoever_stands_is_struck_before_the_ended_are_looked_for(
    lair: Den, killer: Killer, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = lair.sleeper()
    ended = [Target("container", "old", f"{number:064x}") for number in range(9)]
    looks = []

    def processes() -> dict[str, int]:
        looks.append(until(lambda: not process.alive(*who), "it is dead"))
        return {}

    monkeypatch.setattr(cgroup, "processes", processes)
    killer.kill([*ended, *targets(lair, who)]).close()
    assert looks == [True], "one look for all nine, when the process was dead"


def targets(lair: Den, *who: tuple[int, int]) -> tuple[Target, ...]:
    deny = Deny(run=lair.run_id)
    found = sort_out([line("process", "cand", one) for one in who], deny, NONE)[0]
    assert len(found) == len(who)
    return found


def of_files(root: Path, **killer: object) -> tuple[Killer, Target, Path]:
    trees = made_up(root)
    made = Killer("", Deny(), helper="/nowhere", release=False, **killer)  # type: ignore[arg-type]
    made.trees = trees
    (target,) = sort_out([Live("container", "cand", container=ID)], Deny(), trees)[0]
    return made, target, root / "docker" / ID


FAMILY = """
import os, time
print("leader", os.getpid(), flush=True)
for word in ("group", "session", "daemon"):
    if os.fork() == 0:
        if word != "group": os.setsid()
        if word == "daemon" and os.fork(): os._exit(0)
        print(word, os.getpid(), flush=True)
        break
time.sleep(600)
"""


def test_a_process_with_its_whole_family_dies(lair: Den, killer: Killer) -> None:
    """The kill reaches its group, a child in a session of its own, and a double-forked one with the
    cookie."""
    leader, bystander = lair.spawn(FAMILY), lair.sleeper(cookie="another-run")
    words = ("group", "session", "daemon")
    until(lambda: all(lair.said(word) for word in words), "it has said so")
    pids = [leader[0], *(lair.said(word)[0] for word in words)]
    operation = kill_all(killer, targets(lair, leader))
    assert not any((found := process.stat(pid)) and found.state not in "ZX" for pid in pids)
    assert process.alive(*bystander)
    first, stray = operation.killed
    assert (first.stages, first.why, stray.kind) == (("signals",), (), "stray")
    assert operation.report()["written_s"] == first.written_s
    assert first.written_s is not None
    assert first.empty_s is not None
    assert 0 <= first.written_s <= first.empty_s


ORPHAN = """
import os, time
if os.fork(): os._exit(0)
print("left", os.getpid(), flush=True)
time.sleep(600)
"""


def test_a_group_whose_leader_is_gone_dies(lair: Den, killer: Killer) -> None:
    leader = lair.spawn(ORPHAN)
    until(lambda: lair.said("left") and not process.alive(*leader), "it is dead")
    (left,) = lair.said("left")
    assert process.stat(left) is not None
    kill_all(killer, targets(lair, leader))
    until(lambda: process.stat(left) is None, "it is gone")


BOMB = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    for _ in range(40):
        if os.fork() == 0:
            os.setpgid(0, 0)
            time.sleep(0.2)
            os._exit(0)
    time.sleep(0.1)
"""


def test_a_fork_bomb_of_processes_dies(lair: Den, killer: Killer) -> None:
    """The bomb keeps some forty processes alive, each in a process group of its own."""
    leader = lair.spawn(BOMB)
    until(lambda: len(process.members(*leader)) > 20, "its processes are there")
    kill_all(killer, targets(lair, leader))
    assert process.members(*leader, cookie=lair.run_id) == []


def test_the_baseline_and_the_runner_are_left_alone(lair: Den, killer: Killer) -> None:
    """What is denied is refused again at the kill, also among strays with the cookie."""
    base, runner, candidate = lair.sleeper("none"), lair.sleeper(), lair.sleeper()
    found = targets(lair, base, candidate)
    killer.deny = Deny((), (base, runner))
    operation = kill_all(killer, found)
    assert process.alive(*base)
    assert process.alive(*runner), "it carries the run's cookie, and is spared"
    assert not process.alive(*candidate)
    assert len(operation.refused) == 1
    assert [one.who for one in operation.killed] == [f"pid {candidate[0]}"]


def test_a_number_that_passed_to_another_is_left_alone(lair: Den, killer: Killer) -> None:
    pid, start = lair.sleeper(cookie="another-run")
    kill_all(killer, [Target("process", "old", pid=pid, start=start - 1)])
    assert process.alive(pid, start)


def test_cgroup_kill_is_written_and_the_end_is_seen(tmp_path: Path) -> None:
    clock = FakeClock()
    killer, target, path = of_files(tmp_path, clock=clock.monotonic)
    operation = killer.kill([target], crossed_at=clock.monotonic() - 0.25)
    assert (path / "cgroup.kill").read_text() == "1"
    assert not operation.advance()
    clock.sleep(0.25)
    (path / "cgroup.events").write_text("populated 0\n")
    assert operation.advance()
    (one,) = operation.killed
    assert (one.stages, one.written_s, one.empty_s) == (("cgroup.kill",), 0.25, 0.5)
    assert RESTARTS in one.why
    assert operation.report()["empty_s"] == 0.5


def test_who_does_not_die_is_told_again_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    killer, target, path = of_files(tmp_path, clock=clock.monotonic)
    (path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    waits = process.Stat(os.getpid(), "D", 1, 1, 1, 1)
    monkeypatch.setattr(process, "stat", lambda pid: waits)
    operation = killer.kill([target])
    (path / "cgroup.kill").write_text("")
    for seconds, told in ((sequence.STUCK_S - 0.1, ""), (0.2, "1")):
        clock.sleep(seconds)
        assert not operation.advance()
        assert (path / "cgroup.kill").read_text() == told
    assert f"D-state: pid {os.getpid()}" in operation.killed[0].stuck
    clock.sleep(60)
    assert operation.advance(), "it gives up"
    assert not operation.empty
    assert operation.report()["empty_s"] is None


def test_a_restarted_container_is_found_by_its_id(tmp_path: Path) -> None:
    killer, target, path = of_files(tmp_path)
    path.rename(tmp_path / "old")
    made_up(tmp_path)
    operation = killer.kill([target])
    assert (path / "cgroup.kill").read_text() == "1"
    assert (tmp_path / "old" / "cgroup.kill").read_text() == ""
    assert operation.killed[0].stages == ("cgroup.kill",)


@pytest.mark.parametrize("starts", [True, False])
def test_a_container_that_does_not_run_yet(tmp_path: Path, starts: bool) -> None:
    clock = FakeClock()
    killer = Killer("", Deny(), helper="/nowhere", release=False, clock=clock.monotonic)
    killer.trees = (Hierarchy(str(tmp_path)),)
    operation = killer.kill([Target("container", "cand", ID)])
    assert (operation.advance(), operation.killed) == (False, ())
    if starts:
        made_up(tmp_path)
        clock.sleep(0.5)
        assert not operation.advance()
        assert (tmp_path / "docker" / ID / "cgroup.kill").read_text() == "1"
        return
    clock.sleep(sequence.PENDING_S)
    assert operation.advance(), "one that ended long ago holds nobody up"
    assert operation.report()["killed"] == []


def test_an_id_in_the_deny_list_is_refused_at_the_kill(tmp_path: Path) -> None:
    killer, target, path = of_files(tmp_path)
    killer.deny = Deny((ID,))
    operation = killer.kill([target])
    assert operation.advance()
    assert (path / "cgroup.kill").read_text() == ""
    assert len(operation.refused) == 1


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[str]:
    """A socket that accepts everything and never answers, as a stopped daemon's."""
    with unix_listener(str(tmp_path / "mute")):
        yield str(tmp_path / "mute")


def test_an_engine_that_is_stopped_gets_the_request_and_holds_nothing_up(
    mute: str, tmp_path: Path
) -> None:
    killer, target, path = of_files(tmp_path / "tree", engine=f"unix://{mute}")
    operation = killer.kill([target])
    assert (path / "cgroup.kill").read_text() == "1"
    assert operation.killed[0].stages == ("cgroup.kill", "engine")
    (path / "cgroup.events").write_text("populated 0\n")
    assert operation.advance()
    assert RESTARTS not in operation.killed[0].why
    operation.close()


def test_a_question_has_a_total_deadline(mute: str) -> None:
    request = UnixRequest(mute, b"hello\n", 5.0, 2.0)
    assert (request.sent, request.advance(6.99), request.advance(7.0)) == (True, False, True)
    assert request.why == "no answer"
    gone = UnixRequest(mute + "x", b"hello\n", 5.0, 2.0)
    assert gone.over
    assert "No such file" in gone.why


def test_what_is_asked_and_answered(tmp_path: Path) -> None:
    path, heard = str(tmp_path / "engine"), list[bytes]()

    def serve(link: socket.socket) -> None:
        heard.append(link.recv(4096))
        link.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    with serving(unix_listener(path), serve):
        request = UnixRequest(path, kill_request(ID), 0.0, 2.0)
        until(lambda: request.advance(1.0), "it is answered")
    assert heard[0].startswith(f"POST /containers/{ID}/kill?signal=KILL HTTP/1.1\r\n".encode())
    assert (request.why, status(request.answer)) == ("", 204)
    assert status(b"") == status(b"nonsense") == 0


def test_only_a_unix_socket_is_spoken_to() -> None:
    engines = ("unix:///a/b", "/a", "tcp://x:1", "")
    assert [socket_of(engine) for engine in engines] == ["/a/b", "/a", "", ""]


def test_a_reaper_that_is_up_kills_and_one_that_died_costs_only_time(lair: Den) -> None:
    killer = Killer(lair.run_id, Deny(), helper="/nowhere")
    try:
        assert killer.rehearse() == (), "it walks the way, and finds nothing wrong"
        assert killer.reaper is not None
        victim = lair.sleeper()
        descriptor = os.pidfd_open(victim[0])
        try:
            assert killer.reaper.kill([descriptor], wait_s=60.0)
        finally:
            os.close(descriptor)
        until(lambda: not process.alive(*victim), "it is dead")
        os.kill(killer.reaper.pid, 9)
        kill_all(killer, targets(lair, lair.sleeper()))
    finally:
        killer.close()


def test_memory_is_freed_by_a_child_that_gets_pidfds(lair: Den) -> None:
    if mrelease.supported():
        lacking(mrelease.supported())
    reaper = mrelease.Reaper()
    assert reaper.why == ""
    hog = lair.spawn(
        "import os, signal\nb = bytearray(64 << 20)\nprint('full', os.getpid(), flush=True)\n"
        "signal.pause()"
    )
    sleeper = lair.sleeper()
    until(lambda: lair.said("full"), "it has said so")
    assert mrelease.resident(hog[0]) >= 64 << 20
    assert signals.free_later(reaper, [hog[0], sleeper[0]])
    assert not signals.free_later(reaper, [sleeper[0]]), "too small to be worth it"
    assert not signals.free_later(None, [hog[0]])
    assert mrelease.resident(hog[0]) >= 64 << 20, "nothing happens to one that lives"
    process.send(*hog, 9)
    until(lambda: not process.alive(*hog), "it is dead")
    reaper.close()
    assert not reaper.free([0])
    assert mrelease.resident(hog[0]) == 0


def test_a_reaper_that_died_is_no_zombie_and_comes_back(lair: Den) -> None:
    reaper, said = mrelease.Reaper(), [""]

    def ended() -> bool:
        said.append(reaper.tend())
        return bool(said[-1])

    assert not ended()
    for left in reversed(range(mrelease.STARTS)):
        before = reaper.pid
        os.kill(before, 9)
        until(ended)
        assert said[-1].endswith("(status -9): restarted")
        assert not os.path.exists(f"/proc/{before}"), "it was waited for"
        assert (reaper.pid != before, reaper._starts) == (True, left)
    os.kill(reaper.pid, 9)
    until(ended)
    assert (reaper.pid, reaper.tend(), reaper.free([0])) == (0, "", False)
