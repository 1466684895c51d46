"""A run asks the warm ladder for its baseline, and does not wait for one that stands still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.host import process
from console.recovery.rollback import live, trigger
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.progress import Result, quiet_limit
from console.recovery.rollback.trigger import Lock
from console.runner import finish
from tests.clock import FakeClock
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import Bench
from tests.waiting import until


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

    def climb(self, *_: object, **__: object) -> Warm:
        """Stands where the run's own ladder does."""
        self.own.append(self.clock.time)
        return self

    def run(self) -> Result:
        return Result(serving=True)

    def asked(self) -> bytes:
        return os.read(self.fifo, 16)


@pytest.fixture
def warm(tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    bench = Bench(tmp_path, plan("{id: up, service: {start: cand}}"), monkeypatch)
    with subprocess.Popen(["sleep", "600"]) as child:
        made = Warm(bench, child)
        monkeypatch.setattr(finish, "Procedure", made.climb)
        assert made.is_rolling_back.taken()
        yield made
        made.is_rolling_back.close()
        child.kill()
    os.close(made.fifo)
    bench.close()


def test_a_ladder_that_goes_on_is_waited_for(warm: Warm) -> None:
    limit = int(quiet_limit(sealed.read(warm.context.run.sealed)))
    warm.clock.then = {
        1: lambda: warm.says("stop"),
        limit: lambda: warm.says("start"),
        2 * limit - 10: lambda: warm.says("done", serving=True, restore_s=9.0),
    }
    assert finish.bring_back(warm.context, "up", 1).restore_s == 9.0
    assert (warm.asked(), warm.own) == (trigger.ASKED, [])


def test_one_that_was_stopped_half_way_is_not(warm: Warm) -> None:
    warm.clock.then = {1: lambda: warm.says("stop"), 20: warm.stops}
    assert finish.bring_back(warm.context, "up", 1).serving
    assert warm.own == [21.0]


def test_one_that_is_through_without_its_last_line_is_not(warm: Warm) -> None:
    """A full disk took the line; its lock is free."""
    warm.clock.then = {1: lambda: warm.says("stop"), 20: warm.is_rolling_back.close}
    assert finish.bring_back(warm.context, "up", 1).serving
    assert warm.own == [pytest.approx(20 + trigger.ALIVE_S, abs=1.0)]


def test_one_that_says_nothing_any_more_is_given_up(warm: Warm) -> None:
    warm.clock.then = {1: lambda: warm.says("stop")}
    assert finish.bring_back(warm.context, "up", 1).serving
    limit = quiet_limit(sealed.read(warm.context.run.sealed))
    assert warm.own == [pytest.approx(limit, abs=5.0)]


def test_one_that_says_nothing_at_all_gets_two_seconds(warm: Warm) -> None:
    assert finish.bring_back(warm.context, "up", 1).serving
    assert warm.own == [finish.STANDBY_WORD_S]
