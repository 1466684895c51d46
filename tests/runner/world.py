"""What every test of whole runs has: places, a site, and the run as its own files tell it."""

import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from console.common.errors import ConsoleError, ControlError
from console.common.logs.tail import read_last
from console.host import process
from console.journal.fold import fold
from console.journal.lock import closer_alive, runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView, StepView
from console.journal.store import Event, Reader
from console.recovery.rollback import live
from console.runner import control
from console.runtime.answers.completion import complete
from console.runtime.probe import ProbeError, fetch
from tests.ports import free_port
from tests.waiting import LIMIT_S, until

T = TypeVar("T")

LONGEST_S = 280.0
"""No command is waited for longer."""
ENDS = ("succeeded", "failed", "cancelled", "rolled_back", "rollback_failed")
LAST_EVENTS, LAST_LINES = 10, 8
Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        """The one object on stdout."""
        value: Json = json.loads(self.out)
        return value

    def __str__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class WorldBase(ABC):
    """One test's state, host directory, site file and ports, and the newest run read directly."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root, self.model = root, model
        self.base_port, self.cand_port = free_port(), free_port()
        for part in ("host", "state", "config", "cache"):
            (root / part).mkdir()
        self.env = {
            **{f"XDG_{part.upper()}_HOME": str(root / part) for part in ("config", "cache")},
            "XDG_STATE_HOME": str(root / "state"), "OMNI_HOST_DIR": str(root / "host"),
            "OMNI_SITE": str(self.site),
        }  # fmt: skip

    @abstractmethod
    def console(self, *args: str, **env: str) -> Outcome:
        """Run one command to its end, without a terminal."""

    @abstractmethod
    def start(self, *args: str, **env: str) -> Any:
        """The command in the background, with `communicate` and `returncode` as of a Popen."""

    @abstractmethod
    def mine(self) -> list[tuple[int, int]]:
        """(pid, start) of every process of this world that lives."""

    @abstractmethod
    def engine(self, model: Path, port: int) -> list[str]:
        """The argv of an engine that serves this model."""

    @abstractmethod
    def bring_up(self) -> tuple[int, int]:
        """The baseline as an earlier day left it: running, with a record; (pid, start)."""

    @property
    def site(self) -> Path:
        return self.root / "site.yaml"

    @property
    def effects(self) -> Path:
        """Where steps append one line for each time they really did something."""
        return self.root / "effects"

    def done(self) -> list[str]:
        return self.effects.read_text().split() if self.effects.exists() else []

    @property
    def runs(self) -> list[RunDir]:
        """Every run directory, newest first; two may begin in the same second."""
        found = (self.root / "state/omni-console/runs").glob("*/run.json")
        by_age = sorted(found, key=lambda meta: meta.stat().st_mtime_ns, reverse=True)
        return [RunDir(meta.parent) for meta in by_age]

    @property
    def run(self) -> RunDir:
        return self.runs[0]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.base_port}"

    @property
    def cand_url(self) -> str:
        return f"http://127.0.0.1:{self.cand_port}"

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text)
        return path

    @property
    def records(self) -> Path:
        return self.root / "state/omni-console/services/local"

    def baseline(self) -> tuple[int, int] | None:
        """(pid, start) of the baseline's process if it runs."""
        return process.read_record(self.records, "baseline")

    def serves(self, url: str = "") -> bool:
        """Whether a completion is answered, now."""
        try:
            return complete(url or self.base_url, max_tokens=4, timeout_s=30.0).ok
        except ConsoleError:
            return False

    def listens(self, url: str) -> bool:
        try:
            fetch(f"{url}/health", timeout_s=2.0)
        except ProbeError as error:
            return "refused" not in str(error)
        return True

    def go(self, book: Path, *args: str, **env: str) -> Outcome:
        """`run --json`, headless, to the end."""
        return self.console("run", str(book), "--json", *args, **env)

    def detach(self, book: Path, *args: str, **env: str) -> RunDir:
        """A detached run that has begun; it pauses where a headless one would end."""
        begun = self.console("run", str(book), "--json", "--detach", *args, **env)
        assert begun.code == 0, begun
        return RunDir(Path(begun.json["path"]))

    def tell(self, verb: str, *args: str) -> Outcome:
        return self.console("tell", self.run.id, verb, *args)

    def show(self) -> Json:
        return self.console("show", self.run.id, "--json").json

    def status(self) -> Json:
        """What the runner's socket says; empty when nobody answers."""
        try:
            return control.send(self.run.socket, {"verb": "status"})
        except (ControlError, OSError):
            return {}

    def events(self) -> list[Event]:
        """The journal of the newest run; empty where it cannot be read."""
        with closing(Reader(self.run.journal)) as reader, suppress(ConsoleError):
            return reader.since(0)
        return []

    def view(self) -> RunView:
        return fold(self.events())

    def at(self, step: str) -> StepView:
        """One step as the journal has it now, once it has one."""
        return self.until(lambda: self.view().step(step), f"the plan has {step}")

    def states(self) -> dict[str, str]:
        """Step id → state, in the plan's order."""
        return {s.id: str(s.state) for s in self.view().steps}

    @property
    def words(self) -> str:
        view = self.view()
        return f"{view.state} {view.reason} {[(s.id, str(s.state), s.detail) for s in view.steps]}"

    def where(self) -> str:
        """Where the newest run stands: state, last events, and what its processes said last."""
        if not self.runs:
            return "no run was made"
        run = self.run
        lines = [f"run {run.id}: {self.words}", "last events:"]
        for event in self.events()[-LAST_EVENTS:]:
            about = f"{event.step}.{event.attempt} " if event.step else ""
            lines.append(f"  {event.seq} {event.kind} {about}{str(event.body)[:300]}")
        logs = {
            "runner": run.runner_log,
            "warm ladder": run.rollback / "warm.log",
            "sentinel": run.guard / "sentinel.log",
        }
        for name, path in logs.items():
            lines.append(f"{name}'s last lines:")
            lines += [f"  {line}" for line in read_last(path, LAST_LINES)]
        return "\n".join(lines)

    def until(self, condition: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
        """The first true value of a condition; the failure says where the run stood."""
        return until(condition, what, limit_s, self.where)

    def state(self, *wanted: str, limit_s: float = LIMIT_S) -> RunView:
        """Wait for a run state (or `paused:reason`)."""

        def found() -> RunView | None:
            view = self.view()
            names = {str(view.state), f"{view.state}:{view.reason}"}
            return view if names & set(wanted) else None

        return self.until(found, f"the run is {' or '.join(wanted)}", limit_s)

    def step(self, name: str, *states: str) -> None:
        self.until(lambda: self.states().get(name) in states, f"{name} is {' or '.join(states)}")

    def dead(self) -> None:
        """Wait until the run's runner is gone, and what closes its journal after a rollback."""
        gone = (runner_alive, closer_alive)
        self.until(lambda: not any(alive(self.run) for alive in gone), "the runner is gone")

    def interrupt(self) -> None:
        """Kill the runner, and wait until it is gone."""
        self.kill("runner")
        self.dead()

    def over(self) -> RunView:
        """Wait until the run is over, its report written and its runner gone."""
        view = self.state(*ENDS, limit_s=120.0)
        self.dead()
        return view

    def pids(self, kind: str) -> list[tuple[int, int]]:
        """Live processes of this kind in live.jsonl."""
        entries = [e for e in live.read(self.run.live) if e.kind == kind]
        return [(e.pid, e.start) for e in entries if process.alive(e.pid, e.start)]

    def kill(self, kind: str, number: int = signal.SIGKILL) -> None:
        """A signal to the newest live process of this kind."""
        process.send(*self.until(lambda: self.pids(kind), f"a {kind} lives")[-1], number)
