"""`/metrics` on loopback, from the process of the watch: what `omni-console metrics` prints.

The text is made by a child, at most once an interval, so that journals, SQLite and NVML are never
loaded by the watch, however often it is scraped. A socket and thirty lines serve it: of a budget
of twenty megabytes http.server takes one, and prometheus-client seven with the TLS that it loads.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.paths import module_argv
from console.host import children
from console.watch.plan import usual_environment

CHILD_S = 20.0
REQUEST_S = 5.0
MIN_S = 10.0
MAX_REQUEST = 8192
"""Bytes of a request that are read."""
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Scrape:
    """Serves HOST:PORT; with "" nothing. One request at a time, in a thread."""

    def __init__(self, address: str, site: str, every_s: float, clock: Clock | None = None) -> None:
        self.address, self._site = address, site
        self._every, self._clock = max(MIN_S, every_s), clock or SystemClock()
        self._text, self._at = b"", float("-inf")
        self._door: socket.socket | None = None

    def start(self) -> None:
        """Raises ConsoleError if the address is not free."""
        if not self.address:
            return
        host, _, port = self.address.rpartition(":")
        try:
            family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            self._door = socket.create_server((host.strip("[]"), int(port)), family=family)
        except (OSError, ValueError) as error:
            raise ConsoleError(
                f"/metrics cannot be served at {self.address}", str(error),
                "another port in `watch: {metrics: …}` of the site file",
            ) from None  # fmt: skip
        threading.Thread(
            target=self._serve, args=(self._door,), name="metrics", daemon=True
        ).start()

    @property
    def port(self) -> int:
        """The port at which it answers; 0 for none."""
        return int(self._door.getsockname()[1]) if self._door is not None else 0

    def text(self) -> bytes:
        """The text, as old as one interval at most; empty if it cannot be made."""
        now = self._clock.monotonic()
        if now - self._at >= self._every:
            argv = [*module_argv("console.cli"), "metrics"]
            argv += ["--site", self._site] if self._site else []
            try:
                code, out, _ = children.run(argv, CHILD_S, env=usual_environment())
            except (OSError, subprocess.TimeoutExpired):
                code, out = 1, b""
            self._text, self._at = (out if code == 0 else b""), now
        return self._text

    def close(self) -> None:
        if self._door is not None:
            with contextlib.suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._door.close()

    def _serve(self, door: socket.socket) -> None:
        while True:
            try:
                peer, _ = door.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), peer:
                peer.sendall(self._reply(_request(peer)))

    def _reply(self, request: list[str]) -> bytes:
        status, body = "404 Not Found", b"only GET /metrics, and nothing else\n"
        if request[:1] == ["GET"] and request[1].partition("?")[0] == "/metrics":
            body = self.text()
            status = "200 OK" if body else "503 Service Unavailable"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT}\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _request(peer: socket.socket) -> list[str]:
    """Method, path and version, once the whole head is there; else nothing. Raises OSError."""
    data, until = b"", time.monotonic() + REQUEST_S
    while b"\r\n\r\n" not in data and len(data) < MAX_REQUEST:
        peer.settimeout(max(0.001, until - time.monotonic()))
        more = peer.recv(MAX_REQUEST)
        if not more:
            return []
        data += more
    words = data.partition(b"\r\n")[0].decode("ascii", "replace").split(" ")
    return words if len(words) == 3 else []
