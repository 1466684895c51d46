"""What is written about a breach, and in which order: recorder, kill, breach.json."""

from __future__ import annotations

import subprocess
from itertools import chain, repeat

import pytest

from console.recovery.guard import breach
from console.recovery.guard.breach import FOLLOW_S
from console.recovery.guard.config import Limit
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import PROGRESS_FILE
from tests.guard.conftest import put
from tests.guard.made_site import Make
from tests.guard.test_duty import LOW


def test_what_a_victim_held_and_which_curve_crossed(make: Make) -> None:
    one = make(Limit("service.ram_used", above=64 << 20, of="big"))
    child = one.load()
    one.pass_time(1)
    source = one.deps.collector.quick._limited[0]
    held = chain([10, 20], repeat(80))
    source.source.guess = lambda: next(held) << 20  # type: ignore[method-assign]
    one.pass_time(0.15)
    assert child.wait(60) == -9
    one.pass_time(1)
    found = one.breach()
    assert found["killed"][0]["held"] == {"ram": 80 << 20, "swap": None, "age_s": 0}
    curve = found["curve"]
    assert (curve["metric"], curve["of"]) == ("service.ram_used", "big")
    assert [value >> 20 for _, value in curve["points"]][-3:] == [10, 20, 80]
    assert curve["points"][-1][0] == pytest.approx(found["wall"], abs=0.01)
    assert found["crossed"] == found["mono"]
    assert found["gap_s"] == pytest.approx(0.05)


def test_of_ram_the_window_has_the_curve(make: Make) -> None:
    one = make(LOW)
    one.load()
    one.available(7)
    one.pass_time(1)
    assert one.breach()["curve"] == {"metric": "host.ram_available", "of": "", "column": 1}
    assert one.breach()["killed"][0]["held"]["ram"] is None, "nothing was read of it"


def test_what_is_about_to_happen_is_recorded_before_the_blow(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(LOW)
    one.load()
    seen: list[list[str]] = []

    def killed_at_the_blow(*_: object) -> None:
        seen.append(one.events("breach"))
        raise SystemExit(9)

    monkeypatch.setattr(one.deps.killer, "kill", killed_at_the_blow)
    one.available(7)
    with pytest.raises(SystemExit):
        one.pass_time(0.1)
    assert len(seen) == 1
    assert "7.0 GiB" in seen[0][0]


def test_a_recorder_that_fails_holds_no_blow_up(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(LOW)
    child = one.load()

    def fails(*_: object) -> None:
        raise ValueError("the map is closed")

    monkeypatch.setattr(one.deps.ring, "event", fails)
    one.available(7)
    with pytest.raises(ValueError, match="closed"):
        one.pass_time(0.1)
    assert child.wait(60) == -9


def test_nobody_strikes_for_a_lease_once_nothing_lives(make: Make) -> None:
    one = make(LOW, lease_s=10)
    one.standby()
    child = one.load()
    one.tell(do="outage", on=True)
    one.pass_time(12)
    assert one.triggered() == trigger.SENTINEL
    put(one.run, f"rollback/{PROGRESS_FILE}", '{"rung": "stop"}\n')
    child.kill()
    child.wait(60)
    one.pass_time(2)
    one.available(7)  # what the rollback started
    one.pass_time(2)
    assert (one.breach()["cause"], one.triggered(), one.events("breach")) == ("lease", b"", [])
    assert len(one.events("disarmed")) == 1


def test_a_command_that_finds_no_room_is_tried_again(make: Make) -> None:
    one = make(LOW)
    one.load()
    one.room = False
    one.available(7)
    one.pass_time(2)
    tried = len(one.spawned)
    assert 2 < tried <= 2 / FOLLOW_S
    one.room = True
    one.pass_time(2)
    assert len(one.spawned) == tried + 1, "once it is started"
    assert len(one.events("ladder")) == 2


def test_no_room_for_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(breach, "module_argv", lambda name: ["true"])
    assert breach.start_rollback(started.append)
    assert len(started) == 1
    assert breach._spawned.pop().wait(60) == 0

    def full(*_: object, **__: object) -> None:
        raise BlockingIOError("fork: no more processes")

    monkeypatch.setattr(subprocess, "Popen", full)
    assert not breach.start_rollback(started.append)
