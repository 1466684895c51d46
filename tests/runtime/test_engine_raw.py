"""The raw engine client against a daemon on a real socket that behaves as told."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import EngineError, EngineTimeout
from console.runtime.engine_api import (
    CONFIG_FILES,
    EngineRefused,
    NoSuchContainer,
    RawEngine,
    made_of_others,
    published_elsewhere,
    socket_path,
    unfit_as_baseline,
)
from tests.licences import CANDIDATE
from tests.runtime.serving import in_child, serving, unix_listener

Answer = Callable[[socket.socket, str], None]


@contextmanager
def daemon(path: Path, answer: Answer, call_s: float = 60.0) -> Iterator[RawEngine]:
    """A stand-in engine: `answer(sock, "GET /path")` for every request."""

    def one(peer: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += peer.recv(65536)
        answer(peer, data.split(b" HTTP/")[0].decode())

    with serving(unix_listener(str(path)), one):
        yield RawEngine(str(path), call_s)


def reply(status: int, value: object = None, extra: str = "") -> bytes:
    body = b"" if value is None else json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def says(data: bytes) -> Answer:
    return lambda peer, _: peer.sendall(data)


def silent(peer: socket.socket, _: str) -> None:
    """Hold the connection until the client gives up."""
    peer.recv(1)


FRAMES = b"".join(
    bytes([stream, 0, 0, 0]) + len(line).to_bytes(4, "big") + line
    for stream, line in ((1, b"one\n"), (2, b"\x1b[31mCUDA error\n"), (1, b"three\n"))
)
UNKNOWN = reply(404, {"message": "No such container: x"})


@pytest.mark.parametrize(
    ("data", "call", "value"),
    [
        (reply(200, "OK", "Api-Version: 1.52\r\n"), RawEngine.ping, "1.52"),
        (reply(204), lambda engine: engine.start("x"), True),
        (reply(304), lambda engine: engine.start("x"), False),
        (reply(204), lambda engine: engine.stop(CANDIDATE, "a" * 64, 1), True),
        (reply(304), lambda engine: engine.stop(CANDIDATE, "a" * 64, 1), False),
        (
            reply(409, {"message": "is not running"}),
            lambda engine: engine.kill(CANDIDATE, "a" * 64), False,
        ),
        (UNKNOWN, lambda engine: engine.image_exists("x"), False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(FRAMES), FRAMES),
         lambda engine: engine.last_lines("x", 2), ["CUDA error", "three"]),
    ],
)  # fmt: skip
def test_what_an_answer_means(
    tmp_path: Path, data: bytes, call: Callable[[RawEngine], object], value: object
) -> None:
    with daemon(tmp_path / "s", says(data)) as engine:
        assert call(engine) == value


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (UNKNOWN, NoSuchContainer, "No such container: x"),
        (reply(500, {"message": "\x1b[31mport is already allocated"}), EngineRefused,
         "HTTP 500: port is already allocated"),
        *((data, EngineError, "") for data in (
            b"nonsense\r\n\r\n", reply(200, [1]), reply(200, None), b"HTTP/1.1 200 OK\r\n")),
    ],
)  # fmt: skip
def test_refusals_and_garbage_are_errors(
    tmp_path: Path, data: bytes, kind: type[EngineError], words: str
) -> None:
    with daemon(tmp_path / "s", says(data)) as engine, pytest.raises(kind) as caught:
        engine.inspect("x")
    assert words in f"{caught.value}"
    assert "\x1b" not in f"{caught.value}"


def test_a_container_whose_network_is_gone_is_not_gone(tmp_path: Path) -> None:
    lost = reply(404, {"message": "network 3fa9 not found"})
    with daemon(tmp_path / "s", says(lost)) as engine, pytest.raises(EngineRefused) as caught:
        engine.start("x")
    assert caught.type is EngineRefused
    assert "network connect" in caught.value.detail


def test_list_filters_by_label(tmp_path: Path) -> None:
    asked: list[str] = []
    row = {"Id": "abc", "Names": ["/cand"], "State": "running", "Labels": {"omni.role": "oneoff"}}

    def answer(peer: socket.socket, request: str) -> None:
        asked.append(request)
        peer.sendall(reply(200, [row]))

    with daemon(tmp_path / "s", answer) as engine:
        (found,) = engine.list_containers({"omni.role": "oneoff", "omni.run": ""})
    assert (found.id, found.name, found.labels) == ("abc", "cand", {"omni.role": "oneoff"})
    assert "omni.role%3Doneoff" in asked[0]
    assert "all=0" in asked[0]


def test_hung_engine_ends_at_the_deadline(tmp_path: Path) -> None:
    late = pytest.raises(EngineTimeout, match=r"0\.50 s")
    with daemon(tmp_path / "s", silent, 0.5) as engine, late:
        engine.inspect("x")


def test_full_queue_of_a_stopped_engine_is_a_hang(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket(socket.AF_UNIX)
            filler.setblocking(False)
            fillers.append(filler)
            try:
                filler.connect(path)
            except BlockingIOError:
                break
        with pytest.raises(EngineTimeout):
            RawEngine(path, call_s=0.3).ping()
        for filler in fillers:
            filler.close()


def test_drip_cannot_outlast_the_deadline(tmp_path: Path) -> None:
    def drip(peer: socket.socket, _: str) -> None:
        for byte in reply(200, {"Id": "x" * 2000}):
            peer.sendall(bytes([byte]))
            time.sleep(0.05)

    with daemon(tmp_path / "s", drip, 0.5) as engine, pytest.raises(EngineTimeout):
        engine.inspect("x")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_no_permission(tmp_path: Path) -> None:
    """As another user: root may use any socket."""
    path = tmp_path / "s"

    def ask() -> object:
        os.setuid(65534)
        try:
            return RawEngine(str(path)).ping()
        except EngineError as error:
            return str(error.lines())

    with daemon(path, says(reply(200))):
        path.chmod(0o600)
        assert "docker group" in in_child(ask)


def test_socket_path_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/one.sock")
    assert socket_path() == "/run/one.sock"
    assert socket_path("unix:///run/two.sock") == "/run/two.sock"
    assert socket_path("/run/three.sock") == "/run/three.sock"
    monkeypatch.delenv("DOCKER_HOST")
    assert socket_path() == "/var/run/docker.sock"
    with pytest.raises(EngineError):
        socket_path("tcp://10.0.0.1:2375")


HERE = "http://127.0.0.1:8080"


CHOSEN, ALL, NOWHERE = "chose its port", "published at 0.0.0.0:9000", "published at no port"


@pytest.mark.parametrize(("asked", "now", "more", "url", "word"), [
    ("", "8080", {"AutoRemove": True}, HERE, "--rm"), ("", "8080", {}, HERE, CHOSEN),
    ("0", "8080", {}, HERE, CHOSEN), ("", "9000", {}, HERE, ALL), ("8080", "8080", {}, HERE, ""),
    ("8080", "8080", {}, "http://localhost:8080", ""), ("443", "443", {}, "https://localhost", ""),
    ("8080", "8080", {}, "http://127.0.1.1:8080", ""),
    ("8080", "8080", {}, "http://elsewhere.example:9000", ""),
    ("8080", None, {}, HERE, ""), ("8080", "", {}, HERE, NOWHERE),
    ("8080/udp", "8080/udp", {}, HERE, NOWHERE), ("9000", "9000", {}, HERE, ALL),
    ("127.0.0.1:8080", "127.0.0.1:8080", {}, "http://localhost:8080", ""),
    ("127.0.0.2:8080", "127.0.0.2:8080", {}, HERE, "published at 127.0.0.2:8080"),
    ("9000", None, {}, HERE, ALL), ("9000", None, {}, "http://127.0.1.1:8080", ALL),
    ("9000-9010", None, {}, HERE, ""), ("9000", None, {"NetworkMode": "host"}, HERE, ""),
])  # fmt: skip
def test_what_speaks_against_a_container_as_the_baseline(
    asked: str, now: str | None, more: dict[str, Any], url: str, word: str
) -> None:
    """`now` is None for one that is stopped, and empty for one that was taken off its network."""

    def ports(text: str) -> dict[str, Any]:
        door, _, protocol = text.partition("/")
        at, _, port = door.rpartition(":")
        return {f"80/{protocol or 'tcp'}": [{"HostIp": at, "HostPort": port}]}

    found = {
        "State": {"Running": now is not None},
        "HostConfig": {"PortBindings": ports(asked), **more},
        "NetworkSettings": {"Ports": ports(now) if now else {}},
    }
    why, hint = unfit_as_baseline(found, url)
    assert word in why if word else why == hint == ""


def test_a_container_that_is_restarting_has_no_ports_yet_and_is_not_published_elsewhere() -> None:
    found = {
        "State": {"Running": True, "Restarting": True, "Pid": 0},
        "HostConfig": {"PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]}},
        "NetworkSettings": {"Ports": {}},
    }
    assert published_elsewhere(found, HERE) == ""
    found["State"] = {"Running": True, "Restarting": False, "Pid": 7}
    assert published_elsewhere(found, HERE) == "no port"


def test_other_compose_files_that_made_a_container_are_named(tmp_path: Path) -> None:
    """The file that a site names alone makes another container than file and override did."""
    base, override = tmp_path / "compose.yaml", tmp_path / "compose.override.yaml"
    for file in (base, override):
        file.touch()
    labels = {CONFIG_FILES: f"{base},{override}"}
    assert made_of_others(labels, [base]) == str(override)
    assert made_of_others(labels, [base, override]) == ""
    assert made_of_others({CONFIG_FILES: str(base)}, [base]) == ""
    assert made_of_others({}, [base]) == ""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert made_of_others({CONFIG_FILES: str(link / "compose.yaml")}, [base]) == ""
    override.unlink()
    assert made_of_others(labels, [base]) == "", "the directory of that project is gone"
