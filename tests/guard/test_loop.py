"""The guard loop on a made-up machine: one that takes over counts on, one in a control group checks
that limit, too; how often it reads and writes, and what it takes from its FIFO."""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import Inbox, defaults
from console.recovery.guard.decide.policy import NEAR_POLL_S, POLL_S, Policy
from console.recovery.guard.kill.targets import Target
from console.recovery.guard.loop import SECOND_S
from console.recovery.guard.observe.collect import FASTEST, REST_POLL_S, rest_s
from console.recovery.guard.observe.snapshot import Memory, Snapshot
from console.runner.guard.process import SILENT_S
from tests.guard.conftest import put
from tests.guard.judging import MACHINE, PLENTY, SWAP, TOTAL, Bench, card_of
from tests.guard.made_site import GIB, Make, Site

START, END, RATE = 40.0, 7.0, 2.0
"""GiB of RAM available before and after the load, and the GiB a second that the load takes."""
PREDICTED = Envelope((Point("loaded", ram=int(START - END) * GIB),))
LIMIT = 32
PLACE = "sys/fs/cgroup/user.slice/"


def fill(one: Site, available: float, to: float) -> None:
    while available > to:
        available -= RATE * 0.05
        one.available(available)
        one.pass_time(0.05)


def test_a_load_that_was_predicted_ends_although_another_took_over(make: Make) -> None:
    one = make(envelope=PREDICTED)
    child = one.load()
    one.pass_time(1)
    fill(one, START, 20)
    before = one.page()["base"]
    one.take_over()
    assert one.page()["base"] == before
    assert before["available"] == START * GIB
    fill(one, 20, END)
    one.pass_time(1)
    assert child.poll() is None
    fill(one, END, 1.9)
    assert child.wait(60) == -9


def test_what_has_ended_meanwhile_is_counted_no_more(make: Make) -> None:
    one = make(envelope=PREDICTED)
    child = one.load()
    one.pass_time(1)
    child.kill()
    child.wait(60)
    one.take_over()
    assert one.page()["base"] is None
    one.available(30)
    one.load("next")
    one.pass_time(1)
    assert one.page()["base"]["available"] == 30 * GIB


def test_swap_and_cards_are_counted_from_the_same_moment() -> None:
    bench = Bench(armed=False)
    cards = (card_of("GPU-a", bench.at, 2 * GIB, 96 * GIB), card_of("GPU-b", bench.at, None))
    bench.policy.arm(bench.see(swap=1 * GIB, cards=cards))
    base = json.loads(json.dumps(bench.policy.base))
    assert base["cards"] == {"GPU-a": 2 * GIB}
    after = Policy((), MACHINE)
    after.resume(base)
    after.arm(bench.see(available=20 * GIB, swap=8 * GIB))
    assert after.base == base
    after.disarm()
    assert after.base is None


@pytest.mark.parametrize("base", [None, 7, {}, {"available": 5}, {"available": "x", "cards": []}])
def test_what_is_no_base_is_left(base: object) -> None:
    bench = Bench(armed=False)
    bench.policy.resume(base)
    assert bench.policy.base is None


