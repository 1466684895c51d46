"""The runner process at its ends: what a refusal leaves behind, who has the host meanwhile, and
who brings the baseline back."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from console.common.errors import ConsoleError, Exit
from console.frontends.tui.watch.actions import BINDS
from console.host import process
from console.journal import events
from console.journal.lock import HostLock
from console.journal.state import RunState
from console.recovery.guard import config as guard_config
from console.recovery.rollback import evidence, live, records, trigger
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.progress import Result, quiet_limit
from console.recovery.rollback.trigger import Lock
from console.runner import finish
from console.runner import main as runners
from console.runner.claim import announce
from console.runner.control import Verb
from console.runner.executors import person
from tests.clock import FakeClock
from tests.runner.unit.conftest import Bench, mine
from tests.waiting import host_is_free, until


def broken(context: object) -> None:
    raise RuntimeError("a fault")


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the host was free, before and after the runner's own ladder settled."""
    free: list[bool] = []

    def run(settle: Callable[[], None]) -> Result:
        free.append(host_is_free())
        settle()
        free.append(host_is_free())  # the closer is started now
        return Result(serving=True)

    def procedure(plan: object, *, settle: Callable[[], None]) -> SimpleNamespace:
        return SimpleNamespace(run=lambda: run(settle))

    monkeypatch.setattr(runners, "Procedure", procedure)
    return free


@pytest.fixture(autouse=True)
def _in_this_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = SimpleNamespace(SIGHUP=1, SIGPIPE=13, SIGTERM=15, SIG_IGN=1, signal=lambda *_: None)
    monkeypatch.setattr(runners, "signal", ignored)
    monkeypatch.setattr(runners, "_context", lambda run, closing: bench.context)


def run(bench: Bench, *, resume: bool) -> tuple[int, dict[str, Any]]:
    """The exit code, and the word that was said."""
    code = runners.main(bench.context.run, ready_fd=-1, resume=resume, close=False, from_step="")
    return code, json.loads((bench.context.run.path / "runner.word").read_text())


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(context: object, **_: object) -> None:
        raise ConsoleError("the sentinel did not start", "see its log")

    monkeypatch.setattr(runners, "_begin", begin)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize(
    "up",
    [
        events.Outage(down=True),
        events.Service(service="cand", alive=True, runs_as="container", container="c"),
    ],
)
def test_what_is_up_is_not_left_unguarded(bench: Bench, climb: list[bool], up: events.Body) -> None:
    bench.context.record(up)
    code, word = run(bench, resume=True)
    assert (code, word["title"]) == (Exit.INTERNAL, "the sentinel did not start")
    assert word["detail"].splitlines() == ["see its log", runners.UNGUARDED]
    assert climb == [False, True]


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("how", ["watched", "over", "nothing up", "a new run"])
def test_nothing_is_done_where_nothing_is_owed(bench: Bench, climb: list[bool], how: str) -> None:
    if how != "nothing up":
        bench.context.record(events.Outage(down=True))
    if how == "watched":
        page = dict(zip(("pid", "start"), mine(), strict=True))
        (bench.context.run.guard / guard_config.READY).write_text(json.dumps(page))
    if how == "over":
        bench.context.enter(RunState.ROLLING_BACK)
        bench.context.enter(RunState.ROLLBACK_FAILED)
    word = run(bench, resume=how != "a new run")[1]
    assert (word["detail"], climb) == ("see its log", [])


@pytest.mark.parametrize("up", [True, False])
def test_no_other_run_begins_while_the_baseline_is_brought_back(
    bench: Bench, climb: list[bool], monkeypatch: pytest.MonkeyPatch, up: bool
) -> None:
    monkeypatch.setattr(runners, "_begin", lambda context, **_: None)
    monkeypatch.setattr(runners, "_watch_machine", lambda context, resumed: None)
    monkeypatch.setattr(runners, "_end", lambda context, server: None)
    monkeypatch.setattr(runners, "Runner", broken)
    bench.context.record(events.Outage(down=up))
    assert run(bench, resume=False)[0] == Exit.INTERNAL
    assert climb == ([False, True] if up else [])
    assert host_is_free()


def test_a_resume_beside_a_live_runner_touches_nothing(bench: Bench, climb: list[bool]) -> None:
    bench.context.record(events.Outage(down=True))
    held = HostLock()
    announce(bench.context.run)
    assert run(bench, resume=True)[0] == Exit.BUSY
    assert climb == []
    held.release()


@pytest.mark.parametrize("witness", [Witness.ROLLBACK, Witness.SCRIPT, Witness.WATCH])
@pytest.mark.parametrize("when", ["before", "since", "since, by a clock ahead"])
def test_a_run_does_not_begin_after_a_rollback_that_ended_since_it_was_asked_for(
    bench: Bench, climb: list[bool], monkeypatch: pytest.MonkeyPatch, witness: Witness, when: str
) -> None:
    """Its command was under way, and its runner had not named itself, so nothing could end it."""
    run_dir, site = bench.context.run, bench.context.plan.site.model
    asked_at = time.time() - 60
    run_dir.write_meta(replace(run_dir.meta(), created=asked_at))
    proof = Evidence(Kind.PROOF, Word.SERVING, asked_at, witness)
    evidence.keep(site.name, site.baseline.url, proof)
    offset = {"before": -1, "since": 1}.get(when, 7200)
    for file in evidence.directory(site.name, site.baseline.url).iterdir():
        os.utime(file, (asked_at + offset, asked_at + offset))
    monkeypatch.setattr(runners, "_begin", broken)
    code, word = run(bench, resume=False)
    refused = when == "since" and witness is not Witness.WATCH
    assert (code == Exit.BUSY) is refused
    assert ("a rollback has ended since" in word["title"]) is refused
    assert records.read(os.getuid()) is None


