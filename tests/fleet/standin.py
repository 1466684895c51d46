"""Hosts as their bridges are, and the operator who asks them, for lines lost at each question."""

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import Exit
from console.fleet.drive import Driver
from console.fleet.inventory import Host
from console.fleet.protocol import SEVERAL, BridgeError, LineLost
from console.fleet.rollout import Rollout, opened
from console.fleet.starts import Wanted
from console.journal.fold import fold
from console.journal.run_view import RunView
from console.journal.state import exit_code
from console.journal.store import Event
from console.recovery.rollback.shell.program_gone import NO_SCRIPT
from tests.clock import FakeClock

WANTED = Wanted("trial", "text", {"n": "1"})
Json = dict[str, Any]
GO, NO_GO, HOLD = "GO", "NO-GO", "HOLD"
SAY = 'id: say, run: [cat, rate], outputs: {rate: {pattern: "rate: ([0-9.]+)", unit: tok/s}}'
JUDGE = 'id: go, gate: [{metric: say.rate, go: ">= 20 tok/s", no_go: "< 10 tok/s"}]'
"""Steps whose verdict is what a file `rate` beside the host's site file says."""


@dataclass
class FarHost:
    """A host as its bridge is: runs by their requests, whatever happens to the line. `lose`: the
    questions (`start!` after the host has heard it) whose line is lost, each once."""

    name: str
    verdict: str = GO
    lose: list[str] = field(default_factory=list)
    code: int | None = None
    problems: list[str] = field(default_factory=list)
    refuse: list[BridgeError] = field(default_factory=list)
    state: str = "succeeded"
    goes_on: bool = True
    runs: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    plans: list[Json] = field(default_factory=list)
    begun: int = 0
    lease_s: float | None = None
    jobs: list[Json | BridgeError] = field(default_factory=list)
    slurm: bool = True

    def __post_init__(self) -> None:
        self.host = Host(self.name, self.name)

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
        run = self.runs.get(asked["request"])
        if run is None or not self.jobs:
            return {"run": run}
        job = self.jobs.pop(0)
        if isinstance(job, BridgeError):
            raise job
        return {"run": None, "job": job}

    def _plan(self, asked: Json) -> Json:
        self.plans.append(asked)
        return {"lines": [f"plan of {self.name}"], "problems": self.problems, "hash": "ab" * 8,
                "exit": self.code, "slurm": asked["slurm"] if self.slurm else None}  # fmt: skip

    def _start(self, asked: Json) -> Json:
        if self.refuse:
            raise self.refuse.pop(0)
        if asked["request"] not in self.runs:
            self.begun += 1
            self.runs[asked["request"]] = f"run-{self.name}"
        return {"run": None if self.jobs else self.runs[asked["request"]]}

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


BOOK = "schema: omni.playbook/v1\nname: trial\ntitle: T\nphases: []\n"
SEEN = {"step": "sure", "attempt": 1, "evidence": "e"}
STATE: Json = {
    "baseline": {"word": "serving"}, "guard": {"lease_s": 60.0},
    "run": {"id": "run-a", "alive": True, "outage": True, "status": {**SEEN, "state": "x"}},
}  # fmt: skip


class Typed(io.StringIO):
    """What a person types, or nobody."""

    def __init__(self, text: str | None) -> None:
        super().__init__(text or "")
        self._there = text is not None

    def isatty(self) -> bool:
        return self._there


class ToldHost(FarHost):
    """A host as the commands reach it. `told`: what acts, as it came; `lost`: the question at which
    the line breaks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.told: list[Json] = []
        self.rolled: Json | BridgeError = {"exit": 0, "results": [{"serving": True}]}
        self.state_told: Json = STATE
        self.no_run = self.abandoned = False
        self.given_up: threading.Event | None = None
        """For a host that does not answer until it is given up."""
        self.ctrl_c = False
        """Whether a person presses Ctrl-C while this host is asked."""
        self.words: list[str] = []
        """What its rollback says."""
        self.script_ends = NO_SCRIPT

    def ask(self, question: str, limit_s: float = 0.0, said: Any = None, **more: Any) -> Json:
        self.tell = said
        if self.ctrl_c:
            raise KeyboardInterrupt
        if self.given_up is not None:
            assert self.given_up.wait(60)
            raise LineLost(f"{self.name} cannot be reached")
        return super().ask(question, limit_s, said, **more)

    def token(self) -> str:
        return str(self.ask("ready")["token"])

    def run_script(self, tell: Any) -> int:
        tell("rolled back by the script")
        return self.script_ends

    def abandon(self) -> None:
        self.abandoned = True
        if self.given_up is not None:
            self.given_up.set()

    def open(self) -> "ToldHost":
        self._line("open")
        return self

    def _state(self, asked: Json) -> Json:
        return self.state_told

    def _ready(self, asked: Json) -> Json:
        return {"token": "t"}

    def _tell(self, asked: Json) -> Json:
        self.told.append(asked)
        return {"status": {"step": "sure"}}

    def _journal(self, asked: Json) -> Json:
        if asked["run"] == "2026":
            raise BridgeError(
                SEVERAL, f"{self.name}: '2026' is more than one run", "20261126-a, 20261126-b"
            )
        if self.no_run or asked["run"] == "nope":
            raise BridgeError("no_run", "no such run")
        return super()._journal(asked)

    def _rollback(self, asked: Json) -> Json:
        self.told.append(asked)
        for word in self.words:
            self.tell(word)
        if isinstance(self.rolled, BridgeError):
            raise self.rolled
        return self.rolled


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
    slurm: Json = field(default_factory=dict)
    agrees: Callable[[Host, Json], bool] = lambda host, plan: True

    def host(self, name: str, verdict: str = GO, **more: Any) -> FarHost:
        self.hosts[name] = FarHost(name, verdict, **more)
        return self.hosts[name]

    @property
    def named(self) -> tuple[Host, ...]:
        return tuple(Host(name, name, slurm=self.slurm) for name in self.hosts)

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
