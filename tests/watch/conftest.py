"""Worlds of real runs, stages of real ladders, and a runner's journal written by hand."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.common.paths import module_argv
from console.frontends.tui.watch.emergency import Emergency
from console.frontends.tui.watch.progress import RollbackProgress
from console.host import process
from console.journal.run_dir import RunDir, RunMeta, create
from console.journal.store import Journal
from console.recovery.rollback import live, records, standby
from console.recovery.rollback.records import Pointer
from console.runner.control import Control, Server
from tests.children import end, making
from tests.rollback.conftest import Stage, stage
from tests.runner.e2e.conftest import bare, models, world
from tests.runner.e2e.world import World
from tests.waiting import until
from tests.watch import guard_ring

__all__ = ["bare", "models", "stage", "world"]


def gone(threads: Iterable[threading.Thread]) -> None:
    """Wait until they have ended: what closes them waits a second or two, too little when busy."""
    until(lambda: not any(thread.is_alive() for thread in threads), "its threads end")


class Hand:
    """A run whose journal a test writes; its "runner" is this process, or a sleeper."""

    def __init__(self, name: str = "book", title: str = "The trial") -> None:
        meta = RunMeta("", f"/x/{name}.yaml", "/x", "", "/x/site.yaml", "/x", owner="me")
        self.run: RunDir = create(name, meta, "", "")
        self.journal = Journal(self.run.journal)
        self.watchers = Control()
        self.server: Server | None = None
        self.add(
            "run.created", run_id=self.run.id, title=title, playbook=name, owner="me",
            steps=[
                {"id": s, "title": s, "phase": "p", "kind": "run"} for s in ("one", "two", "three")
            ],
        )  # fmt: skip

    def add(self, event: str, step: str = "", attempt: int = 0, **data: Any) -> None:
        self.journal.append(time.time(), event, step, attempt, data)

    def state(self, state: str, reason: str = "", detail: str = "") -> None:
        self.add("run.state", state=state, reason=reason, detail=detail)

    def step(self, step: str, state: str) -> None:
        self.add("step.state", step, 1, state=state)

    def live(self, who: tuple[int, int] | None = None) -> Hand:
        self.runner(who)
        self.state("running")
        return self

    def runner(self, who: tuple[int, int] | None = None) -> None:
        """Record a runner, and point to this run as the user's live one."""
        pid, start = who or (os.getpid(), process.start_time(os.getpid()) or 0)
        live.append(self.run.live, live.Live("runner", "runner", pid, start))
        records.write(
            records.Pointer(
                self.run.id, str(self.run.path), "me", os.getuid(), pid, start,
                started_at=time.time(),
            )
        )  # fmt: skip

    def serve(self) -> Control:
        self.server = Server(self.run.socket, self.watchers)
        return self.watchers

    def close(self) -> None:
        self.journal.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers, state, configuration and working directory of this machine stay out of it."""
    own = tmp_path / "own"
    for part in ("host", "state", "config", "cwd"):
        (own / part).mkdir(parents=True)
    monkeypatch.chdir(own / "cwd")
    monkeypatch.setenv("OMNI_HOST_DIR", str(own / "host"))
    monkeypatch.setenv("XDG_STATE_HOME", str(own / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own / "config"))
    for name in ("OMNI_SITE", "SUDO_UID", "SUDO_USER", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm ladder that a busy machine keeps from its first word is none that is silent."""
    monkeypatch.setattr("console.frontends.tui.watch.emergency.STANDBY_WORD_S", 60.0)


@pytest.fixture
def hand() -> Iterator[Callable[..., Hand]]:
    with making(Hand, Hand.close) as make:
        yield make


@pytest.fixture
def begin() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    def go(*argv: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, **env}
        )

    with making(go, end) as make:
        yield make


@pytest.fixture
def start_standby(
    stage: Stage, begin: Callable[..., subprocess.Popen[bytes]]
) -> Callable[[], subprocess.Popen[bytes]]:
    """The warm ladder of the stage, a real process that waits."""

    def go() -> subprocess.Popen[bytes]:
        place = stage.plan.rollback_dir
        child = begin(
            *module_argv("console.recovery.rollback.standby"),
            str(place),
            OMNI_RUN=stage.plan.run_id,
        )
        until(lambda: standby.is_standing_by(place), "the warm ladder waits")
        return child

    return go


@pytest.fixture
def run() -> RunDir:
    """An empty run among this user's."""
    return guard_ring.run_of(paths.runs_dir() / "20261120-140312-book-1a2b")


@pytest.fixture
def inside(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """This process lives in the world's places, so that what is tested sees its runs."""
    for name, value in world.env.items():
        if name.startswith(("XDG_", "OMNI_")):
            monkeypatch.setenv(name, value)
    return world


# -- the emergency key ---------------------------------------------------------------------------

COMMAND = (*module_argv("console.cli"), "rollback")
Key = Callable[..., Emergency]
Child = subprocess.Popen[bytes]
Warm = Callable[[], Child]


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Key]:
    def close(one: Emergency) -> None:
        one.close()
        gone(one._threads)

    log = tmp_path / "logs" / "emergency.log"
    with making(lambda argv=COMMAND: Emergency(argv, log), close) as make:
        yield make


class Slow:
    """A candidate that does not stop before it is told to, so that a climb is met half way."""

    def __init__(self, stage: Stage) -> None:
        stage.seal(grace_s=120.0)
        self.told = stage.root / "told"
        body = f"trap '' TERM; echo up; while [ ! -e {self.told} ]; do sleep 0.02; done"
        self.candidate = stage.spawn(["sh", "-c", body])
        until(lambda: "up" in (stage.root / "log").read_text())
        stage.record("process", "candidate", self.candidate)

    def end(self) -> None:
        self.told.touch()


@pytest.fixture
def slow(stage: Stage) -> Slow:
    return Slow(stage)


def point(stage: Stage) -> None:
    """This user's pointer names the stage's run."""
    runner = stage.sleeper()
    stage.record("runner", "runner", runner)
    records.write(
        Pointer(stage.plan.run_id, stage.plan.run_dir, "me", os.getuid(), *runner, started_at=1.0)
    )


@pytest.fixture
def warmed(stage: Stage, start_standby: Warm) -> Child:
    """The warm ladder of the run that the user's pointer names."""
    child = start_standby()
    point(stage)
    return child


def ended(watch: RollbackProgress) -> RollbackProgress:
    until(lambda: watch.over, "the climb ends", 60.0)
    return watch


def serves(watch: RollbackProgress) -> RollbackProgress:
    """The climb has ended, and the baseline serves."""
    result = ended(watch).result
    assert result is not None, watch.trouble
    assert result.serving
    return watch
