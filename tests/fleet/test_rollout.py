"""A rollout over lines that are lost everywhere: what is started, what is said, where it stops."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import Exit, HostBusy, UsageError
from console.fleet import rollout
from console.fleet.inventory import Host
from console.fleet.protocol import BridgeError, LineLost
from console.fleet.rollout import Driver, Rollout, held, kept, opened
from console.fleet.starts import STARTING, Wanted
from console.journal.fold import fold
from console.journal.run_view import RunView
from console.journal.state import exit_code
from console.journal.store import Event
from tests.clock import FakeClock

WANTED = Wanted("trial", "text", {"n": "1"})
Json = dict[str, Any]
GO, NO_GO, HOLD = "GO", "NO-GO", "HOLD"


@dataclass
class FarHost:
    """A host as its bridge is: runs by their requests, whatever happens to the line. `lose`: the
    questions (`start!` after the host has heard it) whose line is lost, each once."""

    name: str
    verdict: str = GO
    lose: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    refuse: list[BridgeError] = field(default_factory=list)
    state: str = "succeeded"
    goes_on: bool = True
    runs: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    plans: list[Json] = field(default_factory=list)
    begun: int = 0
    lease_s: float | None = None

    def ask(self, question: str, limit_s: float = 0.0, said: Any = None, **more: Any) -> Json:
        self.asked.append(question)
        self._line(question)
        answer: Json = getattr(self, f"_{question}")(more)
        self._line(f"{question}!")
        return answer

    def act(self, question: str, limit_s: float = 0.0, **more: Any) -> Json:
        return self.ask(question, **more)

    def close(self) -> None: ...

    def _line(self, word: str) -> None:
        if word in self.lose:
            self.lose.remove(word)
            raise LineLost(f"{self.name} cannot be reached", "no route")

    def _started(self, asked: Json) -> Json:
        return {"run": self.runs.get(asked["request"])}

    def _plan(self, asked: Json) -> Json:
        self.plans.append(asked)
        return {"lines": [f"plan of {self.name}"], "problems": self.problems, "hash": "ab" * 8}

    def _start(self, asked: Json) -> Json:
        if self.refuse:
            raise self.refuse.pop(0)
        if asked["request"] not in self.runs:
            self.begun += 1
            self.runs[asked["request"]] = f"run-{self.name}"
        return {"run": self.runs[asked["request"]]}

    def _journal(self, asked: Json) -> Json:
        steps = [{"id": "g", "title": "G", "phase": "A", "kind": "gate"}]
        events = [
            [1, 1.0, "run.created", "", 0, {"run_id": asked["run"], "steps": steps}],
            [2, 2.0, "step.state", "g", 1, {"state": "running"}],
            [3, 3.0, "verdict", "g", 1, {"verdict": self.verdict}],
            [4, 4.0, "run.state", "", 0, {"state": self.state}],
            [5, 5.0, "run.finished", "", 0, {}],
        ]  # fmt: skip
        here = events if self.goes_on else events[:2]
        page = [one for one in here if one[0] > asked["since"]][:2]
        status = {"lease": self.lease_s} if self.lease_s else {}
        more = page != [one for one in here if one[0] > asked["since"]] and not asked.get("attend")
        return {
            "run": asked["run"],
            "events": page,
            "more": more,
            "goes_on": self.goes_on,
            "status": status,
        }

    def _state(self, asked: Json) -> Json:
        return {"baseline": {"word": "serving"}, "run": {"alive": False}}


class Seen:
    """A viewer that keeps what it was told."""

    def __init__(self, host: Host) -> None:
        self.view, self.finished, self.seqs = RunView(), False, list[int]()

    def take(self, events: list[Event]) -> None:
        fold(events, self.view)
        self.seqs += [one.seq for one in events]
        self.finished |= any(one.kind == "run.finished" for one in events)

    def conclude(self) -> Exit:
        assert self.seqs == [1, 2, 3, 4, 5], "each event once, in order"
        return exit_code(self.view.state, self.view.decision)


@dataclass
class Fleet:
    """One operator, and the hosts by their names."""

    tmp: Path
    clock: FakeClock
    hosts: dict[str, FarHost] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    agrees: Callable[[Host, Json], bool] = lambda host, plan: True

    def host(self, name: str, verdict: str = GO, **more: Any) -> FarHost:
        self.hosts[name] = FarHost(name, verdict, **more)
        return self.hosts[name]

    @property
    def named(self) -> tuple[Host, ...]:
        return tuple(Host(name, name) for name in self.hosts)

    def open(self) -> Rollout:
        return opened(WANTED, self.tmp / "fleet.yaml", self.named, self.clock.now())

    def go(self, one: Rollout | None = None) -> Exit:
        driver = Driver(
            one or self.open(), WANTED, line=lambda host: self.hosts[host.name],
            say=self.said.append, agree=self.agrees, viewer=Seen, clock=self.clock,
        )  # fmt: skip
        return driver.go(self.named)

    @property
    def begun(self) -> list[int]:
        return [one.begun for one in self.hosts.values()]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Fleet(tmp_path, FakeClock())


@pytest.mark.parametrize(
    ("ends", "code", "begun"),
    [
        ((GO, GO, GO), Exit.OK, [1, 1, 1]), ((GO, NO_GO, GO), Exit.NO_GO, [1, 1, 0]),
        ((HOLD, GO, GO), Exit.HOLD, [1, 0, 0]),
    ],
)  # fmt: skip
def test_the_next_host_begins_only_after_go(
    fleet: Fleet, ends: tuple[str, ...], code: Exit, begun: list[int]
) -> None:
    for name, verdict in zip("abc", ends, strict=True):
        fleet.host(name, verdict)
    assert fleet.go() is code
    assert fleet.begun == begun
    assert kept()[0].over


@pytest.mark.parametrize(
    ("state", "code"),
    [("failed", Exit.FAILED), ("rolled_back", Exit.ROLLED_BACK),
     ("rollback_failed", Exit.ROLLBACK_FAILED)],
)  # fmt: skip
def test_a_run_that_fails_after_its_go_stops_the_rollout(
    fleet: Fleet, state: str, code: Exit
) -> None:
    fleet.host("a", state=state)
    fleet.host("b")
    assert fleet.go() is code
    assert fleet.begun == [1, 0]
    assert "stopped at a: not begun on b" in fleet.said


def test_a_runner_that_is_gone_is_a_hold(fleet: Fleet) -> None:
    fleet.host("a", goes_on=False)
    fleet.host("b")
    assert fleet.go() is Exit.HOLD
    assert fleet.begun == [1, 0]


QUESTIONS = ("started", "plan", "start", "journal")


@pytest.mark.parametrize("lost", [*QUESTIONS, *(f"{one}!" for one in QUESTIONS)])
@pytest.mark.parametrize("times", [1, 3])
def test_a_line_that_is_lost_doubles_no_run_and_loses_none(
    fleet: Fleet, lost: str, times: int
) -> None:
    far = fleet.host("a", lose=[lost] * times)
    assert fleet.go() is Exit.OK
    assert far.begun == 1
    told = [line for line in fleet.said if "unknown" in line]
    # after a start whose answer was lost another question is asked, which is answered here
    again = times > 1 and lost not in ("start", "start!")
    assert len(told) == again, "said once, and not of a line that is back at once"
    assert not any("down" in line for line in fleet.said)


def test_a_line_that_is_lost_says_when_the_baseline_comes_back(fleet: Fleet) -> None:
    far = fleet.host("a", lease_s=600.0)
    after = 4  # started, plan, start, and a page of the journal
    lost = iter([""] * after + ["journal"] * 2)
    before = far._line

    def line(word: str) -> None:
        if "!" not in word:
            far.lose += [found] if (found := next(lost, "")) else []
        before(word)

    far._line = line  # type: ignore[method-assign]
    assert fleet.go() is Exit.OK
    assert any("comes back at" in line and "lease of run run-a" in line for line in fleet.said)
    assert "a answers again" in fleet.said


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_a_command_that_is_killed_goes_on_with_the_same_words(fleet: Fleet, place: int) -> None:
    """Killed after each question: called again, it asks nobody twice for what is begun."""

    class Killed(BaseException): ...

    far, count = fleet.host("a"), iter(range(100))
    fleet.host("b")
    before = far.ask

    def ask(question: str, *rest: Any, **more: Any) -> Json:
        answer = before(question, *rest, **more)
        if next(count) == place:
            raise Killed
        return answer

    far.ask = ask  # type: ignore[method-assign]
    with pytest.raises(Killed):
        fleet.go()
    assert fleet.go() is Exit.OK
    assert fleet.begun == [1, 1]
    assert [leg.exit for leg in kept()[0].legs] == [0, 0]
    assert fleet.go() is Exit.OK, "what is over begins anew"
    assert fleet.begun == [2, 2]


def test_what_would_be_refused_starts_nothing_and_the_rollout_stays_open(fleet: Fleet) -> None:
    far = fleet.host("a", problems=["lint: F-1"])
    with pytest.raises(BridgeError, match="would be refused") as refused:
        fleet.go()
    assert (refused.value.exit_code, far.begun) == (Exit.LINT, 0)
    far.problems = []
    assert fleet.go() is Exit.OK


def test_a_plan_that_nobody_takes_starts_nothing(fleet: Fleet) -> None:
    far = fleet.host("a")
    fleet.agrees = lambda host, plan: False
    assert fleet.go() is Exit.FAILED
    assert far.begun == 0


def test_a_run_that_is_no_more_there_names_the_way_out(fleet: Fleet) -> None:
    far = fleet.host("a")

    def gone(asked: Json) -> Json:
        raise BridgeError("no_run", "there is no run yet")

    far._journal = gone  # type: ignore[method-assign]
    with pytest.raises(BridgeError) as refused:
        fleet.go()
    assert refused.value.hint == rollout.FRESH


def test_a_host_that_another_run_holds_is_told_at_once(fleet: Fleet) -> None:
    busy = BridgeError("failed", "another run holds this host", "", "", Exit.BUSY)
    far = fleet.host("a", refuse=[busy])
    with pytest.raises(BridgeError, match="holds this host"):
        fleet.go()
    assert far.begun == 0


def test_a_start_that_is_still_under_way_there_is_waited_for(fleet: Fleet) -> None:
    busy = BridgeError("failed", "another run holds this host", "", "", Exit.BUSY)
    under_way = BridgeError(STARTING, "a run is being started", "", "", Exit.BUSY)
    far = fleet.host("a", lose=["start"], refuse=[under_way, busy])
    assert fleet.go() is Exit.OK
    assert far.begun == 1


def test_the_lease_of_the_command_goes_before_the_files(fleet: Fleet) -> None:
    far = fleet.host("a")
    host = Host("a", "a", lease_s=1200.0)
    for given, wanted in ((None, 1200.0), (90.0, 90.0)):
        asked = rollout._asked(Wanted("t", "x", lease_s=given), host)
        assert asked["lease_s"] == wanted
    fleet.go()
    assert far.plans[0]["inputs"] == {"n": "1"}


def test_a_rollout_is_held_by_one_terminal(fleet: Fleet) -> None:
    fleet.host("a")
    one = fleet.open()
    with held(one), pytest.raises(HostBusy), held(fleet.open()):
        pass


def test_other_words_are_another_rollout_and_a_broken_record_is_told(fleet: Fleet) -> None:
    fleet.host("a")
    first = fleet.open()
    first.save()
    assert fleet.open().legs[0].request == first.legs[0].request
    other = opened(Wanted("trial", "text", {"n": "2"}), fleet.tmp / "fleet.yaml", fleet.named, 0.0)
    assert other.path != first.path
    again = opened(WANTED, fleet.tmp / "fleet.yaml", fleet.named, 0.0, fresh=True)
    assert again.legs[0].request != first.legs[0].request
    first.path.write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        fleet.open()
