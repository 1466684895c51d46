"""The control socket: any path, any garbage, one answer each."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import ControlError, Exit
from console.journal.state import RunState
from console.runner import control as module
from console.runner.control import LIMIT, Control, Server, send, short_address


@pytest.fixture
def control() -> Control:
    control = Control()
    control.set(state=RunState.RUNNING, step="bench", attempt=1)
    return control


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
def server(path: Path, control: Control) -> Iterator[Server]:
    server = Server(path, control)
    yield server
    server.close()


def raw(path: Path, *parts: bytes) -> Any:
    """What a client that speaks no protocol is told; None when nothing comes back."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as peer:
        peer.settimeout(60)
        with short_address(path) as address:
            peer.connect(address)
        for part in parts:
            peer.sendall(part)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := peer.recv(65536):
            answer += chunk
    return json.loads(answer) if answer else None


@pytest.mark.parametrize(
    ("message", "there"),
    [({"verb": "status"}, False), ({"verb": "status", "attached": True}, True),
     ({"verb": "status", "attached": "yes"}, False), ({"verb": "pause"}, True)],
)  # fmt: skip
def test_who_sits_in_front_of_a_run_says_so(
    server: Server, path: Path, control: Control, message: dict[str, Any], there: bool
) -> None:
    send(path, message)
    assert control.is_attended(time.monotonic(), 3600.0) is there


def test_what_was_seen_and_who_asks_are_not_taken_from_the_arguments(
    server: Server, path: Path, control: Control
) -> None:
    seen: list[str] = []
    control.on_verb = lambda verb, step, attempt: seen.append(verb.who)
    control.set(state=RunState.WAITING_APPROVAL, evidence="e1")
    assert send(path, {"verb": "approve", "args": {"evidence": "e0"}})["ok"] is False
    answer = send(path, {"verb": "approve", "evidence": "e1", "who": "x", "args": {"who": "me"}})
    assert (answer["ok"], answer["error"], answer["step"]) == (True, "", "bench")
    assert seen == [pwd.getpwuid(os.getuid()).pw_name]


def test_somebody_else_is_refused(
    server: Server, path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_who", lambda peer: None)
    assert raw(path, b'{"verb": "pause"}\n') == {"ok": False, "error": "not permitted"}
    assert not control.pause_asked


GARBAGE = (
    b"", b"\n", b"not json\n", b"[1, 2]\n", b"null\n", b'"pause"\n', b"\xff\xfe\x00\n",
    b"[" * (LIMIT - 1), b"{" * 5000 + b"\n", b'{"a":' * 2000 + b"\n", b'{"verb": "pause"',
    b"x" * (LIMIT - 1), b"GET / HTTP/1.1\r\n\r\n", b"1" * 5000 + b"\n",
)  # fmt: skip


def test_garbage_is_answered_and_the_next_client_served(
    server: Server, path: Path, control: Control
) -> None:
    for garbage in GARBAGE:
        assert raw(path, garbage) == {"ok": False, "error": "not a message"}, garbage[:20]
        assert not control.pause_asked
        assert send(path, {"verb": "status"})["ok"] is True


def test_a_message_that_makes_no_sense_is_refused(
    server: Server, path: Path, control: Control
) -> None:
    messages: tuple[dict[str, Any], ...] = (
        {}, {"verb": None}, {"verb": ["pause"]}, {"verb": {"a": 1}}, {"verb": "\x1b[31m" * 99},
        {"verb": "explode"}, {"verb": "pause", "step": {"a": [1]}}, {"verb": "skip", "args": "x"},
        {"verb": "pause", "attempt": "1"}, {"verb": "approve", "args": None},
    )  # fmt: skip
    for message in messages:
        answer = send(path, message)
        assert (answer["ok"], bool(answer["error"])) == (False, True), message
        assert answer["error"].isprintable()
        assert not control.pause_asked


def test_a_client_that_leaves_at_once_costs_nothing(server: Server, path: Path) -> None:
    for _ in range(20):
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as peer:
            with short_address(path) as address:
                peer.connect(address)
            peer.sendall(b'{"verb": "status"}\n')
    assert send(path, {"verb": "status"})["ok"] is True


def test_a_moment_without_descriptors_or_threads_ends_no_control(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is in its accept already: the first client is taken, the next ones are not."""
    real, refused = server._socket, threading.Event()

    class Full:
        def accept(self) -> Any:
            monkeypatch.setattr(server, "_socket", real)
            refused.set()
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(server, "_socket", Full())
    assert send(path, {"verb": "status"})["ok"] is True
    assert send(path, {"verb": "status"})["ok"] is True
    assert refused.is_set()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert send(path, {"verb": "status"})["ok"] is True
    assert send(path, {"verb": "pause"})["ok"] is True


@pytest.mark.parametrize("kind", ["missing", "no directory", "file", "nobody listens"])
def test_no_runner_is_a_message_with_a_way_out(path: Path, kind: str) -> None:
    if kind == "no directory":
        path = path.parent / "gone" / "control.sock"
    if kind == "file":
        path.write_text("x")
    if kind == "nobody listens":
        dead = Server(path, Control())
        dead._socket.shutdown(socket.SHUT_RDWR)
        dead._socket.close()
    with pytest.raises(ControlError) as caught:
        send(path, {"verb": "status"})
    assert caught.value.exit_code is Exit.FAILED
    assert "omni-console rollback" in caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"garbage\n", b"[]\n"])
def test_an_answer_that_is_garbled(path: Path, answer: bytes) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        with short_address(path) as address:
            listener.bind(address)
        listener.listen(1)

        def serve() -> None:
            peer, _ = listener.accept()
            peer.recv(4096)
            peer.sendall(answer)
            peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ControlError, match="garbled"):
            send(path, {"verb": "status"})
        thread.join(60)


def test_a_refusal_comes_with_where_the_run_is(
    server: Server, path: Path, control: Control
) -> None:
    answer = send(path, {"verb": "pause", "step": "build"})
    assert (answer["ok"], answer["step"], control.pause_asked) == (False, "bench", False)
    assert raw(path, b'{"ver', b'b": "pa', b'use"}', b"\n")["ok"] is True, "in pieces"
    assert control.pause_asked


def test_a_stale_socket_is_replaced_whatever_the_length_of_its_path(
    tmp_path: Path, control: Control
) -> None:
    path = tmp_path.joinpath(*["d" * 50] * 8, "control.sock")
    path.parent.mkdir(parents=True)
    old = Server(path, Control())
    old._socket.close()
    assert path.exists()
    server = Server(path, control)
    mode = path.stat().st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    assert send(path, {"verb": "status"})["step"] == "bench"
    server.close()
    assert not path.exists()
