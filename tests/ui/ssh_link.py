"""A slow line: a TCP proxy on loopback that delays every byte and lets few through a second."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue

CHUNK = 4096
AHEAD = 16
"""Chunks on the line; more, and the sender has to wait."""


class Link:
    """One line with two directions. `up` and `down` count bytes to and from the server."""

    def __init__(self, server_port: int, *, delay_s: float, bytes_s: float) -> None:
        self._server_port = server_port
        self._delay_s = delay_s
        self._bytes_s = bytes_s
        self.up = 0
        self.down = 0
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._spawn(self._accept)

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="link", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            self._one_way(client, server, "up")
            self._one_way(server, client, "down")

    def _one_way(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        line: Queue[tuple[float, bytes]] = Queue(AHEAD)
        self._spawn(self._take, source, line)
        self._spawn(self._give, sink, line, name)

    def _take(self, source: socket.socket, line: Queue[tuple[float, bytes]]) -> None:
        while True:
            try:
                data = source.recv(CHUNK)
            except OSError:
                data = b""
            due = time.monotonic() + self._delay_s
            while not self._over.is_set():
                try:
                    line.put((due, data), timeout=0.2)
                    break
                except Full:  # the sender has to wait, but not for a line that was cut
                    continue
            if not data or self._over.is_set():
                return

    def _give(self, sink: socket.socket, line: Queue[tuple[float, bytes]], name: str) -> None:
        free = 0.0
        while not self._over.is_set():
            try:
                due, data = line.get(timeout=0.2)
            except Empty:
                continue
            free = max(due, free) + len(data) / self._bytes_s
            self._over.wait(max(0.0, free - time.monotonic()))
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                return
            setattr(self, name, getattr(self, name) + len(data))

    def close(self) -> None:
        """Cut the line; returns when its threads have ended."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(30)
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self._threads)


@contextmanager
def slow_line(server_port: int, *, delay_s: float, bytes_s: float) -> Iterator[Link]:
    """A line to a server on loopback; `delay_s` each way, `bytes_s` in each direction."""
    made = Link(server_port, delay_s=delay_s, bytes_s=bytes_s)
    try:
        yield made
    finally:
        made.close()
