"""The run on show: real journals, real sockets, and the switch from one run to the next."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.frontends.tui.watch.run import RunWatch, Snapshot
from console.host import process
from console.journal.run_dir import RunDir
from console.journal.state import RunState
from console.recovery.rollback import live, restores
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.recovery.rollback.trigger import Lock
from console.render.cutover import cut_over
from console.runner.control import short_address
from tests.children import end, making
from tests.ports import free_port
from tests.waiting import some, until
from tests.watch.conftest import Hand, gone

Make = Callable[..., Hand]
Begin = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for another run to show ten times a second, not once."""
    monkeypatch.setattr("console.frontends.tui.watch.run.POINTER_S", 0.1)


class Seen:
    def __init__(self, run: RunDir | None = None) -> None:
        self.all: list[Snapshot] = []
        self.watch = RunWatch(self.all.append, run, poll_s=0.02)
        self.watch.start()

    @property
    def now(self) -> Snapshot:
        return some(self.watch.first(20))

    def until(self, condition: Callable[[Snapshot], object], what: str = "") -> Snapshot:
        until(lambda: self.watch.latest and condition(self.watch.latest), what or str(self.now))
        return self.now

    def close(self) -> None:
        self.watch.close()
        gone([self.watch._thread])


@pytest.fixture
def see() -> Iterator[Callable[..., Seen]]:
    with making(Seen, Seen.close) as make:
        yield make


See = Callable[..., Seen]


def number(child: subprocess.Popen[bytes]) -> tuple[int, int]:
    return child.pid, process.start_time(child.pid) or 0


def test_without_any_run_it_says_none_and_finds_the_first(see: See, hand: Make) -> None:
    seen = see()
    assert (seen.now.word, seen.now.run, seen.now.view.steps) == ("none", None, [])
    made = hand()
    found = seen.until(lambda s: s.run is not None)
    assert some(found.run).id == made.run.id


def test_what_the_journal_says_arrives_and_older_snapshots_stay_as_they_were(
    see: See, hand: Make
) -> None:
    made = hand().live()
    seen = see()
    before = seen.until(lambda s: s.view.state is RunState.RUNNING)
    assert (before.word, before.alive, before.live) == ("running", True, True)
    made.step("one", "running")
    made.add("metrics", "one", metrics={"rate": {"value": 1.0}})
    made.add("verb", "one", verb="next", who="me")
    after = seen.until(lambda s: s.view.verbs)
    assert [str(s.state) for s in after.view.steps] == ["running", "pending", "pending"]
    assert [str(s.state) for s in before.view.steps] == ["pending"] * 3
    assert (before.view.metrics, before.view.verbs) == ({}, [])
    made.add("metrics", "one", metrics={"other": {"value": 2.0}})
    later = seen.until(lambda s: "other" in s.view.metrics["one"])
    assert set(after.view.metrics["one"]) == {"rate"}
    assert set(later.view.metrics["one"]) == {"rate", "other"}


def test_nothing_is_delivered_while_nothing_changes(see: See, hand: Make) -> None:
    made = hand()
    made.state("running")
    made.state("succeeded")
    seen = see()
    seen.until(lambda s: s.word == "succeeded")
    count, looks = len(seen.all), []
    source = some(seen.watch._source)
    look = source.look

    def counted() -> None:
        looks.append(1)
        look()

    source.look = counted  # type: ignore[method-assign]
    until(lambda: len(looks) > 8)
    assert len(seen.all) == count


def test_a_runner_that_died_makes_it_interrupted(see: See, hand: Make, begin: Begin) -> None:
    made, child = hand(), begin("sleep", "600")
    made.runner(number(child))
    made.state("running")
    seen = see()
    seen.until(lambda s: s.word == "running" and s.live)
    end(child)
    gone = seen.until(lambda s: s.word == "interrupted")
    assert (gone.alive, gone.view.state) == (False, RunState.RUNNING)
    until(lambda: not seen.now.live)
    live.append(made.run.live, live.Live("runner", "runner", *number(begin("sleep", "600"))))
    seen.until(lambda s: s.word == "running", "the runner that is recorded last counts")


