"""Total deadlines of calls and of the compose command, and the engine's absence in words."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from console.common.errors import EngineError, EngineTimeout
from console.host import process
from console.host.children import within
from console.runtime.docker import client as docker_client
from console.runtime.docker.client import connect, engine_socket
from console.runtime.docker.compose import compose
from console.runtime.docker.engine_state import silent
from tests.runtime.containers import fake_daemon
from tests.runtime.serving import in_child
from tests.waiting import until

Answer = Callable[[socket.socket, threading.Event], None]
CONNECT_S = 0.5
"""The deadline here, far less than what hangs or drips below would take."""


def test_a_call_gives_its_value_or_its_error() -> None:
    assert within(60, "adding", lambda: 1 + 1) == 2
    with pytest.raises(KeyError, match="nothing"):
        within(60, "looking", lambda: {}["nothing"])


def test_a_stuck_call_is_left_behind_and_blocks_no_other() -> None:
    release = threading.Event()
    try:
        for _ in range(40):  # more than any shared executor has threads
            with pytest.raises(EngineTimeout, match=r"0\.01 s"):
                within(0.01, "The engine", release.wait)
        assert within(60, "another call", lambda: "alive") == "alive"
    finally:
        release.set()


def hang(connection: socket.socket, over: threading.Event) -> None:
    over.wait(600)


def drip(connection: socket.socket, over: threading.Event) -> None:
    """A valid reply, so slow that a timeout between bytes never strikes."""
    connection.recv(65536)
    body = b'{"ApiVersion": "1.41"}' + b" " * 600
    for byte in HEAD % (b"200 OK", len(body)) + body:
        connection.sendall(bytes([byte]))
        if over.wait(0.1):
            return


def sends(data: bytes) -> Answer:
    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(data)

    return answer


HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ILL = b'{"message": "the engine is \\u001b[31mill"}'


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        (hang, EngineTimeout, "within"),
        (drip, EngineTimeout, "within"),
        (sends(b"\x1b]52;c;AAAA\x07 SSH-2.0-not-an-engine\r\n\r\n"), EngineError, "DOCKER_HOST"),
        (sends(HEAD % (b"200 OK", 5) + b"<h1>\x1b"), EngineError, "DOCKER_HOST"),
        (sends(HEAD % (b"200 OK", 2) + b"[]"), EngineError, "DOCKER_HOST"),
        (sends(HEAD % (b"500 Oh", len(ILL)) + ILL), EngineError, "ill"),
        (sends(b""), EngineError, "aborted"),
    ],
    ids=["hangs", "drips", "no HTTP", "no JSON", "wrong JSON", "broken", "closes"],
)
def test_an_engine_that_is_not_well_is_said_so_in_time(
    answer: Answer, kind: type[EngineError], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is EngineTimeout:
        monkeypatch.setattr(docker_client, "CONNECT_S", CONNECT_S)
    with fake_daemon(answer) as host, pytest.raises(kind) as caught:
        connect(host)
    assert type(caught.value) is kind
    text = "\n".join(caught.value.lines())
    assert word in text
    assert "\x1b" not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_socket_that_may_not_be_opened() -> None:
    """In a child that gives up root: permissions do not bind root."""

    def ask() -> object:
        os.setuid(65534)
        try:
            return connect(host).api.base_url
        except EngineError as error:
            return error.lines()

    with fake_daemon(hang) as host:
        path = Path(host.removeprefix("unix://"))
        path.parent.chmod(0o755)
        path.chmod(0)
        assert "usermod -aG docker" in str(in_child(ask))


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/docker.sock")
    assert engine_socket() == "/somewhere/docker.sock"
    assert engine_socket("unix:///given.sock") == "/given.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2375")
    with pytest.raises(EngineError, match="tcp://far:2375"):
        engine_socket()


def program(folder: Path, text: str) -> Callable[[float], str]:
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return lambda seconds: compose(
        [str(path)], "unix:///x", {"WORD": "v"}, "Reading", seconds, silent
    )


def test_a_command_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: groups.append(pid) or kill(pid, number))
    call = program(tmp_path, "sleep 600 & wait")
    with pytest.raises(EngineTimeout):
        call(0.5)
    monkeypatch.undo()
    until(lambda: not _alive(groups[0]))


def _alive(group: int) -> bool:
    return any(one.group == group and one.state not in "ZX" for one in process.all_stats())


def test_the_environment_is_allow_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    monkeypatch.setenv("DOCKER_CONFIG", "/kept")
    text = program(tmp_path, "env; head -c1; ps -o sid= -p $$ >/dev/null")(30)
    assert "canary" not in text
    assert "DOCKER_CONTEXT" not in text
    assert {"DOCKER_HOST=unix:///x", "DOCKER_CONFIG=/kept", "WORD=v"} <= set(text.split())
