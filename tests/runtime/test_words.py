"""What the services say: of ends, refusals, engines that are not well, and the way to be ready."""

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.common.errors import ConsoleError, EngineTimeout
from console.host import process
from console.host.process import ProcessSpec, Stat
from console.runtime.answers.completion import complete
from console.runtime.docker import engine_state
from console.runtime.docker import exec as exec_module
from console.runtime.docker.client import connect, translate
from console.runtime.docker.compose import compose, up_argv
from console.runtime.docker.container import ContainerDriver
from console.runtime.docker.engine_state import move_aside, silent, status_of
from console.runtime.docker.exec import run_in, run_oneoff
from console.runtime.engine_api import RawEngine
from console.runtime.probe import Health, health
from console.runtime.spec import (
    ComposeSpec,
    ContainerSpec,
    ExistingContainer,
    Mount,
    Status,
    containment,
    memory_words,
)
from tests.runtime.containers import FOREVER, Recorder, busy, service
from tests.runtime.made_engine import IMAGE, MadeEngine
from tests.runtime.test_probe import LOADING, answer, raw_server, reply, says
from tests.runtime.test_ready import Scene

GIB = 1 << 30
Said = Callable[[Callable[[], object]], str]


@pytest.fixture
def said(tmp_path: Path) -> Said:
    """An error's lines without what differs from machine to machine."""

    def of(call: Callable[[], object]) -> str:
        try:
            value = call()
        except ConsoleError as error:
            text = f"{type(error).__name__}: " + " | ".join(error.lines())
        else:
            text = str(value)
        text = text.replace(str(tmp_path), "…")
        text = re.sub(r"/tmp/omni-made-\w+", "…", text)
        text = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)
        return re.sub(r"\b[0-9a-f]{12,64}\b|(?<=\.)[0-9a-f]{6}(?=-)", "ID", text)

    return of


def test_states(snapshot: SnapshotAssertion) -> None:
    ended = {"Status": "exited", "ExitCode": 137}
    states: list[dict[str, Any]] = [
        {"Status": "created", "Error": "no \x1b[2Jdevice"}, {"Status": "created"},
        {"Status": "exited", "ExitCode": 0}, {"Status": "exited", "ExitCode": 139}, ended,
        {"Status": "exited", "ExitCode": 143}, {"Status": "exited", "ExitCode": 3, "Error": "x"},
        {**ended, "OOMKilled": True}, {"Running": True}, {"Running": True, "Paused": True},
        {"Running": True, "Restarting": True, "ExitCode": 9}, {},
    ]  # fmt: skip
    found = [status_of({"State": state, "RestartCount": 2}) for state in states]
    limited = {"State": {**ended, "OOMKilled": True}, "HostConfig": {"Memory": 16 << 20}}
    assert [str(one) for one in [*found, status_of(limited)]] == snapshot


def refusal(status: int, words: str) -> Exception:
    made = type("APIError", (Exception,), {})()
    made.response, made.explanation = SimpleNamespace(status_code=status), words
    return made


def test_errors_of_the_engine(snapshot: SnapshotAssertion) -> None:
    lost = type("ConnectionError", (Exception,), {})
    errors = [
        refusal(404, "No such container: x"), refusal(409, "the name is already in use"),
        refusal(409, "it is not running"), refusal(500, "port is already allocated"),
        refusal(500, "could not select device driver"), refusal(500, "no space left on device"),
        refusal(500, "listen: address already in use"), refusal(500, "\x1b[31mill\n\nand more"),
        lost("Connection aborted"), lost("BadStatusLine('SSH-2.0')"), lost("Permission denied"),
        ValueError("Expecting value"), KeyError(),
    ]  # fmt: skip
    found = [translate(one, "Stopping x") for one in errors]
    assert [f"{type(one).__name__}: " + " | ".join(one.lines()) for one in found] == snapshot


