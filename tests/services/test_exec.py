"""Commands in real containers: output whole, exit codes, stopped when time is up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from console.errors import EngineError, ServiceError
from console.services import exec as exec_module
from console.services.base import COOKIE, ROLE_LABEL, RUN_LABEL, Mount
from console.services.container import labels_of, unix_host
from console.services.deadline import Cancelled
from console.services.docker_client import connect, inspect
from console.services.exec import _Command, run_in, run_oneoff
from tests.services.containers import (
    FOREVER,
    Line,
    Recorder,
    also_real,
    busy,
    fake_daemon,
    only_real,
    unique,
)
from tests.waiting import until


@pytest.fixture
def container(client: docker.DockerClient, image: str, mine: dict[str, str]) -> str:
    made = client.api.create_container(image, list(FOREVER), labels=mine)
    client.api.start(made["Id"])
    return str(made["Id"])


@pytest.fixture
def never() -> threading.Event:
    return threading.Event()


def run(
    client: docker.DockerClient, container: str, *argv: str, seconds: float = 120, **more: Any
) -> tuple[int, bytes]:
    out: list[bytes] = []
    event = more.pop("cancelled", None) or threading.Event()
    code = run_in(
        client, container, argv, timeout_s=seconds, cancelled=event, sink=out.append, **more
    )
    return code, b"".join(out)


def processes(client: docker.DockerClient, container: str) -> str:
    return str(client.api.top(container))


@also_real
def test_output_and_exit_code(client: docker.DockerClient, container: str) -> None:
    script = 'echo "$WORD" in $(pwd); echo trouble >&2; exit 7'
    code, out = run(client, container, "sh", "-c", script, env={"WORD": "a b"}, workdir="/tmp")
    assert code == 7
    assert sorted(out.splitlines()) == [b"a b in /tmp", b"trouble"]


def test_what_is_written_at_once_is_not_lost(client: docker.DockerClient, container: str) -> None:
    """The library's own way loses about one in four of these."""
    for _ in range(20):
        assert run(client, container, "echo", "hello") == (0, b"hello\n")


def test_a_lot_of_output_comes_whole(client: docker.DockerClient, container: str) -> None:
    code, out = run(client, container, "sh", "-c", "head -c 20000000 /dev/zero")
    assert (code, len(out)) == (0, 20_000_000)


def test_argv_is_not_a_shell_line(client: docker.DockerClient, container: str) -> None:
    assert run(client, container, "echo", "$(id); a  b") == (0, b"$(id); a  b\n")


def test_a_missing_program_is_not_success(client: docker.DockerClient, container: str) -> None:
    code, out = run(client, container, "no-such-program")
    assert code in (126, 127)
    assert b"no-such-program" in out


def test_a_container_that_is_gone(client: docker.DockerClient) -> None:
    with pytest.raises(EngineError, match="no-such-container"):
        run(client, "no-such-container", "true")


STUBBORN = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 86399; done")


