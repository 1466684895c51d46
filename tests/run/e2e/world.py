"""One test's world: its own state, host directory, site and baseline around the real command."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.errors import ConsoleError
from console.journal.store import Reader
from console.rollback import live
from console.run.directory import RunDir
from console.run.liveness import runner_alive
from console.run.view import RunView, StepView, fold
from console.services import process
from console.services.base import ProcessSpec
from console.services.probe import ProbeError, complete, fetch
from console.site.load import load_site

COMMAND = str(Path(sys.executable).with_name("omni-console"))
LIMIT_S = 280.0
"""No command is waited for longer."""
PORTS = range(20_000, 32_768)
"""Below those that the kernel gives to connections: a server that is started anew finds its own."""
Json = dict[str, Any]
_given: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, and each one once."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def until(condition: Callable[[], Any], what: str = "", limit_s: float = 60.0) -> Any:
    """Poll a condition to its first true value; fail the test when it does not come true."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"did not come true: {what or condition}"
        time.sleep(0.01)
    return value


@dataclass(frozen=True)
class Outcome:
    """What one command did."""

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


@dataclass
class World:
    """Everything one test has; every process in it carries its XDG_STATE_HOME."""

    root: Path
    model: Path
    base_port: int = field(default_factory=free_port)
    cand_port: int = field(default_factory=free_port)
    env: dict[str, str] = field(default_factory=dict)
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for part in ("host", "state", "config", "cache"):
            (self.root / part).mkdir()
        own = {f"XDG_{part.upper()}_HOME": str(self.root / part) for part in ("config", "cache")}
        names = ("OMNI_", "PYTHONPATH", "SUDO_", "DOCKER_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        self.env = {
            **kept, **own, "XDG_STATE_HOME": str(self.root / "state"),
            "OMNI_HOST_DIR": str(self.root / "host"), "OMNI_SITE": str(self.site),
        }  # fmt: skip

    # -- places --------------------------------------------------------------------------------

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
        """Every run directory, newest first."""
        root = self.root / "state/omni-console/runs"
        return [RunDir(p) for p in sorted(root.glob("*"), reverse=True)]

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

    # -- services ------------------------------------------------------------------------------

    def engine(self, model: Path, port: int) -> list[str]:
        return [
            sys.executable, "-m", "console.demo.engine", "--model", str(model),
            "--port", str(port), "--cache-ram", "0",
        ]  # fmt: skip

    def bring_up(self) -> tuple[int, int]:
        """The baseline as an earlier day left it: running, with a record; (pid, start)."""
        site = load_site(self.site)
        spec = site.baseline_spec().runs
        assert isinstance(spec, ProcessSpec)
        path = [(k, v) for k, v in self.env.items() if k.startswith("XDG_")]
        started = process.spawn(
            spec, log=self.root / "baseline.log", cookie="earlier", extra_env=path
        )
        process.write_record(self.records, "baseline", spec, *started)
        until(self.serves, "the baseline serves")
        return started

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

    # -- commands ------------------------------------------------------------------------------

    def console(self, *args: str, **env: str) -> Outcome:
        """Run the command to its end, without a terminal."""
        done = subprocess.run(
            [COMMAND, *args], env={**self.env, **env}, cwd=self.root, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def go(self, book: Path, *args: str, **env: str) -> Outcome:
        """`run --json`, headless, to the end."""
        return self.console("run", str(book), "--json", *args, **env)

    def detach(self, book: Path, *args: str, **env: str) -> RunDir:
        """A detached run that has begun; it pauses where a headless one would end."""
        begun = self.console("run", str(book), "--json", "--detach", *args, **env)
        assert begun.code == 0, begun
        return RunDir(Path(begun.json["path"]))

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """The command in the background; ended with the test."""
        child = subprocess.Popen(
            [COMMAND, *args], env={**self.env, **env}, cwd=self.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def tell(self, verb: str, *args: str) -> Outcome:
        return self.console("tell", self.run.id, verb, *args)

    def show(self) -> Json:
        return self.console("show", self.run.id, "--json").json

    def status(self) -> Json:
        """What the runner's socket says; empty when nobody answers."""
        from console.errors import ControlError
        from console.run import control

        try:
            return control.send(self.run.socket, {"verb": "status"})
        except (ControlError, OSError):
            return {}

    # -- the run, read directly ----------------------------------------------------------------

    def view(self) -> RunView:
        reader = Reader(self.run.journal)
        try:
            return fold(reader.since(0))
        except ConsoleError:
            return RunView()
        finally:
            reader.close()

    def at(self, step: str) -> StepView:
        """One step as the journal has it now, once it has one."""
        found: StepView = until(lambda: self.view().step(step), f"the plan has {step}")
        return found

    def state(self, *wanted: str, limit_s: float = 60.0) -> RunView:
        """Wait for a run state (or `paused:reason`)."""

        def found() -> RunView | None:
            view = self.view()
            names = {str(view.state), f"{view.state}:{view.reason}"}
            return view if names & set(wanted) else None

        view: RunView = until(found, f"run is {' or '.join(wanted)}: {self.words}", limit_s)
        return view

    @property
    def words(self) -> str:
        view = self.view()
        return f"{view.state} {view.reason} {[(s.id, str(s.state), s.detail) for s in view.steps]}"

    def step(self, name: str, *states: str) -> RunView:
        """Wait for a step to be in one of these states."""

        def found() -> RunView | None:
            view = self.view()
            step = view.step(name)
            return view if step is not None and str(step.state) in states else None

        view: RunView = until(found, f"{name} is {' or '.join(states)}")
        return view

    def dead(self) -> None:
        """Wait until the run's runner is gone."""
        until(lambda: not runner_alive(self.run), "the runner is gone")

    def over(self) -> RunView:
        """Wait until the run is over, its report written and its runner gone."""
        ends = ("succeeded", "failed", "cancelled", "rolled_back", "rollback_failed")
        view = self.state(*ends, limit_s=120.0)
        self.dead()
        return view

    def pids(self, kind: str) -> list[tuple[int, int]]:
        """Live processes of this kind in live.jsonl."""
        entries = [e for e in live.read(self.run.live) if e.kind == kind]
        return [(e.pid, e.start) for e in entries if process.alive(e.pid, e.start)]

    def kill(self, kind: str, number: int = signal.SIGKILL) -> None:
        """A signal to the newest live process of this kind."""
        process.send(*until(lambda: self.pids(kind), f"a {kind} lives")[-1], number)

    # -- the end -------------------------------------------------------------------------------

    def mine(self) -> list[tuple[int, int]]:
        """Every process of this world, by its environment."""
        word = f"XDG_STATE_HOME={self.root / 'state'}".encode()
        found = []
        for stat in process.all_stats():
            with contextlib.suppress(OSError):
                if word in Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0"):
                    found.append((stat.pid, stat.start))
        return found

    def close(self) -> None:
        """End every process of this world, again and again until none is left."""
        deadline = time.monotonic() + 60
        while (left := self.mine()) and time.monotonic() < deadline:
            for pid, start in left:
                with contextlib.suppress(OSError):
                    process.send(pid, start, signal.SIGKILL)
            for child in self.children:
                child.poll()
            time.sleep(0.01)
        for child in self.children:
            child.wait(timeout=60)
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        for run in self.runs:  # a sentinel that was killed with its runner left its recorder
            for ring in Path("/dev/shm").glob(f"omni-console.*.{run.id}.ring"):
                ring.unlink()
        assert not left, f"processes outlived the test: {left}"