def test_containers_that_are_refused(
    made: MadeEngine, said: Said, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    client, launch, told = connect(made.host), Recorder(tmp_path).launch, list[str]()

    def start(runs: Any, name: str = "cand") -> Callable[[], object]:
        driver = ContainerDriver(service(name, runs), client, say=told.append)
        return lambda: driver.start(launch).kind

    def mounted(source: str) -> Callable[[], object]:
        return start(busy(IMAGE, mounts=(Mount(source, "/data"),)))

    made.make("theirs", ["true"])
    found = {
        "no image": said(start(busy("registry.invalid/none:1"))),
        "nothing to mount": said(mounted(f"{tmp_path}/missing")),
        "not an absolute path": said(mounted("relative")),
        "the engine itself": said(mounted(str(Path(made.path).parent))),
        "a name of somebody else's": said(start(busy(IMAGE, name="theirs"))),
        "none of that name": said(start(ExistingContainer("nobody"))),
        "no container": said(lambda: ContainerDriver(service("x", object()), client).find()),
        "no GPUs": said(start(busy(IMAGE, gpus=("all",)), "gpus")),
        "the first": said(start(busy(IMAGE, pids=10, ports=((8099, 80),)))),
        "it still runs": said(start(busy(IMAGE, pids=11))),
        "under another name": said(start(busy(IMAGE, pids=11, name="other"))),
        "a port that is taken": said(start(busy(IMAGE, ports=((8099, 80),)), "second")),
    }
    one = made.find("omni-cand")
    made.route("POST", "/containers/omni-cand/stop", {"t": "0"}, None)
    said(start(busy(IMAGE, pids=10, ports=((8099, 80),))))
    made.route("POST", "/containers/omni-cand/stop", {"t": "0"}, None)
    move_aside(client, "omni-cand", one.id, told.append)
    found["told"] = said(lambda: " | ".join(told))
    client.close()
    assert found == snapshot


def test_commands_that_do_not_end_well(
    made: MadeEngine, said: Said, tmp_path: Path, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(exec_module, "END_S", 0.1)
    client, never, over = connect(made.host), threading.Event(), threading.Event()
    over.set()
    box = made.make("box", list(FOREVER))
    made.route("POST", "/containers/box/start", {}, None)

    def run(*argv: str, where: str = box, **more: Any) -> Callable[[], object]:
        options = {"timeout_s": 60.0, "cancelled": never, "sink": lambda _: None, **more}
        return lambda: run_in(client, where, argv, **options)

    def alone(**more: Any) -> Callable[[], object]:
        options = {"timeout_s": 0.0, "cancelled": never, "sink": lambda _: None, "grace_s": 0}
        launch = Recorder(tmp_path).launch
        spec = busy(IMAGE, *FOREVER, name="once")
        return lambda: run_oneoff(
            client, spec, service="once", launch=launch, **{**options, **more}
        )

    found = {
        "no container": said(run("true", where="nobody")),
        # of another machine, as far as anybody can see: nothing here may be signalled
        "it cannot be stopped": re.sub(
            r"(process|-9) \d+", r"\1 N", said(run("sleep", "600", timeout_s=0.0))
        ),
        "it runs alone for too long": said(alone()),
        "a name twice": said(alone()),
    }
    client.close()
    assert found == snapshot


def test_engines_that_are_not_there(
    said: Said, tmp_path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    found = [
        said(lambda: connect(f"unix://{tmp_path}/none")),
        said(lambda: connect(f"unix://{dead}")),
        said(RawEngine(str(tmp_path / "none")).ping),
        said(RawEngine(str(dead)).ping),
    ]
    monkeypatch.setenv("PATH", str(tmp_path))
    found += [said(lambda: compose(["docker", "compose"], "unix:///x", {}, "Reading", 5, silent))]
    path = tmp_path / "docker"
    for text in ("docker: 'compose' is not a docker command.", "", "first\n\x1b[31mthe cause"):
        path.write_text(f'#!/bin/sh\nprintf "{text}" >&2; exit 14\n')
        path.chmod(0o755)
        found.append(said(lambda: compose([str(path)], "unix:///x", {}, "Reading", 60, silent)))
    assert found == snapshot


def test_who_outlives_a_kill(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    found = []
    for state in ("D", "S", ""):
        seen = Stat(77, state, 1, 77, 77, 1) if state else None
        monkeypatch.setattr(engine_state.process, "stat", lambda pid, seen=seen: seen)
        found.append(" | ".join(engine_state._stuck("omni-cand", 77).lines()))
    assert found == snapshot


def test_what_the_kernel_stops(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("console.runtime.spec.total_memory", lambda: 24 * GIB)
    specs = (
        ContainerSpec("i", memory_bytes=2 * GIB, pids=99), ComposeSpec((Path("c.yaml"),), "s"),
        ComposeSpec((Path("c.yaml"),), "s", memory_bytes=GIB), ProcessSpec(("x",)),
        ExistingContainer("x"),
    )  # fmt: skip
    found = [containment(service("a", one)) for one in specs]
    assert [*found, memory_words(None), memory_words(GIB)] == snapshot


def test_processes_that_do_not_start(
    said: Said, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    specs = (
        ProcessSpec(("no-such-program-here",)), ProcessSpec(("/etc/passwd",)), ProcessSpec(()),
        ProcessSpec(("true",), cwd="/nowhere"), ProcessSpec(("true", "a\0b")),
    )  # fmt: skip
    logs = [tmp_path / "log"] * len(specs) + [tmp_path / "no" / "log"]
    found = [
        said(lambda spec=spec, log=log: process.spawn(spec, log=log, cookie="words"))
        for spec, log in zip([*specs, ProcessSpec(("true",))], logs, strict=True)
    ]
    assert found == snapshot


def test_a_service_on_its_way(said: Said, snapshot: SnapshotAssertion) -> None:
    silence = EngineTimeout("Looking did not answer within 10.0 s")
    dead = Status(alive=False, exit_code=137, detail="exited with code 137 (SIGKILL)")
    again = Status(True, 1, False, 3, "restarting after exit code 1")
    scenes = {
        "ready": Scene((0, Health.REFUSED), (3, Health.LOADING), (39, silence),
                       (40, Health.SERVING)),
        "steady": Scene((0, Health.SERVING), (5, Health.UNHEALTHY), (6, Health.SERVING),
                        stable_for_s=10.0),
        "ended": Scene((0, Health.LOADING), (4, dead)),
        "restarts": Scene((0, Status(True, None, False, 0)), (8, again)),
        "too long": Scene((0, Health.UNHEALTHY), timeout_s=60.0),
    }  # fmt: skip
    found = {
        name: [said(lambda one=one: f"{one.wait():.1f} s"), *one.said]
        for name, one in scenes.items()
    }

    def broken(count: int) -> list[str]:
        raise silence

    found["no log"] = [said(lambda: Scene((0, dead)).wait(broken))]
    assert found == snapshot


def test_answers_of_a_server(said: Said, snapshot: SnapshotAssertion) -> None:
    found = []
    for data in (
        reply("200 OK", b'{"status":"ok"}'), reply("503 Service Unavailable", LOADING),
        reply("503 Service Unavailable"), reply("500 Oops", b"\x1b[2Jbroken"),
        reply("404 Not Found"), b"nonsense\r\n\r\n",
    ):  # fmt: skip
        with raw_server(says(data)) as url:
            found.append(said(lambda url=url: " ".join(health(url))))
    for data in (
        answer(usage={"completion_tokens": 0}), answer(), reply("200 OK", b"{}"),
        answer(usage={"completion_tokens": "many"}), reply("200 OK", b"[" * 100_000),
        reply("500 Oops", b'{"error":{"message":"CUDA error"}}'),
        answer(usage={"completion_tokens": 1}),
    ):  # fmt: skip
        with raw_server(says(data)) as url:
            got = complete(url)
            found.append(f"{got.ok} {got.tokens} {re.sub(' in .*', '', got.detail)}"[:60])
    assert found == snapshot


def test_the_one_form_of_up(snapshot: SnapshotAssertion) -> None:
    argv = up_argv((Path("/a.yaml"), Path("/o.json")), "web", "p", ("lab",))
    assert [" ".join(argv), " ".join(up_argv((), "web", "", ()))] == snapshot