def test_who_reads_a_state_in_the_journal_may_answer_it_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, control, append = bench.context, bench.context.control, bench.context.journal.append
    stood: list[tuple[str, RunState]] = []

    def appended(at: float, kind: str, step: str, attempt: int, data: dict[str, Any]) -> int:
        seq = append(at, kind, step, attempt, data)
        stood.append((data.get("state", ""), control.state))
        if data.get("state") == "waiting_approval":
            assert control.ask(Verb("approve", "op"), {n: control.status()[n] for n in BINDS}) == ""
        return seq

    monkeypatch.setattr(context.journal, "append", appended)
    control.set(step="up", attempt=1)
    attempt: Any = SimpleNamespace(step="up", remaining=lambda: 1.0)
    assert person.wait(context, attempt, "go on?", 0.0, "").detail == "approved by op"
    context.enter(RunState.PAUSED, "operator")
    assert [said for said, state in stood if said and said != state] == []


class Ticking(FakeClock):
    """A second a look; what is to happen at a look is in `then`."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.then: dict[int, Callable[[], None]] = {}

    def sleep(self, seconds: float) -> None:
        assert self.time < 10_000, "it waits for ever"
        self.then.get(int(self.time), lambda: None)()
        super().sleep(1.0)


class Warm:
    """A warm ladder that says and does what a test wants, and what the run's own does meanwhile."""

    def __init__(self, bench: Bench, child: subprocess.Popen[bytes]) -> None:
        self.context = bench.context
        self.context.guard = None
        self.context.services = SimpleNamespace(handles={})  # type: ignore[assignment]
        self.context.clock = self.clock = Ticking()
        self.child = child
        self.own: list[float] = []
        self.is_rolling_back = Lock(bench.context.run.rollback)
        run = bench.context.run
        os.mkfifo(run.rollback / trigger.FIFO)
        self.fifo = os.open(run.rollback / trigger.FIFO, os.O_RDWR | os.O_NONBLOCK)
        start = process.start_time(child.pid) or 0
        live.append(run.live, live.Live("ladder", "warm", child.pid, start))

    def says(self, rung: str, **more: Any) -> None:
        line = {"trigger": "t", "rung": rung, "state": "ok", "at": 1.0, "t": 1.0, "detail": ""}
        with self.context.run.ladder.open("a") as file:
            file.write(json.dumps({**line, **more}) + "\n")

    def stops(self) -> None:
        os.kill(self.child.pid, signal.SIGSTOP)
        until(lambda: trigger.is_stopped(self.child.pid), "the ladder is stopped")

    def climb(self, *_: object, **__: object) -> SimpleNamespace:
        """Stands where the run's own ladder does."""
        self.own.append(self.clock.time)
        return SimpleNamespace(run=lambda: Result(serving=True))


@pytest.fixture
def warm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    with subprocess.Popen(["sleep", "600"]) as child:
        made = Warm(bench, child)
        monkeypatch.setattr(finish, "Procedure", made.climb)
        assert made.is_rolling_back.taken()
        yield made
        made.is_rolling_back.close()
        child.kill()
    os.close(made.fifo)


def test_a_ladder_that_goes_on_is_waited_for(warm: Warm) -> None:
    limit = int(quiet_limit(sealed.read(warm.context.run.sealed)))
    warm.clock.then = {
        1: lambda: warm.says("stop"),
        limit: lambda: warm.says("start"),
        2 * limit - 10: lambda: warm.says("done", serving=True, restore_s=9.0),
    }
    assert finish.bring_back(warm.context, "up", 1).restore_s == 9.0
    assert (os.read(warm.fifo, 16), warm.own) == (trigger.REQUEST, [])


@pytest.mark.parametrize("how", ["is stopped", "lost its last line", "hangs", "says nothing"])
def test_one_that_goes_on_no_more_is_not(warm: Warm, how: str) -> None:
    limit = quiet_limit(sealed.read(warm.context.run.sealed))
    then, waited = {
        "is stopped": ({20: warm.stops}, pytest.approx(21.0)),
        # a full disk took the line; its lock is free
        "lost its last line": (
            {20: warm.is_rolling_back.close}, pytest.approx(20 + trigger.ALIVE_S, abs=1.0)
        ),
        "hangs": ({}, pytest.approx(limit, abs=5.0)),
        "says nothing": ({}, pytest.approx(finish.STANDBY_WORD_S)),
    }[how]  # fmt: skip
    warm.clock.then = then | ({} if how == "says nothing" else {1: lambda: warm.says("stop")})
    assert finish.bring_back(warm.context, "up", 1).serving
    assert warm.own == [waited]
