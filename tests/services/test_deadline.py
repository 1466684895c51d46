"""Total deadlines, and the engine's absence in words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from console.errors import EngineError, EngineTimeout
from console.services import docker_client
from console.services.deadline import within
from console.services.docker_client import NotFound, ask, connect, engine_socket, inspect
from tests.services.containers import fake_daemon
from tests.testbed.engine import Engine

CONNECT_S = 0.5
"""The deadline here, far less than what hangs or drips below would take."""


def test_a_call_that_returns_gives_its_value() -> None:
    assert within(60, "adding", lambda: 1 + 1) == 2


def test_an_error_of_the_call_arrives_whole() -> None:
    with pytest.raises(KeyError, match="nothing"):
        within(60, "looking", lambda: {}["nothing"])


def test_a_stuck_call_is_left_behind_and_blocks_no_other() -> None:
    release = threading.Event()
    try:
        stuck = 0
        for _ in range(40):  # more than any shared executor has threads
            with pytest.raises(EngineTimeout, match=r"0\.01 s"):
                within(0.01, "The engine", release.wait)
            stuck += 1
        assert stuck == 40
        assert within(60, "another call", lambda: "alive") == "alive"
    finally:
        release.set()


def hang(connection: socket.socket, over: threading.Event) -> None:
    over.wait(600)


def drip(connection: socket.socket, over: threading.Event) -> None:
    """A valid reply, so slow that a timeout between bytes never strikes."""
    connection.recv(65536)
    body = b'{"ApiVersion": "1.41"}' + b" " * 600
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for byte in head % len(body) + body:
        connection.sendall(bytes([byte]))
        if over.wait(0.1):
            return


def garbage(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"\x1b]52;c;AAAA\x07 SSH-2.0-not-an-engine\r\n\r\n")


def not_json(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<h1>\x1b")


def wrong_json(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")


def broken(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    body = b'{"message": "the engine is \\u001b[31mill"}'
    head = b"HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % len(body) + body)


def closed(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        (hang, EngineTimeout, "within"),
        (drip, EngineTimeout, "within"),
        (garbage, EngineError, "DOCKER_HOST"),
        (not_json, EngineError, "DOCKER_HOST"),
        (wrong_json, EngineError, "DOCKER_HOST"),
        (broken, EngineError, "ill"),
        (closed, EngineError, "aborted"),
    ],
)
def test_an_engine_that_is_not_well_is_said_so_in_time(
    answer: object, kind: type[EngineError], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is EngineTimeout:
        monkeypatch.setattr(docker_client, "CONNECT_S", CONNECT_S)
    with fake_daemon(answer) as host, pytest.raises(kind) as caught:  # type: ignore[arg-type]
        connect(host)
    assert type(caught.value) is kind
    text = "\n".join(caught.value.lines())
    assert word in text
    assert "\x1b" not in text


AS_NOBODY = """
import os, sys
import docker, docker.utils
from console.errors import EngineError
from console.services.docker_client import connect
os.setuid(65534)
try:
    connect("unix://" + sys.argv[1])
except EngineError as error:
    print("\\n".join(error.lines()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without permission")
def test_a_socket_that_may_not_be_opened() -> None:
    """In a child that gives up root: permissions do not bind root."""
    with fake_daemon(hang) as host:
        path = host.removeprefix("unix://")
        Path(path).parent.chmod(0o755)
        Path(path).chmod(0)
        argv = [sys.executable, "-c", AS_NOBODY, path]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert "usermod -aG docker" in said.stdout, said.stderr


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/docker.sock")
    assert engine_socket() == "/somewhere/docker.sock"
    assert engine_socket("unix:///given.sock") == "/given.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2375")
    with pytest.raises(EngineError, match="tcp://far:2375"):
        engine_socket()


@pytest.mark.engine
def test_a_real_engine_agrees_on_a_version(engine: Engine) -> None:
    client = connect(engine.host)
    assert float(client.api._version.split(".")[1]) >= 24
    assert inspect(client, "no-such-container") is None
    with pytest.raises(NotFound):
        ask("Starting it", lambda: client.api.start("no-such-container"))
