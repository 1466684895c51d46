"""The child that may hang: disks, logs, process groups and the recorder's copy; and its reader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.clock import Clock, FakeClock, SystemClock
from console.guard import follow
from console.guard.child import MOST_BACKOFF_S, Child
from console.guard.follow import Logs, Tail, on_alarm
from console.guard.limits import Limit
from console.guard.outer import NOT_YET, Outer
from console.guard.outside import own_memory
from console.guard.sheet import DIRECTORY, RING, Sheet
from console.guard.target import Target
from console.paths import module_argv
from console.services import process
from tests.guard.conftest import until

MIB = 1 << 20
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
Add = Callable[[str], None]


# -- logs, in this process ------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("FATAL before\n")
    return path


@pytest.fixture
def logs() -> Iterator[Logs]:
    before = signal.signal(signal.SIGALRM, on_alarm)
    one = Logs()
    yield one
    one.close()
    signal.signal(signal.SIGALRM, before)


def add(path: Path, text: str | bytes) -> None:
    with open(path, "ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def counts(logs: Logs) -> list[int]:
    logs.look()
    return [one.count for one in logs.watched]


def test_fatal_lines_count_from_the_arming(logs: Logs, log: Path) -> None:
    logs.set({"big": str(log)}, [(4, "big", "FATAL")])
    add(log, "FATAL unarmed\n")
    assert counts(logs) == [0]
    logs.arm({"big": 1})
    add(log, "fine\nFATAL one\nfatal two\nFATAL th")
    assert counts(logs) == [1]
    add(log, "ree\n")
    assert counts(logs) == [2]
    assert (logs.watched[0].limit, logs.watched[0].line) == (4, "FATAL three")
    logs.arm({"big": 1})
    assert counts(logs) == [2]
    logs.arm({"big": 2})
    assert counts(logs) == [0]


def test_a_log_that_comes_later_is_read_from_its_start(logs: Logs, tmp_path: Path) -> None:
    logs.set({"big": str(tmp_path / "later")}, [(0, "big", "FATAL")])
    logs.arm({"big": 1})
    assert counts(logs) == [0]
    assert "cannot be read" in logs.tails["big"].why
    add(tmp_path / "later", "FATAL\n")
    assert counts(logs) == [1]
    assert logs.tails["big"].why == ""


def test_a_log_that_is_replaced_or_cut(logs: Logs, log: Path) -> None:
    logs.set({"big": str(log)}, [(0, "big", "FATAL")])
    logs.arm({"big": 1})
    add(log, "FATAL last of the old\n")
    log.rename(log.with_name("old"))
    add(log, "FATAL first of the new\n")
    assert counts(logs) == [1]
    assert counts(logs) == [2]
    log.write_text("FATAL\n")
    assert counts(logs) == [3]


def test_what_the_cap_kept_is_not_counted_twice(logs: Logs, log: Path) -> None:
    logs.set({"big": str(log)}, [(0, "big", "FATAL")])
    logs.arm({"big": 1})
    add(log, "padding " * 50 + "\nFATAL one\nmore\n")
    assert counts(logs) == [1]
    log.write_text("--- 400 bytes of older log dropped ---\nFATAL one\nmore\n")
    # what is left of the old lines is shorter than what was remembered: counted again, said once
    assert counts(logs) == [2]
    kept = "x" * 5000 + "\nFATAL two\n" + "y" * 5000 + "\n"
    add(log, kept)
    assert counts(logs) == [3]
    log.write_text("--- 900 bytes of older log dropped ---\n" + kept[100:] + "FATAL three\n")
    assert counts(logs) == [4]


def test_a_flood_and_a_line_without_an_end(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BEHIND", MIB)
    tail = Tail(str(log))
    add(log, b"x" * (3 * MIB))
    assert list(tail.lines()) == []
    add(log, b"\nnext\n")
    first, second = tail.lines()
    assert (len(first), second) == (4096, b"next")
    tail.close()


def test_lines_are_clean(logs: Logs, log: Path) -> None:
    logs.set({"big": str(log)}, [(0, "big", "FATAL")])
    logs.arm({"big": 1})
    add(log, b"\x1b[31mFATAL\x1b[0m \xff\x00 \x1b]52;c;eA==\x07out\n")
    assert counts(logs) == [1]
    assert logs.watched[0].line.isprintable()


def test_a_catastrophic_pattern_is_given_up(
    logs: Logs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PATIENCE_S", 0.02)
    logs.set({"big": str(log)}, [(0, "big", "(a+)+$"), (1, "big", "b"), (2, "big", "(")])
    logs.arm({"big": 1})
    assert list(logs.bad) == [2]
    add(log, ("a" * 60 + "b\n") * 4)
    assert counts(logs) == [0, 4]
    assert "too long" in logs.bad[0]
    add(log, "aaa\n")
    assert counts(logs) == [0, 4]
    told = {one["limit"]: (one["count"], one["why"]) for one in logs.hits()}
    assert told[1] == (4, "")
    assert told[0] == (0, follow.TOO_LONG)
    assert told[2][1].startswith("no pattern")
    # another limit is added: one that was given up is not tried again
    logs.set({"big": str(log)}, [(0, "big", "(a+)+$"), (1, "big", "c")])
    assert logs.hits()[0]["why"] == follow.TOO_LONG


def test_a_log_that_stays_away_is_not_watched(
    logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.set({"big": str(tmp_path / "none")}, [(0, "big", "x"), (1, "other", "x")])
    logs.arm({"big": 1, "other": 1})
    logs.look()
    assert [one["why"] for one in logs.hits()] == ["", "no log of it is known"]
    monkeypatch.setattr(follow, "LOST_S", 0.0)
    assert "No such file" in logs.hits()[0]["why"]
    add(tmp_path / "none", "x\n")
    logs.look()
    assert (logs.hits()[0]["count"], logs.hits()[0]["why"]) == (1, "")


def test_only_logs_that_a_limit_is_on_are_followed(logs: Logs, log: Path) -> None:
    logs.set({"big": str(log), "other": str(log)}, [(0, "big", "x")])
    assert list(logs.tails) == ["big"]


# -- the process ----------------------------------------------------------------------------------


class Outside:
    """The real child, told and heard by hand."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            module_argv("console.guard.outside"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def tell(self, **told: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(told).encode() + b"\n")
        self.child.stdin.flush()

    def hear(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first report that fits."""
        assert self.child.stdout is not None
        while True:
            line = self.child.stdout.readline()
            assert line
            report: dict[str, Any] = json.loads(line)
            if fits(report):
                return report

    def close(self) -> None:
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()
        self.child.wait(60)


@pytest.fixture
def outside() -> Iterator[Outside]:
    one = Outside()
    yield one
    one.close()


def test_disks_with_their_age(outside: Outside, tmp_path: Path) -> None:
    outside.tell(disks=[str(tmp_path), "/no/such/place"])
    report = outside.hear(
        lambda r: len(r["disks"]) == 2 and r["disks"][0]["age"] is not None and r["disks"][1]["why"]
    )
    known, missing = report["disks"]
    assert 0 < known["free"] <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert (missing["free"], missing["age"]) == (None, None)
    assert "No such file" in missing["why"]


def test_the_ring_is_copied_and_the_one_before_is_kept(outside: Outside, tmp_path: Path) -> None:
    ring, copy = tmp_path / "ring", tmp_path / "copy"
    ring.write_bytes(os.urandom(20_000))
    copy.write_text("an earlier one")
    outside.tell(ring=str(ring), copy=str(copy))
    outside.hear(lambda r: bool(r["copy"] and r["copy"]["age"] is not None))
    assert copy.read_bytes() == ring.read_bytes()
    assert (tmp_path / "copy.before").read_text() == "an earlier one"
    with open(ring, "r+b") as file:
        file.seek(9000)
        file.write(b"changed")
    assert outside.child.stdin is not None
    outside.child.stdin.close()  # whoever wrote the ring has died
    assert outside.child.wait(60) == 0
    assert copy.read_bytes() == ring.read_bytes()


def test_a_copy_that_fails_is_said(outside: Outside, tmp_path: Path) -> None:
    outside.tell(ring=str(tmp_path / "none"), copy=str(tmp_path / "copy"))
    report = outside.hear(lambda r: bool(r["copy"] and r["copy"]["why"]))
    assert (report["copy"]["age"], report["copy"]["why"]) == (None, "No such file or directory")


def test_a_process_group_and_its_children(outside: Outside) -> None:
    program = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)"
    leader = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        start = process.start_time(leader.pid)
        outside.tell(groups=[[leader.pid, start], [os.getpid(), 1]])
        report = outside.hear(lambda r: any(one["pids"] == 2 for one in r["groups"]))
        (group,) = report["groups"]
        assert group["pid"] == leader.pid
        assert group["ram"] > MIB
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.wait(60)


def test_own_memory_is_without_files() -> None:
    mine = own_memory(os.getpid())
    assert mine is not None
    assert mine[0] > MIB
    assert own_memory(2**22 + 1) is None


def test_garbage_on_stdin_changes_nothing(outside: Outside, tmp_path: Path) -> None:
    assert outside.child.stdin is not None
    outside.child.stdin.write(b'garbage\n[]\n{"groups": [1]}\n{"disks": 5}\n')
    outside.tell(disks=[str(tmp_path)])
    outside.hear(lambda r: bool(r["disks"]))


# -- what the sentinel makes of it ----------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    made: list[Child] = []

    def make(program: str, clock: Clock | None = None) -> Child:
        made.append(Child([sys.executable, "-c", program], clock or SystemClock()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_child_is_heard_without_waiting(child: Callable[..., Child]) -> None:
    one = child(ECHO)
    assert one.tend() == []
    calmed: list[int] = []
    one.calm = calmed.append
    until(lambda: one.send(b"hello"))
    assert until(one.tend) == [b"hello"]
    assert calmed == []


def test_a_child_that_dies_comes_back_later_each_time(child: Callable[..., Child]) -> None:
    clock = FakeClock()
    one, waits = child("raise SystemExit(3)", clock), []
    started: list[int] = []
    one.calm = started.append
    for number in range(1, 8):
        until(lambda number=number: one.tend() == [] and one.died == number)
        begun = clock.time
        until(lambda number=number: clock.sleep(0.5) or one.tend() or len(started) > number)
        waits.append(clock.time - begun)
    assert waits == [1, 2, 4, 8, 16, MOST_BACKOFF_S, MOST_BACKOFF_S]
    assert one.how == "exit status 3"


def test_a_program_that_is_not_there(child: Callable[..., Child]) -> None:
    one = Child(["/no/such/program"], FakeClock())
    assert one.tend() == []
    assert (one.died, one.pid, one.descriptor) == (1, 0, -1)
    assert "cannot be started" in one.how
    assert not one.send(b"x")


def test_a_child_leaves_nothing_open(child: Callable[..., Child]) -> None:
    before = os.listdir("/proc/self/fd")
    one = child(ECHO)
    until(lambda: one.tend() == [] and one.send(b"x"))
    one.close(60)
    assert os.listdir("/proc/self/fd") == before


def sheet(tmp_path: Path) -> Sheet:
    limits = (Limit("disk.free", below=1), Limit(log="big", matches="FATAL"))
    return Sheet("r", str(tmp_path), "ring", limits, logs={"big": str(tmp_path / "log")})


def test_reports_become_values(tmp_path: Path) -> None:
    outer = Outer(clock := FakeClock(), [sys.executable, "-c", ECHO])
    target = Target("process", "big", pid=77, start=5)
    outer.tell(sheet(tmp_path), tmp_path / "ring", [target])
    assert [(one.ram, one.why) for one in outer.loads()] == [(None, NOT_YET)]
    report = {
        "disks": [{"path": "/", "free": 5, "why": "", "age": 2},
                  {"path": "/dead", "free": None, "why": "", "age": None}],
        "hits": [{"limit": 1, "count": 2, "line": "FATAL"}],
        "groups": [{"pid": 77, "ram": 9, "pids": 3, "age": 1}, {"pid": 78, "ram": 1, "pids": 1,
                                                                "age": 1}],
        "bad": {"0": "no pattern"}, "logs": {"big": "cannot be read"}, "copy": {"age": 4,
                                                                                "why": ""},
    }  # fmt: skip
    outer.take(json.dumps(report).encode(), clock.time)
    assert [(one.path, one.free, clock.time - one.at) for one in outer.disks] == [
        ("/", 5, 2), ("/dead", None, 0),
    ]  # fmt: skip
    (load,) = outer.loads()
    assert (load.name, load.ram, load.pids, clock.time - load.at) == ("big", 9, 3, 1)
    assert [(hit.limit, hit.count) for hit in outer.hits] == [(1, 2)]
    assert outer.copied_at == clock.time - 4
    assert outer.troubles == ("log of big: cannot be read", "log limit 0: no pattern")
    before = (outer.disks, outer.hits)
    for garbage in (b"", b"[]", b"{}", b'{"disks": [{}]}', b"\xff"):
        outer.take(garbage, clock.time)
    assert (outer.disks, outer.hits) == before
    (hit,) = outer.hits
    assert (hit.at, hit.why) == (clock.time, "")
    outer.tell(Sheet("r", str(tmp_path), "ring", (Limit(log="big", matches="OOM"),)), tmp_path,
               [target])  # fmt: skip
    (hit,) = outer.hits
    assert (hit.limit, hit.count, hit.at) == (0, 0, clock.time), "as of the arming"
    clock.sleep(7)
    assert "have not been looked at for 7 s" in outer.troubles[0]


def test_a_child_that_was_killed_is_told_again(tmp_path: Path) -> None:
    clock = FakeClock()
    outer = Outer(clock, [sys.executable, "-c", ECHO])
    try:
        outer.tell(sheet(tmp_path), tmp_path / "ring", [])
        until(lambda: outer.tend() or not outer.child.fresh)
        first = outer.child.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: outer.tend() or outer.child.died)
        clock.sleep(1)
        until(lambda: outer.tend() or (outer.child.pid and not outer.child.fresh))
        assert outer.child.pid != first
        told = json.loads(until(outer.child.tend)[0])
        assert told["copy"] == str(tmp_path / DIRECTORY / RING)
        assert told["patterns"] == [[1, "big", "FATAL"]]
    finally:
        outer.close(60)