def test_time_is_up(
    client: docker.DockerClient, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is up as soon as the command has said something: the clock is put forward then."""
    out: list[bytes] = []

    def now() -> float:
        return time.monotonic() + (600.0 if out else 0.0)

    monkeypatch.setattr(exec_module, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    # the first signal is ignored, and the second one may take its time
    limits, gone = iter((0.2, 60.0)), _Command._gone_within
    monkeypatch.setattr(_Command, "_gone_within", lambda one, _: gone(one, next(limits)))
    with pytest.raises(ServiceError, match=r"10 min 00 s"):
        run_in(
            client, container, STUBBORN, timeout_s=600, cancelled=threading.Event(), sink=out.append
        )
    assert b"".join(out) == b"up\n"
    until(lambda: "86399" not in processes(client, container), "its command has ended")


def test_cancelling_stops_it(client: docker.DockerClient, container: str) -> None:
    event = threading.Event()
    with pytest.raises(Cancelled):
        run_in(
            client,
            container,
            ("sh", "-c", "echo up; sleep 86399"),
            timeout_s=600,
            cancelled=event,
            sink=lambda _: event.set(),
        )
    until(lambda: "86399" not in processes(client, container), "its command has ended")


@pytest.mark.parametrize("client", ["made"], indirect=True)
def test_who_may_not_signal_it_kills_it_from_inside(
    client: docker.DockerClient, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, *_: object) -> None:
        raise PermissionError(pid)

    monkeypatch.setattr(exec_module, "_signal_tree", refuse)
    event = threading.Event()
    with pytest.raises(Cancelled):
        run_in(
            client, container, STUBBORN, timeout_s=600, cancelled=event,
            sink=lambda _: event.set(),
        )  # fmt: skip
    until(lambda: "86399" not in processes(client, container), "its command has ended")


AS_NOBODY = """
import os, sys, threading
import docker, docker.utils, psutil
from console.errors import ConsoleError
from console.services.docker_client import connect
from console.services.exec import run_in
client = connect(sys.argv[1])
os.setuid(65534)
try:
    never = threading.Event()
    run_in(client, sys.argv[2], sys.argv[3:], timeout_s=0.5, cancelled=never, sink=print)
except ConsoleError as error:
    print(*error.lines(), sep="|")
"""


@only_real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without permission")
def test_without_permission_to_signal_it_is_killed_from_inside(
    client: docker.DockerClient, container: str
) -> None:
    """A user who may use the engine, but not signal what it runs."""
    line = Line(unix_host(client).removeprefix("unix://"))
    with fake_daemon(line.answer) as host:
        path = Path(host.removeprefix("unix://"))
        path.parent.chmod(0o755)
        path.chmod(0o666)
        argv = [sys.executable, "-c", AS_NOBODY, host, container, *STUBBORN]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert "it was stopped" in said.stdout, said
    until(lambda: "trap" not in processes(client, container).replace(str(FOREVER[2]), ""))


def test_a_lost_engine_is_not_an_exit_code(
    client: docker.DockerClient, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_module, "END_S", 0.2)
    line = Line(unix_host(client).removeprefix("unix://"))
    with fake_daemon(line.answer) as host:
        through = connect(host)

        def sink(data: bytes) -> None:
            line.cut()
            line.up.set()

        with pytest.raises(EngineError, match="echo up"):
            run_in(
                through,
                container,
                ("sh", "-c", "echo up; sleep 600"),
                timeout_s=600,
                cancelled=threading.Event(),
                sink=sink,
            )
        through.close()


def test_a_container_that_dies_meanwhile(client: docker.DockerClient, container: str) -> None:
    def sink(data: bytes) -> None:
        client.api.kill(container)

    argv, never = ("sh", "-c", "echo up; sleep 600"), threading.Event()
    code = run_in(client, container, argv, timeout_s=600, cancelled=never, sink=sink)
    assert code == 137


@pytest.fixture
def oneoff(
    client: docker.DockerClient, image: str, mine: dict[str, str], tmp_path: Path
) -> Iterator[Any]:
    recorder = Recorder(tmp_path)

    def call(*argv: str, seconds: float = 120, **more: Any) -> tuple[int, bytes]:
        out: list[bytes] = []
        spec = busy(image, *argv, **more.pop("spec", {}))
        keywords = {"cancelled": threading.Event(), "sink": out.append, **more}
        code = run_oneoff(
            client,
            spec,
            service=unique("bench"),
            launch=recorder.launch,
            timeout_s=seconds,
            labels=mine,
            grace_s=1,
            **keywords,
        )
        return code, b"".join(out)

    call.recorder = recorder  # type: ignore[attr-defined]
    return call


def test_a_oneoff_has_labels_limits_and_no_port(
    client: docker.DockerClient, oneoff: Any, tmp_path: Path
) -> None:
    spec = {
        "mounts": (Mount(str(tmp_path), "/data"),),
        "ports": ((8080, 80),),
        "memory_bytes": 32 * 1024 * 1024,
    }
    script = "echo content; echo $OMNI_RUN; exit 4"
    code, out = oneoff("sh", "-c", script, spec=spec)
    assert code == 4
    assert {b"content", b"run-1"} <= set(out.splitlines())
    (handle,) = oneoff.recorder.handles
    assert handle.kind == "oneoff"
    found = inspect(client, handle.container)
    assert found is not None
    assert labels_of(found)[ROLE_LABEL] == "oneoff"
    assert labels_of(found)[RUN_LABEL] == "run-1"
    assert f"{COOKIE}=run-1" in found["Config"]["Env"]
    assert found["HostConfig"]["Memory"] == found["HostConfig"]["MemorySwap"] == 32 * 1024 * 1024
    assert not found["HostConfig"]["PortBindings"]
    assert [mount["ReadOnly"] for mount in found["HostConfig"]["Mounts"]] == [True]


def test_a_oneoff_streams_while_it_runs(client: docker.DockerClient, oneoff: Any) -> None:
    event, seen = threading.Event(), list[bytes]()

    def sink(data: bytes) -> None:
        seen.append(data)
        event.set()

    with pytest.raises(Cancelled):
        oneoff("sh", "-c", "echo first; sleep 600", cancelled=event, sink=sink)
    assert seen == [b"first\n"]
    (handle,) = oneoff.recorder.handles
    found = inspect(client, handle.container)
    assert found is not None
    assert found["State"]["Status"] == "exited"


def test_a_oneoff_that_takes_too_long(client: docker.DockerClient, oneoff: Any) -> None:
    with pytest.raises(ServiceError) as caught:
        oneoff(*FOREVER, seconds=0.5)
    (handle,) = oneoff.recorder.handles
    assert caught.value.hint == f"docker logs {handle.name}"
    found = inspect(client, handle.container)
    assert found is not None
    assert not found["State"]["Running"]


@only_real
def test_a_oneoff_killed_for_memory_is_said(oneoff: Any) -> None:
    said: list[str] = []
    spec = {"memory_bytes": 16 * 1024 * 1024}
    script = "x=0123456789abcdef; while :; do x=$x$x; done"
    code, _ = oneoff("sh", "-c", script, spec=spec, say=said.append)
    assert code != 0
    assert any("out of memory" in line for line in said)


def test_many_lines_of_a_oneoff_come_in_order(oneoff: Any) -> None:
    code, out = oneoff("sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done")
    assert code == 0
    assert out.split() == [str(number).encode() for number in range(2000)]