def test_the_candidate_of_a_cutover_is_asked_once_its_runner_is_gone(
    see: See, hand: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal says only that clients stay there."""
    monkeypatch.setattr("console.frontends.tui.watch.run.SILENCE_S", 0.1)
    made = hand()
    made.state("running")
    made.add("cutover", "cut", what="stays", service="cand", url="http://127.0.0.1:9")
    made.state("succeeded")
    url = f"http://127.0.0.1:{free_port()}"
    base = Baseline("baseline", "container", url, container_name="x")
    plan = SealedPlan(made.run.id, str(made.run.path), base)
    sealed.write(plan, made.run.sealed)
    seen = see()
    found = seen.until(lambda s: s.view.cutover.silent)
    assert cut_over(found.view) == "CUT OVER to cand, not promoted, AND DOES NOT ANSWER"


def test_the_desk_is_asked_when_the_run_waits(see: See, hand: Make) -> None:
    made = hand()
    made.runner()
    control = made.serve()
    made.state("running")
    control.set(state=RunState.RUNNING, step="one")
    seen = see()
    seen.until(lambda s: s.control.get("step") == "one")
    made.state("waiting_approval", detail="go on?")
    control.set(
        state=RunState.WAITING_APPROVAL, step="two", attempt=2, evidence="e1", confirm="yes"
    )
    found = seen.until(lambda s: s.control.get("state") == "waiting_approval")
    assert found.control == {
        "state": "waiting_approval", "reason": "", "step": "two", "attempt": 2, "evidence": "e1",
        "mode": "all", "confirm": "yes",
    }  # fmt: skip
    assert not found.silent
    # the next question of the same kind: the old evidence must not stay on show
    made.state("running")
    made.state("waiting_approval", detail="and now?")
    control.set(evidence="e2", step="three")
    seen.until(lambda s: s.control.get("evidence") == "e2")


def test_a_runner_that_hangs_does_not_stop_the_journal(
    see: See, hand: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.frontends.tui.watch.run.CONTROL_LIMIT_S", 0.05)
    monkeypatch.setattr("console.frontends.tui.watch.run.DESK_S", 0.05)
    made = hand().live()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        with short_address(made.run.socket) as address:
            mute.bind(address)
        mute.listen(8)
        seen = see()
        seen.until(lambda s: s.silent, "the runner is found silent")
        for number_ in range(3):
            made.add("step.say", "one", 1, text=f"line {number_}")
            made.step("one", "running")
            made.add("step.say", "one", 1, text=f"line {number_}")
            found = seen.until(lambda s, n=number_: s.view.steps[0].message == f"line {n}")  # type: ignore[misc]
            assert found.control == {}
    seen.until(lambda s: s.view.steps[0].message == "line 2")


def test_it_switches_to_a_live_run_when_the_one_on_show_has_ended(
    see: See, hand: Make, begin: Begin
) -> None:
    first, child = hand(), begin("sleep", "600")
    first.runner(number(child))
    first.state("running")
    seen = see(first.run)
    seen.until(lambda s: s.live)
    second = hand().live()
    seen.until(lambda s: not s.live)
    shown = some(seen.now.run)
    assert shown.id == first.run.id, "it goes on: nobody takes it from the screen"
    first.state("succeeded")
    end(child)
    seen.until(lambda s: s.run is not None and s.run.id == second.run.id and s.live)


def test_an_old_run_that_was_asked_for_stays(see: See, hand: Make) -> None:
    old = hand()
    old.state("running")
    old.state("failed")
    hand().live()
    seen = see()
    seen.until(lambda s: s.live)
    seen.watch.show(old.run)
    seen.until(lambda s: s.word == "failed")
    looked = seen.watch._choice._looked
    until(lambda: seen.watch._choice._looked > looked + 0.3)
    assert seen.now.word == "failed"
    seen.watch.show(None)
    seen.until(lambda s: s.live)


def test_rungs_of_an_emergency_and_whether_it_climbs(see: See, hand: Make) -> None:
    made = hand().live()

    def say(trigger: str, rung: str, state: str) -> None:
        with made.run.ladder.open("a") as file:
            file.write(json.dumps({"trigger": trigger, "rung": rung, "state": state}) + "\n")

    say("runner-1", "stop", "ok")
    say("runner-1", "done", "ok")
    seen = see()
    seen.until(lambda s: s.word == "running")
    assert seen.now.stages == (), "the runner's own is no emergency"
    lock = Lock(made.run.rollback)
    try:
        assert lock.taken()
        say("warm-2", "fence", "begin")
        found = seen.until(lambda s: s.is_rolling_back)
        assert [r["trigger"] for r in found.stages] == ["warm-2"]
        say("warm-2", "done", "ok")
        found = seen.until(lambda s: len(s.stages) == 2)
        assert not found.is_rolling_back
        say("command-3", "fence", "begin")
        found = seen.until(lambda s: s.is_rolling_back)
        assert [r["trigger"] for r in found.stages] == ["command-3"]
    finally:
        lock.close()
    seen.until(lambda s: not s.is_rolling_back, "a ladder that was killed climbs no more")


def test_a_run_whose_runner_an_emergency_ended_offers_no_resume(see: See, hand: Make) -> None:
    made = hand()
    made.state("running")
    seen = see()
    seen.until(lambda s: s.word == "interrupted")
    lock = Lock(made.run.rollback)
    try:
        assert lock.taken()
        line = {"trigger": "warm-2", "rung": "fence", "state": "begin", "at": 1234.0}
        made.run.ladder.write_text(json.dumps(line) + "\n")
        found = seen.until(lambda s: s.word == "rolling_back")
    finally:
        lock.close()
    assert found.clock(5000.0) == 1234.0, "the step that it ended takes no longer"
    assert seen.until(lambda s: s.word == "interrupted").is_rolling_back is False
    closer, start = os.getpid(), some(process.start_time(os.getpid()))
    live.append(made.run.live, live.closer(closer, start))
    made.add("run.note", text="the closer writes")
    seen.until(lambda s: s.word == "rolling_back", "its end is being written")


def test_restore_time_from_the_plans_memory_until_the_run_has_its_own(
    see: See, hand: Make, tmp_path: Path
) -> None:
    made = hand()
    memory = tmp_path / "restore.json"
    base = Baseline("baseline", "container", "http://127.0.0.1:1", container_name="x")
    sealed.write(
        SealedPlan("r", str(made.run.path), base, memory_file=str(memory)), made.run.sealed
    )
    restores.remember_restore(memory, "baseline", 74.0, 1.0)
    seen = see()
    found = seen.until(lambda s: s.restore_s == 74.0)
    assert some(found.sealed).baseline.container_name == "x"
    made.add("outage", "one", down=False, restore_s=12.0)
    seen.until(lambda s: s.restore_s == 12.0)


def test_a_journal_that_is_garbage_is_unreadable_and_one_strange_event_is_not(
    see: See, hand: Make
) -> None:
    made = hand()
    made.state("running")
    made.add("run.state", state="from the future")
    made.step("one", "running")
    seen = see()
    found = seen.until(lambda s: s.view.steps[0].state == "running")
    assert "from the future" in found.trouble
    assert found.view.state is RunState.RUNNING
    broken = hand()
    broken.journal.close()
    for path in broken.run.path.glob("journal.db*"):
        path.unlink()
    broken.run.journal.write_bytes(b"garbage" * 1000)
    seen.watch.show(broken.run)
    found = seen.until(lambda s: s.word == "unreadable")
    assert found.trouble.startswith("the journal cannot be read")


def test_a_run_that_vanishes_makes_room(see: See, hand: Make) -> None:
    stays = hand()
    stays.state("running")
    goes = hand(name="zzz").live()
    seen = see()
    seen.until(lambda s: s.live)
    os.unlink(next(Path(os.environ["OMNI_HOST_DIR"]).glob("*.json")))
    shutil.rmtree(goes.run.path)
    seen.until(lambda s: s.run is not None and s.run.id == stays.run.id)


def test_the_first_snapshot_is_whole_and_what_a_callback_raises_does_not_end_the_watch(
    hand: Make,
) -> None:
    made, calls = hand(), list[Snapshot]()
    for at in range(100):
        made.add("step.say", "one", 1, text=f"line {at}")

    def deliver(snapshot: Snapshot) -> None:
        calls.append(snapshot)
        raise RuntimeError("the screen is gone")

    watch = RunWatch(deliver, made.run, poll_s=0.02)
    watch.start()
    until(lambda: calls)
    assert calls[0].view.steps[0].message == "line 99"
    made.state("running")
    until(lambda: len(calls) > 1)
    watch.close()
