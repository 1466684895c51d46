"""A slow line: a TCP proxy on loopback that delays every byte and lets few through a second."""

from __future__ import annotations

import contextlib
import socket
import threading

MOST = 65536


class Link:
    """A line to a server on loopback: `delay_s` each way, `bytes_s` in each direction."""

    def __init__(self, server_port: int, *, delay_s: float, bytes_s: float) -> None:
        self._server_port = server_port
        self._delay_s = delay_s
        self._bytes_s = bytes_s
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
            for source, sink in ((client, server), (server, client)):
                self._spawn(self._carry, source, sink)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        """What has come while the line was taken goes on in one piece."""
        while not self._over.is_set():
            try:
                data = source.recv(MOST)
                self._over.wait(self._delay_s + len(data) / self._bytes_s)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                return

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
