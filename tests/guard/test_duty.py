"""The guard loop with its time set by the test: arming, one kill, rollback, lease, the end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from console.host import process
from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.breach import OK_PAGE_S
from console.recovery.guard.config import CONFIG_FILE, DIRECTORY, Limit
from console.recovery.guard.loop import ADVISED_S, LEFT_S, is_lost
from console.recovery.rollback import live, trigger
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.trigger import Lock
from tests.guard.conftest import put
from tests.guard.made_site import GIB, LOW, Make, Site
from tests.waiting import some, until


def test_a_breach_kills_wakes_and_is_written(make: Make) -> None:
    one = make(LOW)
    one.standby()
    child = one.load()
    one.pass_time(2)
    assert child.poll() is None
    one.fall(7, 0.05)
    assert child.wait(60) == -9
    one.pass_time(1)
    assert (one.triggered(), one.spawned) == (trigger.SENTINEL, [])
    found = one.breach()
    assert (found["cause"], found["limit"]["metric"]) == ("guard", "host.ram_available")
    assert [(k["kind"], k["rung"]) for k in found["killed"]] == [("process", "signals")]
    rows = found["window"]["fast"]
    assert [row[1] / GIB for row in (rows[0], rows[-1])] == [40, 7]
    assert one.events("breach") == [found["reason"]]
    assert len(one.events("armed")) == 1


def test_a_rollback_that_climbs_is_only_warned_of(make: Make) -> None:
    one = make(LOW)
    one.fall(7, 5)
    assert (one.breach(), one.page()["level"]) == ({}, "warn"), "nothing is armed yet"
    one.fall(40)
    child = one.load()
    one.tell(do="advisory", on=True)
    one.fall(7, 2)
    assert child.poll() is None
    assert one.page()["advisory"] is True
    one.pass_time(ADVISED_S - 3)
    assert child.poll() is None
    one.pass_time(3.5)  # no message repeats it
    one.pass_time(0.2)
    assert child.wait(60) == -9


def test_one_kill_an_arming(make: Make) -> None:
    one = make(LOW)
    one.standby()
    first = one.load()
    one.fall(7, 0.1)
    assert first.wait(60) == -9
    one.pass_time(0.3)
    # the rollback has not answered yet: what starts now is left to it
    second = one.load("second")
    one.pass_time(1)
    assert second.poll() is None
    put(one.run, f"rollback/{PROGRESS_FILE}", '{"rung": "done", "state": "ok"}\n')
    one.pass_time(1)
    assert second.poll() is None
    one.tell(do="arm")
    one.pass_time(0.2)
    assert second.wait(60) == -9
    assert len(one.events("breach")) == 2


def test_a_ladder_that_dies_while_it_climbs_is_replaced(make: Make) -> None:
    one = make(LOW)
    with (
        contextlib.closing(Lock(one.config.rollback_dir)) as lock,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as rolling_back,
    ):
        assert lock.taken()
        one.standby(rolling_back.pid)
        one.load()
        one.fall(7)
        put(one.run, f"rollback/{PROGRESS_FILE}", '{"rung": "stop", "state": "begin"}\n')
        one.pass_time(2)
        assert len(one.events("ladder")) == 2
        assert one.spawned == []
        rolling_back.kill()
        rolling_back.wait()
        one.pass_time(1)
        assert one.spawned == [one.config.run_id]
        one.pass_time(5)
        assert one.spawned == [one.config.run_id], "once"


def test_a_ladder_that_says_nothing_is_not_waited_for(make: Make) -> None:
    one = make(LOW)
    one.standby()
    one.load()
    one.fall(7, 2.5)
    assert (one.triggered(), one.spawned) == (trigger.SENTINEL, [])
    one.pass_time(2)
    assert one.spawned == [one.config.run_id]


def test_a_ladder_that_climbs_is_left_alone(make: Make) -> None:
    one = make(LOW)
    one.standby()
    one.load()
    one.fall(7)
    with contextlib.closing(Lock(one.config.rollback_dir)) as lock:
        assert lock.taken()
        put(one.run, f"rollback/{PROGRESS_FILE}", "{}\n")
        one.pass_time(10)
        assert one.spawned == []
    one.pass_time(1)
    assert one.spawned == [one.config.run_id], "it let go of the lock without a last line"


def test_a_lease_that_runs_out(make: Make) -> None:
    one = make(lease_s=600)
    one.standby()
    child = one.load()
    one.pass_time(1)
    assert one.page()["lease"] is None
    one.tell(do="outage", on=True)
    one.pass_time(1)
    one.tell(do="outage", on=False)
    one.clock.sleep(700)
    one.tell(do="outage", on=True)
    one.pass_time(1)
    assert one.page()["lease"]["left_s"] == pytest.approx(599, abs=1.5), "while it is down"
    one.clock.sleep(500)
    one.tell(do="attended")
    one.pass_time(1)
    assert one.page()["lease"]["attended"] is True
    one.clock.sleep(590)
    one.pass_time(1)
    assert one.triggered() == b""
    one.clock.sleep(10)
    one.pass_time(2)
    assert one.triggered() == trigger.SENTINEL
    found = one.breach()
    assert (found["cause"], found["killed"]) == ("lease", [])
    assert "600 s" in found["reason"]
    assert child.poll() is None


def test_a_lease_does_not_run_out_while_the_runner_rolls_back(make: Make) -> None:
    one = make(lease_s=10)
    one.standby()
    one.load()
    one.tell(do="outage", on=True)
    one.pass_time(8)
    for _ in range(6):
        one.tell(do="advisory", on=True)
        one.pass_time(1)
    assert (one.page()["lease"], one.triggered(), one.breach()) == (None, b"", {})
    one.pass_time(ADVISED_S + 1)  # no message says any more that a rollback runs
    assert one.triggered() == trigger.SENTINEL
    assert one.breach()["cause"] == "lease"


@pytest.mark.parametrize("at_stake", [True, False])
@pytest.mark.parametrize("how", ["gone", "stopped"])
def test_an_allocation_that_is_lost(make: Make, how: str, at_stake: bool) -> None:
    holder = subprocess.Popen(["sleep", "600"])
    own = (os.getpid(), process.start_time(os.getpid()) or 0)
    held = (holder.pid, process.start_time(holder.pid) or 0)
    one = make(runner=own if at_stake else (0, 0), holder=held)
    one.standby()
    try:
        one.pass_time(5)
        assert one.triggered() == b""
        holder.send_signal(signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
        until(lambda: is_lost(held), "the holder is gone, or was stopped")
        one.pass_time(2)
        assert one.triggered() == (trigger.SENTINEL if at_stake else b"")
        assert one.breach().get("cause") == ("allocation" if at_stake else None)
    finally:
        holder.kill()
        holder.wait()


def test_a_step_that_begins_beside_a_load_starts_no_time_anew(make: Make) -> None:
    one = make(Limit("host.ram_available", below=38 * GIB, for_s=5.0))
    child = one.load()
    one.fall(37, 3)
    one.load("step")
    assert child.poll() is None
    one.pass_time(2.2)
    assert child.wait(60) == -9


def write_config(one: Site, **changes: Any) -> None:
    put(one.run, f"{DIRECTORY}/{CONFIG_FILE}", json.dumps(replace(one.config, **changes).to_json()))
    one.tell(do="sheet")


def test_a_new_sheet_counts_at_once_and_an_envelope_keeps_the_arming(make: Make) -> None:
    one = make()
    child = one.load()
    write_config(one, envelope=Envelope((Point("load", ram=5 * GIB),)))
    one.pass_time(OK_PAGE_S)
    assert one.page()["armed"] is True
    write_config(one, limits=(Limit("host.ram_available", below=50 * GIB),))
    one.pass_time(0.2)
    assert child.wait(60) == -9


@pytest.mark.parametrize("text", ["", "{", '{"schema": "omni.guard/v1"}'])
def test_a_sheet_that_cannot_be_used_leaves_the_one_before(make: Make, text: str) -> None:
    one = make(LOW)
    child = one.load()
    put(one.run, f"{DIRECTORY}/{CONFIG_FILE}", text)
    one.tell(do="sheet")
    one.pass_time(0.2)
    assert len(one.events("refused")) == 1
    one.fall(7, 0.2)
    assert child.wait(60) == -9


def test_the_baseline_is_never_killed(make: Make) -> None:
    baseline = subprocess.Popen(["sleep", "600"], start_new_session=True)
    start = process.start_time(baseline.pid) or 0
    one = make(LOW, spare_pids=((baseline.pid, start),), spare=("alike",))
    one.loads.append(baseline)
    live.append(one.run / "rollback" / live.LIVE, live.Live("process", "big", baseline.pid, start))
    load = one.load("alike")
    one.fall(1, 2)
    assert load.wait(60) == -9, "a service that is called like a protected container is none"
    assert baseline.poll() is None
    assert len(one.page()["spared"]) == 1


def test_memory_that_is_not_known_is_said(make: Make) -> None:
    one = make()
    put(one.machine, "proc/meminfo", "")
    one.pass_time(3)
    assert one.page()["memory"] is None
    assert len(one.page()["reasons"]) == 1


def test_a_stumble_over_a_tick_or_a_message_is_said_and_ends_no_watch(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make()
    ticks = heard = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        one.loop.over = ticks == 5
        if ticks > 2:
            raise RuntimeError("oh \x1b[31mno")

    def listen() -> None:
        nonlocal heard
        heard += 1
        raise OSError("too many open files")

    one.loop._wait_s = 0.1
    monkeypatch.setattr(one.loop, "tick", tick)
    monkeypatch.setattr(one.loop, "_listen", listen)
    monkeypatch.setattr(
        one.loop, "_wait", lambda ears, seconds: ticks < 3 or one.clock.sleep(seconds) or False
    )
    one.loop.run()
    assert (ticks, heard >= 2) == (5, True)
    assert one.events("error") == ["OSError: too many open files", "RuntimeError: oh no"]


def test_it_ends_when_nobody_is_left(make: Make) -> None:
    one = make()
    child = one.load()
    one.clock.sleep(LEFT_S)
    one.pass_time(2)
    assert not one.loop.over
    child.kill()
    child.wait(60)
    one.pass_time(2)
    one.clock.sleep(LEFT_S)
    one.pass_time(1)
    assert one.loop.over


def test_a_ladder_that_waits_is_asked_to_go_before_it_ends(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []
    monkeypatch.setattr(trigger, "trigger", lambda directory, byte: said.append(byte) or True)
    one = make()
    one.standby()
    one.clock.sleep(LEFT_S)
    one.pass_time(2)
    assert set(said) == {trigger.LEAVE}
    assert not one.loop.over
    monkeypatch.setattr(trigger, "is_standing_by", lambda directory, running=False: False)
    one.pass_time(1.1)
    assert one.loop.over


@pytest.mark.parametrize("who", ["runner", "ladder", "lease"])
def test_it_stays_while_somebody_is_left(make: Make, who: str) -> None:
    own = (os.getpid(), process.start_time(os.getpid()) or 0)
    one = make(lease_s=9000, runner=own if who == "runner" else (0, 0))
    if who == "ladder":
        one.standby()
    if who == "lease":
        one.tell(do="outage", on=True)
    one.pass_time(1)
    for _ in range(3):
        one.clock.sleep(LEFT_S)
        one.pass_time(1.1)
    assert not one.loop.over


@pytest.mark.parametrize("who", ["runner", "load", "ladder", "lease"])
def test_it_ends_with_the_directory_of_its_run(
    make: Make, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Nothing that it writes is read any more; only a runner that lives is still watched. The
    rollbacks that followed could not tell it that the baseline is back."""
    own = (os.getpid(), process.start_time(os.getpid()) or 0)
    one = make(lease_s=9000, runner=own if who == "runner" else (0, 0))
    if who == "load":
        one.load()
    if who == "ladder":
        one.standby()
    if who == "lease":
        one.tell(do="outage", on=True)
    one.pass_time(1)
    shutil.rmtree(one.config.rollback_dir)
    one.config.rollback_dir.mkdir()  # as a rollback makes it again
    for _ in range(3):
        one.clock.sleep(LEFT_S)
        one.pass_time(1.1)
    assert one.loop.over is (who != "runner")


def test_descriptors_stay_as_they_are(make: Make) -> None:
    one = make(LOW, disks=("/",), gpus=("GPU-1",))
    one.load()
    until(lambda: one.pass_time(1.05) or len(one.deps.collector.descriptors()) == 2)
    before = os.listdir("/proc/self/fd")
    one.pass_time(50)
    assert os.listdir("/proc/self/fd") == before


def test_a_limit_of_the_slow_tier_is_judged_in_the_tick_that_read_it(make: Make) -> None:
    one = make(Limit("host.swap_out_rate", above=1e6))
    child = one.load()
    put(one.machine, "proc/vmstat", "nr 1\npswpin 0\npswpout 0\n")
    one.pass_time(3)
    put(one.machine, "proc/vmstat", "nr 1\npswpin 0\npswpout 100000\n")
    before = one.loop._second_at
    while one.loop._second_at == before:
        one.pass_time(0.05)
    assert some(one.deps.collector._swap).at == one.clock.time
    assert child.wait(60) == -9
