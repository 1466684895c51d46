"""Waiting for readiness: scripted services under a fake clock, and a real server once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.common.errors import EngineTimeout, ServiceError
from console.host.children import Cancelled
from console.runtime.docker.container import ContainerDriver
from console.runtime.probe import Health
from console.runtime.spec import Handle, Mount, Status
from console.runtime.wait_ready import ReadyWait
from tests.clock import FakeClock
from tests.ports import free_port
from tests.services.containers import Place, busy, only_real, service, unique

ALIVE = Status(alive=True, detail="running")


class Scene:
    """A service that behaves as a script of (seconds, answer) says; the last one stays."""

    def __init__(self, *script: tuple[float, Any], **ready: Any) -> None:
        self.clock = FakeClock()
        self.begin = self.clock.monotonic()
        self.script = script
        self.spec = service("candidate", None, "http://127.0.0.1:9", **ready)
        self.said: list[str] = []
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

    def wait(self, last_lines: Callable[[int], list[str]] | None = None) -> float:
        lines = last_lines or (lambda count: ["line one", "bad \x1b[2Jline"])
        return ReadyWait(
            self.spec, status=self.status, last_lines=lines, clock=self.clock,
            cancelled=self.cancelled, progress=self.said.append, health=self.health,
        ).run()  # fmt: skip


def test_starting_loading_serving() -> None:
    scene = Scene((0, Health.REFUSED), (3, Health.LOADING), (40, Health.SERVING))
    assert 40 <= scene.wait() < 40.6
    assert len(scene.said) == 3
    assert "\x1b" not in "".join(scene.said)


def test_a_service_that_serves_at_once_is_not_kept_waiting() -> None:
    scene = Scene((0, Health.SERVING))
    assert scene.wait() == 0
    assert len(scene.probed) == 1


def test_stable_for_begins_anew_after_every_interruption() -> None:
    up, off, ill = Health.SERVING, Health.LOADING, Health.UNHEALTHY
    scene = Scene((0, up), (5, off), (6, up), (15, ill), (16, up), stable_for_s=10.0)
    assert 26 <= scene.wait() < 27.6


def test_the_end_of_the_service_is_said_with_its_last_lines() -> None:
    dead = Status(alive=False, exit_code=137, detail="exited with code 137 (SIGKILL)")
    scene = Scene((0, Health.LOADING), (4, dead))
    with pytest.raises(ServiceError, match="candidate") as caught:
        scene.wait()
    assert "exited with code 137 (SIGKILL)" in caught.value.detail
    assert caught.value.detail.endswith("line one\nbad line")
    assert scene.probed[-1] < 4


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


def test_time_is_up() -> None:
    scene = Scene((0, Health.UNHEALTHY), timeout_s=60.0)
    with pytest.raises(ServiceError, match=r"1 min 00 s") as caught:
        scene.wait()
    assert "line one" in caught.value.detail
    assert scene.clock.monotonic() - scene.begin == pytest.approx(60)


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


def real(driver: ContainerDriver, handle: Handle, say: Callable[[str], None]) -> float:
    return ReadyWait(
        driver.spec, status=lambda: driver.status(handle), clock=SystemClock(), progress=say,
        last_lines=lambda count: driver.last_lines(handle, count), cancelled=threading.Event(),
    ).run()  # fmt: skip


@only_real
def test_a_real_server_gets_ready(place: Place, tmp_path: Path) -> None:
    """It serves once it has been seen not to."""
    port, go = free_port(), tmp_path / "go"
    go.mkdir()
    wait = "until [ -e /go/on ]; do sleep 0.05; done"
    script = f"{wait}; mkdir /w; echo ok > /w/health; exec httpd -f -p 80 -h /w"
    mounts = (Mount(str(go), "/go"),)
    runs = busy(place.image, "sh", "-c", script, ports=((port, 80),), mounts=mounts)
    driver = place.driver(unique("web"), runs, f"http://127.0.0.1:{port}")
    handle = driver.start(place.launch)
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        (go / "on").touch()

    assert real(driver, handle, say) > 0
    assert said[-1] == "serving"
    assert len(said) >= 2


@only_real
def test_a_real_llama_server_without_its_model(place: Place, llama_image: str) -> None:
    port = free_port()
    argv = ("llama-server", "-m", "/none.gguf", "--host", "0.0.0.0", "--port", "8080")
    runs = busy(llama_image, *argv, ports=((port, 8080),))
    driver = place.driver(unique("llama"), runs, f"http://127.0.0.1:{port}")
    handle = driver.start(place.launch)
    with pytest.raises(ServiceError, match=driver.spec.name) as caught:
        real(driver, handle, lambda words: None)
    assert "/none.gguf" in caught.value.detail
    assert "exited with code 1" in caught.value.detail
