"""The runner's side of the sentinel: what is told, what is noticed, when the run gives up."""

import os
from dataclasses import replace

import pytest

from console.host.children import Cancelled
from console.journal import events
from console.journal.state import Cause, RunState
from console.recovery.rollback import live
from console.runner.context import Attempt, StepFailed
from console.runner.guard.client import GONE_S, MAX_EVENTS, QUIET_S
from console.runtime.spec import Handle
from tests.runner.unit.conftest import Bench, mine
from tests.waiting import some


def test_what_comes_alive_arms_and_an_outage_is_told(bench: Bench) -> None:
    bench.context.alive(Handle("cand", "process", pid=os.getpid(), start=mine()[1]))
    assert bench.told == [{"do": "arm"}]
    bench.context.record(events.Outage(down=True))
    bench.context.record(events.Outage(down=False, restore_s=1.0))
    assert bench.told[1:] == [{"do": "outage", "on": True}, {"do": "outage", "on": False}]


def test_a_change_of_level_is_an_event_and_a_level_that_stays_is_not(bench: Bench) -> None:
    bench.tick(4)
    bench.says("warn", "RAM is full in 28 s", "swap grows")
    bench.guard.tick()
    bench.tick(40)
    bench.says("ok")
    bench.guard.tick()
    assert bench.kinds == ["warn", "clear"]
    assert bench.context.view.guards[0].words == "RAM is full in 28 s; swap grows"


def test_a_level_that_flaps_for_hours_does_not_fill_the_journal(bench: Bench) -> None:
    for n in range(2 * MAX_EVENTS):
        bench.says("warn" if n % 2 else "ok")
        bench.guard.tick()
    assert len(bench.kinds) == MAX_EVENTS


def test_the_new_one_is_told_where_things_stand(bench: Bench) -> None:
    bench.context.record(events.Outage(down=True))
    bench.sentinel.alive = bench.sentinel.watches = False
    bench.tick(fresh=False)
    bench.told.clear()
    bench.tick(fresh=False)
    assert {"do": "outage", "on": True} in bench.told
    assert {"do": "arm"} in bench.told
    bench.told.clear()
    bench.tick(8)
    assert {"do": "arm"} not in bench.told, "told once"


def test_one_that_was_stopped_in_the_middle_of_a_kill(bench: Bench) -> None:
    """The load is dead, and nobody else would bring the baseline back."""
    bench.says("act", "RAM available 1.0 GiB, below 2.0 GiB")
    bench.seen = replace(some(bench.seen), acted=True)
    bench.tick(12, fresh=False)
    assert (bench.sentinel.starts, bench.halted) == (1, "rollback:guard")
    assert bench.context.view.verbs[-1].why == "RAM available 1.0 GiB, below 2.0 GiB"


def gone_for_good(bench: Bench) -> None:
    bench.tick(4)
    bench.sentinel.comes_up = False
    bench.sentinel.alive = bench.sentinel.watches = False
    bench.tick(int(GONE_S / 0.25) + 2, fresh=False)


def require(bench: Bench, step: str) -> None:
    bench.guard.require(bench.context.plan.at(step), Attempt(bench.context, step, 1, 60.0))


def test_none_with_nothing_up_stops_nothing_but_no_load_starts(bench: Bench) -> None:
    gone_for_good(bench)
    assert (bench.kinds, bench.halted) == (["restarted", "gone"], "")
    with pytest.raises(StepFailed) as caught:
        require(bench, "cmd")
    assert caught.value.cause is Cause.GUARD


def test_what_comes_up_after_the_last_one_is_gone_is_stopped(bench: Bench) -> None:
    """A container that was being made when nothing was up yet."""
    gone_for_good(bench)
    bench.tick(20, fresh=False)
    assert bench.halted == ""
    bench.context.record(
        events.Service(service="cand", alive=True, runs_as="container", container="c")
    )
    bench.tick(8, fresh=False)
    assert bench.halted == "rollback:guard"
    assert bench.kinds == ["restarted", "gone"], "said once"
    assert len(bench.context.view.verbs) == 1, "stopped once"


def test_a_second_death_is_one_too_many(bench: Bench) -> None:
    bench.context.record(events.Outage(down=True))
    bench.sentinel.alive = bench.sentinel.watches = False
    bench.tick(12)
    assert bench.halted == ""
    bench.sentinel.alive = bench.sentinel.watches = False
    bench.tick(int(GONE_S / 0.25) + 2, fresh=False)
    assert (bench.sentinel.starts, bench.halted) == (1, "rollback:guard")


def test_after_a_quiet_minute_it_may_be_started_anew_again(bench: Bench) -> None:
    for starts in (1, 2, 3):
        bench.sentinel.alive = bench.sentinel.watches = False
        bench.tick()
        assert bench.sentinel.starts == starts, "at once"
        bench.tick(int(QUIET_S / 0.25) + 4)
        assert (bench.sentinel.starts, bench.halted) == (starts, "")


