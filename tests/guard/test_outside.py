"""The child for slow I/O (disks, logs, process groups and the recorder's copy), and its client."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.common.paths import module_argv
from console.host import cgroup, process
from console.host.children import MAX_BACKOFF_S, Child
from console.recovery.guard.config import DIRECTORY, RING, GuardConfig, Limit
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.observe.slow_io import NOT_YET, GpuCollector, SlowIo
from console.recovery.guard.observe.slow_io_child import Copy, Groups, Poller, own_memory
from console.recovery.guard.observe.snapshot import Disk, Load, LogHit
from tests.clock import FakeClock
from tests.guard.conftest import Den
from tests.guard.judging import card_of
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Nvml
from tests.waiting import some, until

MIB = 1 << 20
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


class Worker:
    """The real child, with its input and output handled by the test."""

    def __init__(self) -> None:
        argv = module_argv("console.recovery.guard.observe.slow_io_child")
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.child, self.ear, self.mouth = child, some(child.stdin), some(child.stdout)

    def tell(self, words: bytes = b"", **told: Any) -> None:
        self.ear.write(words or json.dumps(told).encode() + b"\n")
        self.ear.flush()

    def hear(self, fits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        while True:
            line = self.mouth.readline()
            assert line
            report: dict[str, Any] = json.loads(line)
            if fits(report):
                return report

    def close(self) -> None:
        self.ear.close()
        self.mouth.close()
        self.child.wait(60)


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


def test_disks_with_their_age_whatever_garbage_came_before(worker: Worker, tmp_path: Path) -> None:
    worker.tell(b'garbage\n[]\n{"groups": [1]}\n{"disks": 5}\n')
    worker.tell(disks=[str(tmp_path), "/no/such/place"])
    report = worker.hear(
        lambda r: len(r["disks"]) == 2 and r["disks"][0]["age"] is not None and r["disks"][1]["why"]
    )
    known, missing = report["disks"]
    assert 0 < known["free"] <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert (missing["free"], missing["age"]) == (None, None)
    assert "No such file" in missing["why"]


def test_the_ring_is_copied_and_the_one_before_is_kept(worker: Worker, tmp_path: Path) -> None:
    ring, copy = tmp_path / "ring", tmp_path / "copy"
    worker.tell(ring=str(ring), copy=str(copy))
    report = worker.hear(lambda r: r["copy"] and r["copy"]["why"])
    assert (report["copy"]["age"], report["copy"]["why"]) == (None, "No such file or directory")
    copy.write_text("an earlier one")
    (tmp_path / "whole").write_bytes(os.urandom(20_000))
    (tmp_path / "whole").rename(ring)
    worker.hear(lambda r: r["copy"] and r["copy"]["age"] is not None)
    assert copy.read_bytes() == ring.read_bytes()
    assert (tmp_path / "copy.before").read_text() == "an earlier one"
    with open(ring, "r+b") as file:
        file.seek(9000)
        file.write(b"changed")
    worker.ear.close()  # the sentinel that wrote the ring buffer has died
    assert worker.child.wait(60) == 0
    assert copy.read_bytes() == ring.read_bytes()


def test_a_copy_that_was_removed_comes_back(tmp_path: Path) -> None:
    ring, copy = tmp_path / "ring", tmp_path / "copy"
    ring.write_bytes(os.urandom(20_000))
    again = Copy(str(ring), str(copy))
    again()
    copy.unlink()
    again()
    assert copy.read_bytes() == ring.read_bytes()


def test_a_group_that_goes_on_is_not_forgotten(lair: Den) -> None:
    one, who = Groups([(os.getpid(), 1, ())]), lair.sleeper()
    own = Poller(one, 3600.0)
    until(lambda: own.at is not None)
    one.leaders = [(*who, ())]
    own.wake.set()
    until(lambda: [group["pid"] for group in own.reading] == [who[0]])
    own.end()
    assert own.over.wait(60)


FORKS = "import subprocess, time\nsubprocess.Popen(['sleep', '600']{})\ntime.sleep(600)"


def test_a_process_group_and_its_children(worker: Worker, lair: Den) -> None:
    pid, start = lair.spawn(FORKS.format(""))
    worker.tell(groups=[[pid, start], [os.getpid(), 1]])
    report = worker.hear(lambda r: any(one["pids"] == 2 for one in r["groups"]))
    (group,) = report["groups"]
    assert group["pid"] == pid
    assert group["ram"] > MIB


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a control group")
def test_a_child_that_left_the_session_counts_with_its_control_group() -> None:
    program = [sys.executable, "-c", FORKS.format(", start_new_session=True")]
    leader = cgroup.popen(program, start_new_session=True)
    start = process.start_time(leader.pid) or 0
    place = cgroup.of_process(leader.pid, start)
    try:

        def sessions() -> set[int]:
            return {one.session for pid in cgroup.pids(place) if (one := process.stat(pid))}

        until(lambda: len(sessions()) == 2, "it has left")
        for places, pids in (((place,), 2), ((), 1)):
            (group,) = Groups([(leader.pid, start, places)])()
            assert (group["pid"], group["pids"]) == (leader.pid, pids)
    finally:
        for pid in cgroup.pids(place):
            os.kill(pid, signal.SIGKILL)
        leader.wait(60)


def test_own_memory_is_without_files() -> None:
    mine = some(own_memory(os.getpid()))
    assert mine[0] > MIB
    assert own_memory(2**22 + 1) is None


def test_a_child_is_heard_without_waiting_and_leaves_nothing_open() -> None:
    before = os.listdir("/proc/self/fd")
    one = Child([sys.executable, "-c", ECHO], SystemClock())
    try:
        assert one.tend() == []
        recovered: list[int] = []
        one.prepare = recovered.append
        until(lambda: one.send(b"hello"))
        assert until(one.tend) == [b"hello"]
        assert recovered == []
    finally:
        one.close(60)
    assert os.listdir("/proc/self/fd") == before


def test_a_child_that_dies_comes_back_later_each_time() -> None:
    clock = FakeClock()
    one, waits = Child([sys.executable, "-c", "import os; os._exit(3)"], clock), []
    started: list[int] = []
    one.prepare = started.append
    for number in range(1, 8):
        until(lambda number=number: one.tend() == [] and one.died == number, "it has died")
        begun = clock.time
        until(lambda number=number: clock.sleep(1.0) or one.tend() or len(started) > number)
        waits.append(clock.time - begun)
    one.close()
    assert waits == [1, 2, 4, 8, 16, MAX_BACKOFF_S, MAX_BACKOFF_S]
    assert one.how == "exit status 3"


def test_a_program_that_is_not_there() -> None:
    one = Child(["/no/such/program"], FakeClock())
    assert one.tend() == []
    assert (one.died, one.pid, one.descriptor, one.send(b"x")) == (1, 0, -1, False)
    assert one.how


def config(tmp_path: Path) -> GuardConfig:
    limits = (Limit("disk.free", below=1), Limit(log="big", matches="FATAL"))
    return GuardConfig("r", str(tmp_path), "ring", limits, logs={"big": str(tmp_path / "log")})


def test_reports_become_values(tmp_path: Path) -> None:
    client = SlowIo(clock := FakeClock(), [sys.executable, "-c", ECHO])
    target = Target("process", "big", pid=77, start=5)
    armed_at = clock.time
    client.tell(config(tmp_path), tmp_path / "ring", [target])
    assert client.loads() == (), "too new to be missed"
    clock.sleep(3)
    assert [(one.ram, one.why) for one in client.loads()] == [(None, NOT_YET)]
    report = {
        "disks": [{"path": "/", "free": 5, "why": "", "age": 2},
                  {"path": "/dead", "free": None, "why": "", "age": None}],
        "hits": [{"limit": 1, "count": 2, "line": "FATAL"}],
        "groups": [{"pid": 77, "ram": 9, "pids": 3, "age": 1},
                   {"pid": 78, "ram": 1, "pids": 1, "age": 1}],
        "uncounted": {}, "bad": {"0": "no pattern"}, "logs": {"big": "cannot be read"},
        "copy": {"age": 4, "why": ""},
    }  # fmt: skip
    client.take(json.dumps(report).encode(), clock.time)
    now = clock.time
    assert client.disks == (Disk("/", now - 2, 5), Disk("/dead", now))
    assert client.loads() == (Load("big", "process", now - 1, ram=9, pids=3),)
    assert client.hits == (LogHit(1, 2, "FATAL", at=now),)
    assert client.copied_at == now - 4
    assert len(client.troubles) == 2
    before = (client.disks, client.hits)
    for garbage in (b"", b"[]", b"{}", b'{"disks": [{}]}', b"\xff"):
        client.take(garbage, now)
    assert (client.disks, client.hits) == before
    limits = (Limit(log="big", matches="OOM"),)
    client.tell(GuardConfig("r", str(tmp_path), "ring", limits), tmp_path, [target])
    (hit,) = client.hits
    assert (hit.limit, hit.count, hit.at) == (0, 0, armed_at), "as of the arming"
    clock.sleep(7)
    assert "7 s" in client.troubles[0]


def test_a_child_that_was_killed_is_told_again(tmp_path: Path) -> None:
    clock = FakeClock()
    client = SlowIo(clock, [sys.executable, "-c", ECHO])
    try:
        client.tell(config(tmp_path), tmp_path / "ring", [])
        until(lambda: client.tend() or not client.child.fresh, "the child has been heard")
        first = client.child.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: (client.tend(), client.child.died)[1], "it has died")
        clock.sleep(1)
        until(lambda: (client.tend(), client.child.pid and not client.child.fresh)[1])
        assert client.child.pid != first
        told = json.loads(until(client.child.tend)[0])
        assert told["copy"] == str(tmp_path / DIRECTORY / RING)
        assert told["patterns"] == [[1, "big", "FATAL"]]
    finally:
        client.child.close(60)


READER = [sys.executable, "-m", "console.host.gpu.child", "--every", "0.1"]


def test_a_lost_card_leaves_the_other_live(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, (big, small) = tmp_path / "script", (RTX_PRO_6000, RTX_5090)
    for name, value in nvml.env(script).items():
        monkeypatch.setenv(name, value)
    nvml.write(script, (big, small))
    reader = GpuCollector(SystemClock(), READER)

    def seen() -> list[tuple[str, int | None, int | None]]:
        reader.tend()
        return [(card.gpu.uuid, card.gpu.used_bytes, card.gpu.total_bytes) for card in reader.cards]

    try:
        both = [(big.uuid, 612 * MIB, big.mem_total), (small.uuid, 15 * MIB, small.mem_total)]
        until(lambda: seen() == both, "both are read")
        assert all(time.monotonic() - card.at < 60 and not card.gpu.why for card in reader.cards)
        assert reader.trouble == ""
        nvml.write(script, (big.but(lost=True), small.but(mem_used=777 * MIB)))
        until(lambda: [used for _, used, _ in seen()] == [None, 777 * MIB], "it is lost")
        assert reader.cards[0].gpu.why.startswith("lost")
    finally:
        reader.child.close()


def said(**fields: object) -> bytes:
    return json.dumps({"gpus": [], "trouble": "", **fields}).encode()


GPU = {"uuid": "GPU-1", "index": 0, "name": "x", "used_bytes": 5, "total_bytes": 9, "why": ""}


def test_a_card_that_has_gone_silent_keeps_its_last_figure() -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    read_at = clock.time - 2.5
    cards.take(said(gpus=[GPU], ages={"GPU-1": 2.5}), clock.time)
    assert cards.cards == (card_of("GPU-1", read_at, 5, 9),)
    clock.sleep(9)
    silent = {**GPU, "used_bytes": None, "why": "no answer for 9 s"}
    cards.take(said(gpus=[silent], ages={"GPU-1": 11.5}), clock.time)
    assert cards.cards == (card_of("GPU-1", read_at, 5, 9, "no answer for 9 s"),)
    cards.take(said(gpus=[{**silent, "why": "lost: gone"}]), clock.time)
    assert cards.cards == (card_of("GPU-1", clock.time, None, 9, "lost: gone"),)


def test_a_reader_that_says_nothing_is_said() -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    assert cards.trouble == ""
    cards.take(said(trouble="no NVIDIA driver"), clock.time)
    assert (cards.cards, cards.trouble) == ((), "no NVIDIA driver")
    clock.sleep(6)
    assert "6 s" in cards.trouble


def test_a_line_that_is_not_whole_changes_nothing() -> None:
    cards = GpuCollector(FakeClock(), ["/bin/false"])
    cards.take(said(gpus=[GPU]), 1)
    for garbage in (b"", b"null", b"{}", b'{"gpus": [{}], "trouble": ""}',
                    b'{"gpus": 5, "trouble": ""}', b"\xff"):  # fmt: skip
        cards.take(garbage, 2)
        assert [card.gpu.used_bytes for card in cards.cards] == [5], garbage


def test_a_figure_that_is_none_is_not_known() -> None:
    cards = GpuCollector(FakeClock(), ["/bin/false"])
    for value in (-1, "5", 1.5, None, [5]):
        cards.take(said(gpus=[{**GPU, "used_bytes": value}]), 1)
        assert cards.cards[0].gpu.used_bytes is None, value
