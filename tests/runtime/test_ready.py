"""Waiting for readiness: scripted services under a fake clock."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from console.common.errors import EngineTimeout, ServiceError
from console.common.progress import Figures
from console.host.children import Cancelled
from console.runtime.probe import Health
from console.runtime.spec import Status
from console.runtime.wait_ready import ReadyWait
from tests.clock import FakeClock
from tests.runtime.containers import service

ALIVE = Status(alive=True, detail="running")


class Scene:
    """A service that behaves as a script of (seconds, answer) says; the last one stays."""

    def __init__(self, *script: tuple[float, Any], **ready: Any) -> None:
        self.clock = FakeClock()
        self.begin = self.clock.monotonic()
        self.script = script
        self.spec = service("candidate", None, "http://127.0.0.1:9", **ready)
        self.said: list[str] = []
        self.far: list[Figures | None] = []
        self.probed: list[float] = []
        self.cancelled = threading.Event()

    def now(self) -> Any:
        at = self.clock.monotonic() - self.begin
        return [answer for since, answer in self.script if since <= at + 1e-9][-1]

    def health(self, url: str, path: str, timeout_s: float) -> tuple[Health, str]:
        assert 0 < timeout_s <= 5
        self.probed.append(self.clock.monotonic() - self.begin)
        answer = self.now()
        return answer if isinstance(answer, Health) else Health.REFUSED, "\x1b[31mdetail"

    def status(self) -> Status:
        answer = self.now()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Status) else ALIVE

    def hear(self, words: str, far: Figures | None) -> None:
        self.far.append(far)
        if self.said[-1:] != [words]:
            self.said.append(words)

    def wait(self, last_lines: Callable[[int], list[str]] | None = None) -> float:
        lines = last_lines or (lambda count: ["line one", "bad \x1b[2Jline"])
        return ReadyWait(
            self.spec, status=self.status, last_lines=lines, clock=self.clock,
            cancelled=self.cancelled, health=self.health,
            progress=self.hear,
            load_progress=lambda: Figures(self.clock.monotonic() - self.begin, 60.0, "%"),
        ).run()  # fmt: skip


def test_a_service_that_serves_at_once_is_not_kept_waiting() -> None:
    scene = Scene((0, Health.SERVING))
    assert scene.wait() == 0
    assert len(scene.probed) == 1


def test_stable_for_begins_anew_after_every_interruption() -> None:
    up, off, ill = Health.SERVING, Health.LOADING, Health.UNHEALTHY
    scene = Scene((0, up), (5, off), (6, up), (15, ill), (16, up), stable_for_s=10.0)
    assert 26 <= scene.wait() < 27.6


def test_how_far_a_load_is_and_then_how_long_it_served() -> None:
    scene = Scene((0, Health.LOADING), (30, Health.SERVING), stable_for_s=10.0)
    scene.wait()
    loading = [one.done for one in scene.far if one is not None and one.unit == "%"]
    steady = [one for one in scene.far if one is not None and one.unit == "s"]
    assert len(loading) + len(steady) == len(scene.far) == len(scene.probed), "at each look"
    assert loading == sorted(set(loading))
    assert steady[0] == (0, 10.0, "s")
    assert steady[-1].done >= 10 - 1e-9


def test_a_foreign_server_on_the_port_is_not_the_service() -> None:
    """The process dies of the port being taken, while whoever took it answers 200."""
    scene = Scene((0, Health.SERVING))
    answers = iter([ALIVE, Status(alive=False, exit_code=1, detail="exited with code 1")])
    scene.status = lambda: next(answers)  # type: ignore[method-assign]
    with pytest.raises(ServiceError):
        scene.wait()


def test_three_restarts_are_a_crash_loop_but_older_ones_do_not_count() -> None:
    scene = Scene(
        (0, Status(True, None, False, 7)),
        (2, Status(True, None, False, 9)),
        (8, Status(True, 1, False, 10, "restarting after exit code 1")),
    )
    with pytest.raises(ServiceError, match="candidate") as caught:
        scene.wait()
    assert "3 restarts; restarting after exit code 1" in caught.value.detail
    assert scene.probed[-1] < 8


def test_an_engine_that_does_not_answer_is_not_a_dead_service() -> None:
    silent = EngineTimeout("Looking did not answer within 10.0 s")
    scene = Scene((0, Health.LOADING), (5, silent), (9, Health.SERVING))
    assert 9 <= scene.wait() < 10
    assert any("10.0 s" in line for line in scene.said)


def test_cancelling() -> None:
    scene = Scene((0, Health.LOADING))
    scene.cancelled.set()
    with pytest.raises(Cancelled, match="candidate"):
        scene.wait()
    assert scene.probed == []
