"""What is written about a breach, and in which order: recorder, kill, breach.json."""

from itertools import chain, repeat

import pytest

from console.recovery.guard import breach
from console.recovery.guard.breach import FOLLOW_S
from console.recovery.guard.config import Limit
from console.recovery.rollback import trigger
from console.recovery.rollback.progress import PROGRESS_FILE
from tests.guard.conftest import put
from tests.guard.made_site import LOW, Make


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
    one.fall()
    assert one.breach()["curve"] == {"metric": "host.ram_available", "of": "", "column": 1}
    assert one.breach()["killed"][0]["held"]["ram"] is None, "nothing was read of it"


def test_what_is_about_to_happen_is_recorded_before_the_blow(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(LOW)
    one.load()
    seen: list[list[str]] = []
    monkeypatch.setattr(one.deps.killer, "kill", lambda *_: seen.append(one.events("breach")))
    one.fall()
    assert len(seen) == 1
    assert "7.0 GiB" in seen[0][0]


def test_a_recorder_that_fails_holds_no_blow_up(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(LOW)
    child = one.load()
    monkeypatch.setattr(one.deps.ring, "event", None)
    with pytest.raises(TypeError):
        one.fall()
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
    one.fall(7, 2)  # what the rollback started
    assert (one.breach()["cause"], one.triggered(), one.events("breach")) == ("lease", b"", [])
    assert len(one.events("disarmed")) == 1


def test_a_command_that_finds_no_room_is_tried_again(make: Make) -> None:
    one = make(LOW)
    one.load()
    one.room = False
    one.fall(7, 2)
    tried = len(one.spawned)
    assert 2 < tried <= 2 / FOLLOW_S
    one.room = True
    one.pass_time(2)
    assert len(one.spawned) == tried + 1, "once it is started"
    assert len(one.events("ladder")) == 2


def test_no_room_for_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(breach, "module_argv", lambda name: ["true"])
    assert breach.start_rollback("/run", started.append)
    assert len(started) == 1
    assert breach._spawned.pop().wait(60) == 0
    monkeypatch.setattr(breach, "module_argv", lambda name: ["/no/such/program"])
    assert not breach.start_rollback("/run", started.append)
