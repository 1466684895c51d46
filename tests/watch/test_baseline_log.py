"""The log of a baseline container, on a real engine."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.common.logs.tail import read_last
from console.frontends.tui.watch.baseline_container import BaselineLog
from console.recovery.rollback.sealed_plan import Baseline, EngineAddress, SealedPlan
from tests.testbed.engine import Engine
from tests.waiting import some, until
from tests.watch.conftest import gone


@pytest.fixture
def container(engine: Engine, busy_image: str) -> Iterator[str]:
    name = f"base-{uuid.uuid4().hex[:10]}"
    script = "echo life; n=0; while true; do n=$((n+1)); echo line $n; sleep 0.05; done"
    engine.run("run", "-d", "--init", "--name", name, busy_image, "sh", "-c", script)
    yield name
    engine.run("rm", "-f", name)


def plan_of(name: str, engine: Path) -> SealedPlan:
    base = Baseline("baseline", "container", "http://127.0.0.1:1", container_name=name)
    return SealedPlan("r", "", base, engine=EngineAddress("", f"unix://{engine}"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def away(tmp_path: Path) -> SealedPlan:
    return plan_of("base", tmp_path / "none.sock")


@pytest.fixture
def log(engine: Engine, container: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BaselineLog]:
    monkeypatch.setattr("console.frontends.tui.watch.baseline_container.AGAIN_S", 0.2)
    made = BaselineLog(plan_of(container, engine.socket))
    yield made
    made.close()


def words(log: BaselineLog) -> list[str]:
    return [line.split(" ", 1)[-1] for line in read_last(log.path, 10_000)]


@pytest.mark.engine
def test_it_is_followed_over_a_restart_and_goes_away(
    engine: Engine, container: str, log: BaselineLog
) -> None:
    assert not log.path.exists(), "nobody reads it yet"
    log.start()
    log.start()
    until(lambda: "line 5" in words(log))
    engine.run("stop", "-t", "0", container)
    until(lambda: any("does not run" in line for line in words(log)))
    engine.run("start", container)
    until(lambda: words(log).count("life") == 2)
    assert words(log).count("line 5") <= 2, "a line of each life, none twice"
    log.close()
    assert not log.path.exists()


def test_an_engine_that_is_away_is_said(away: SealedPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.frontends.tui.watch.baseline_container.AGAIN_S", 600.0)
    log = BaselineLog(away)
    log.start()
    until(lambda: read_last(log.path, 1))
    assert "container engine" in read_last(log.path, 1)[0]
    log.close()
    gone([some(log._thread)])  # it does not wait for the engine
    assert not log.path.exists()


def test_two_at_a_time_have_two_files(away: SealedPlan) -> None:
    old, new = BaselineLog(away), BaselineLog(away)
    try:
        assert old.path != new.path, "else a pane that shows one takes the other for the same"
        old.start()
        new.start()
        until(lambda: read_last(old.path, 1) and read_last(new.path, 1))
        old.close()
        assert new.path.exists()
    finally:
        old.close()
        new.close()


def test_what_killed_consoles_left_is_removed(away: SealedPlan) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    log = BaselineLog(away)
    log.path.parent.mkdir(parents=True)
    stays = [f"baseline-{os.getpid()}-0.log", "baseline-x.log", "other.log"]
    for name in (*stays, f"baseline-{gone.pid}.log", f"baseline-{gone.pid}-3.log"):
        (log.path.parent / name).write_text("x")
    log.start()
    until(lambda: read_last(log.path, 1))
    log.close()
    assert sorted(path.name for path in log.path.parent.iterdir()) == sorted(stays)
