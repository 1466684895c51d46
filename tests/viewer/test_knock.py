"""Only a clear yes is a yes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from console.frontends.tui.watch.baseline import answers_200

Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that answers every connection with the same bytes, and keeps it open."""
    listeners: list[socket.socket] = []

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            held = []
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    for one in held:
                        one.close()
                    return
                held.append(peer)
                peer.recv(4096)
                peer.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_only_a_200_is_a_yes(serve: Serve) -> None:
    for answer in (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 \r\nX: y\r\n\r\n{}"):
        url = serve(answer)
        assert answers_200(url, "/health", 30.0)
        assert answers_200(f"{url}/v1", "health", 30.0)
    for answer in (
        b"", b"HTTP/1.1 503 Loading\r\n", b"HTTP/1.1 2000 x\r\n", b"garbage 200\r\n",
        b"HTTP/1.1 20", b"\xff" * 500, b"SSH-2.0-x\r\n",
    ):  # fmt: skip
        assert not answers_200(serve(answer), "/health", 0.1), answer


def test_what_cannot_be_asked() -> None:
    for url in (
        "https://127.0.0.1", "http://", "http://127.0.0.1:1", "nonsense", "http://[x", "",
    ):  # fmt: skip
        assert not answers_200(url, "/health", 0.2), url