def test_a_retry_by_the_operator_may_start_one_again(bench: Bench) -> None:
    gone_for_good(bench)
    bench.sentinel.comes_up = True
    bench.guard.again()
    bench.tick(4)
    assert bench.sentinel.starts == 2
    require(bench, "cmd")


def test_a_run_that_rolls_back_already_is_left_alone(bench: Bench) -> None:
    bench.context.record(events.Outage(down=True))
    bench.context.enter(RunState.ROLLING_BACK, "abort")
    gone_for_good(bench)
    assert bench.halted == ""


def test_what_loads_nothing_needs_none(bench: Bench) -> None:
    bench.sentinel.watches = False
    for step in ("n", "down", "last", "restore"):
        require(bench, step)
    assert bench.clock.slept == []


@pytest.mark.parametrize("step", ["up", "cmd", "baseline:stop"])
def test_what_loads_waits_and_then_refuses(bench: Bench, step: str) -> None:
    require(bench, step)
    assert bench.clock.slept == []
    bench.sentinel.watches = False
    begun = bench.clock.time
    with pytest.raises(StepFailed):
        require(bench, step)
    assert GONE_S <= bench.clock.time - begun <= GONE_S + 1


def test_an_abort_does_not_wait_for_a_sentinel(bench: Bench) -> None:
    bench.sentinel.watches = False
    bench.context.control.cancelled.set()
    with pytest.raises(Cancelled):
        require(bench, "cmd")


def test_a_breach_whose_fence_does_not_come_is_rolled_back_here(bench: Bench) -> None:
    bench.tick(4)
    bench.breach(killed=[{"name": "cand", "kind": "process", "rung": "SIGKILL", "write_s": 0.01}])
    bench.tick(8)
    assert bench.halted == "", "the ladder gets its time"
    bench.tick(20)
    assert (bench.halted, bench.kinds) == ("rollback:guard", ["breach"])
    bench.tick(40)
    assert bench.kinds == ["breach"], "once"
    found = some(bench.context.view.breach)
    assert found.body.killed[0]["name"] == "cand"


def test_a_breach_of_before_is_old(bench: Bench) -> None:
    bench.sentinel.here = True
    bench.breach()
    bench.guard.begin()
    bench.guard.close(over=False)
    bench.tick(40)
    assert (bench.kinds, bench.halted) == (["watching"], "")


def test_it_beats_once_a_second_and_tells_of_an_operator_for_a_while(bench: Bench) -> None:
    bench.context.control.attended_at = bench.clock.time
    bench.says("ok", lease_s=41.0)
    bench.guard.tick()
    assert bench.context.control.status()["lease"] == 41.0
    bench.told.clear()
    bench.tick(40)
    assert bench.told.count({"do": "beat"}) == 10
    assert bench.told.count({"do": "attended"}) == 5
    assert bench.kinds == []


def test_a_silent_one_is_started_anew_after_two_seconds(bench: Bench) -> None:
    bench.tick(4)
    bench.tick(8, fresh=False)
    assert bench.sentinel.starts == 0
    bench.tick(2, fresh=False)
    assert (bench.sentinel.ends, bench.sentinel.starts) == (1, 1)
    bench.tick(60)
    assert (bench.sentinel.starts, bench.kinds, bench.halted) == (1, ["restarted"], "")


@pytest.mark.parametrize("up", ["outage", "command"])
def test_none_for_five_seconds_with_something_up_rolls_back(bench: Bench, up: str) -> None:
    if up == "outage":
        bench.context.record(events.Outage(down=True))
    else:
        live.append(bench.context.run.live, live.Live("step", "cmd", *mine()))
    gone_for_good(bench)
    assert (bench.kinds, bench.halted) == (["restarted", "gone"], "rollback:guard")
    assert bench.context.view.verbs[-1].who == "the runner", "who is not there stops nothing"


def test_a_lease_that_ran_out_is_no_breach_of_a_limit(bench: Bench) -> None:
    bench.breach(cause="lease", reason="nobody was attached for 30 min")
    bench.tick(30)
    assert bench.halted == "rollback:expired"


def test_a_lease_that_runs_out_soon_is_an_event_once_until_it_is_renewed(bench: Bench) -> None:
    bench.context.meta = replace(bench.context.meta, lease_s=600.0)
    for left in (None, 600.0, 151.0, 150.0, 149.0, 600.0, 140.0):
        bench.says("ok", lease_s=left)
        bench.guard.tick()
    assert bench.kinds == ["lease", "lease"]
    first, second = bench.context.view.guards
    assert [event.body.data()["left_s"] for event in (first, second)] == [150.0, 140.0]
    assert first.words == "nobody is attached, and the baseline comes back in 2 min 30 s"
    bench.context.meta = replace(bench.context.meta, lease_s=86400.0)
    for left in (86400.0, 301.0, 300.0):
        bench.says("ok", lease_s=left)
        bench.guard.tick()
    assert len(bench.kinds) == 3, "five minutes are soon, however long the lease is"