@pytest.fixture
def bounded(tmp_path: Path, make: Make) -> Site:
    """A machine of 64 GiB, of which this user may use 32."""
    machine = tmp_path / "machine"
    put(machine, "proc/self/mountinfo", "29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    put(machine, "proc/self/cgroup", "0::/user.slice\n")
    put(machine, PLACE + "memory.max", f"{LIMIT * GIB}\n")
    put(machine, PLACE + "memory.stat", "anon 1\ninactive_file 0\n")
    left(machine, 30)
    return make()


def left(machine: Path, gib: float) -> None:
    put(machine, PLACE + "memory.current", f"{int((LIMIT - gib) * GIB)}\n")


def test_the_machine_is_judged(bounded: Site) -> None:
    one = bounded
    child = one.load()
    one.pass_time(1)
    assert one.page()["memory"]["total"] == 64 * GIB
    assert one.page()["base"]["available"] == 40 * GIB
    one.fall(2.5, 0.2)
    assert child.poll() is None
    one.fall(1.9, 0.1)
    assert child.wait(60) == -9
    one.pass_time(1)
    assert one.breach()["limit"]["below"] == defaults(64 * GIB, 0).floor


def test_a_host_process_is_stopped_before_the_bound_is_full(bounded: Site) -> None:
    one = bounded
    child = one.load()
    left(one.machine, 2.1)
    one.pass_time(1)
    assert child.poll() is None
    assert one.page()["level"] == "warn"
    left(one.machine, 1.9)
    one.pass_time(0.1)
    assert child.wait(60) == -9
    one.pass_time(1)
    assert one.breach()["limit"]["metric"] == "host.bound_left"


def test_a_container_lives_outside_the_bound(bounded: Site) -> None:
    one = bounded
    left(one.machine, 0.1)
    watch = one.deps.collector
    watch.tell(one.config, one.deps.ring.path, (Target("container", "big", "a" * 64),))
    memory = watch.memory()
    assert memory is not None
    assert memory.bound is None


def test_near_the_bound_it_is_read_more_often() -> None:
    policy = Policy((), defaults(TOTAL, SWAP, 64 * GIB))
    memory = Memory(0.0, TOTAL, PLENTY, SWAP, 0, 0, 0, 60 * GIB)
    for tick in range(40):
        memory = memory._replace(at=100 + tick / 20)
        found = policy.decide(Snapshot(memory.at, memory, beat_at=memory.at))
    assert (found.level, rest_s(policy, memory, found)) == ("ok", REST_POLL_S)
    near = memory._replace(at=102.1, bound=3 * GIB)
    found = policy.decide(Snapshot(near.at, near, beat_at=near.at))
    assert found.wait_s == rest_s(policy, near, found) == NEAR_POLL_S


def test_a_look_a_moment_early_leaves_no_page_out(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make()
    second, seconds = one.deps.collector.second, 0

    def takes_time() -> None:
        nonlocal seconds
        seconds += 1
        one.clock.sleep(0.002 if seconds % 2 else 0.001)
        second()

    monkeypatch.setattr(one.deps.collector, "second", takes_time)
    due, pages = one.clock.monotonic(), []
    for _ in range(round(8 / REST_POLL_S)):
        due += REST_POLL_S
        one.clock.sleep(due - one.clock.monotonic())
        one.loop.tick()
        assert one.page()["level"] == "ok"
        pages.append(one.page()["mono"])
    written = sorted(set(pages))
    gaps = [later - before for before, later in itertools.pairwise(written)]
    assert seconds == 8
    assert max(gaps) < SECOND_S + REST_POLL_S < SILENT_S


def after(available: Callable[[int], float], some_us: int = 0) -> float:
    """Seconds to the next reading after 200 ticks; `some_us` of waiting is added at each."""
    policy = Policy((), MACHINE)
    for tick in range(200):
        at = 100 + tick * POLL_S
        memory = Memory(at, TOTAL, int(available(tick)), SWAP, 0, tick * some_us, 0)
        found = policy.decide(Snapshot(at, memory, beat_at=at))
    return rest_s(policy, memory, found)


def test_at_rest_it_is_read_four_times_a_second() -> None:
    assert after(lambda tick: PLENTY) == REST_POLL_S


def test_near_a_level_that_kills_it_is_read_before_the_fastest_load_could_be_there() -> None:
    highest = Policy((), MACHINE).highest
    assert after(lambda tick: highest + 0.1 * FASTEST) == pytest.approx(POLL_S, abs=0.06)
    assert after(lambda tick: 10 * GIB) < POLL_S  # below twice the floor


def test_what_fills_or_waits_is_read_as_often_as_a_load() -> None:
    assert after(lambda tick: PLENTY - tick * POLL_S * 4e9) == POLL_S
    assert after(lambda tick: PLENTY, some_us=1000) == POLL_S  # 2 % of the time


def test_without_a_reading_the_policy_says_how_long() -> None:
    policy = Policy((), MACHINE)
    found = policy.decide(Snapshot(100.0, None, why="no /proc"))
    assert rest_s(policy, None, found) == found.wait_s


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    one = Inbox(tmp_path / "inbox")
    yield one
    one.close()


def write(tmp_path: Path, data: bytes) -> None:
    descriptor = os.open(tmp_path / "inbox", os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, data)
    os.close(descriptor)


def words(inbox: Inbox) -> list[str]:
    return [message["do"] for message in inbox.read()]


def test_messages_in_order_whoever_comes_and_goes(inbox: Inbox, tmp_path: Path) -> None:
    assert inbox.read() == []
    write(tmp_path, b'{"do": "beat"}\n{"do": "outage", "on": true}\n')
    write(tmp_path, b'{"do": "arm"}\n{"do": ')
    found = inbox.read()
    assert [one["do"] for one in found] == ["beat", "outage", "arm"]
    assert found[1]["on"] is True
    assert inbox.read() == []
    write(tmp_path, b'"quit"}\n')
    assert words(inbox) == ["quit"]


def test_what_is_no_message_is_left_out(inbox: Inbox, tmp_path: Path) -> None:
    for line in (
        b"garbage", b"[]", b"null", b'{"do": 5}', b'{"do": "unknown"}', b'{"do": ["quit"]}',
        b"\xff\xfe", b"[" * 3000, b'{"do": "quit", "x": "' + b"x" * 5000 + b'"}',
    ):  # fmt: skip
        write(tmp_path, line + b'\n{"do": "beat"}\n')
        assert words(inbox) == ["beat"], line[:50]
    for _ in range(3):
        write(tmp_path, b"x" * 3000)
        inbox.read()
    write(tmp_path, b'\n{"do": "beat"}\n')
    assert words(inbox) == ["beat"], "a line without an end is dropped"


def test_something_else_in_its_place_is_refused(inbox: Inbox, tmp_path: Path) -> None:
    assert (tmp_path / "inbox").stat().st_mode & 0o777 == 0o600, "only this user may write"
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = os.listdir("/proc/self/fd")
    for name in ("file", "link"):
        with pytest.raises(OSError, match=r"FIFO|symbolic"):
            Inbox(tmp_path / name)
    assert os.listdir("/proc/self/fd") == before
