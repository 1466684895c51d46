"""A web server on 127.0.0.1 that gives files in ranges, or misbehaves as it is told."""

from __future__ import annotations

import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer

from tests.runtime.serving import Quiet, at_work

BLOCK = 16 * 1024
Pace = Callable[[int], None]
"""Called with the bytes of each block before it goes out; with 0 where a client waits for one
journey there and back: when it has connected, and when it has asked."""


@dataclass(frozen=True)
class Request:
    """What came in; `range` is None without a usable Range header."""

    path: str
    range: tuple[int, int] | None
    headers: dict[str, str]


class Exchange(Quiet):
    """One connection; what is answered is the server's `answer`."""

    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.pace(0)

    def do_GET(self) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        asked = (int(match[1]), int(match[2])) if match else None
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.request_seen = Request(self.path, asked, headers)
        self.server.requests.append(self.request_seen)
        self.server.pace(0)
        self.server.answer(self)

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer; `Content_Range="…"` sets a header, None as Content_Length none."""
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("Content_Length", str(len(body))))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.put(body)

    def put(self, body: bytes) -> None:
        """Bytes of a body, counted."""
        for at in range(0, len(body), BLOCK):
            block = body[at : at + BLOCK]
            self.server.pace(len(block))
            self.wfile.write(block)
            self.server.body_bytes += len(block)

    def part(self, data: bytes, **headers: str) -> None:
        """The range that was asked for, as it should be."""
        if self.request_seen.range is None:
            self.send(200, data, **headers)
            return
        first, last = self.request_seen.range
        if first >= len(data):
            self.send(416, Content_Range=f"bytes */{len(data)}")
            return
        body = data[first : last + 1]
        said = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
        self.send(206, body, **({"Content_Range": said} | headers))

    def redirect(self, where: str, **headers: str) -> None:
        self.send(302, b"Found", Location=where, **headers)


Answer = Callable[[Exchange], None]


class Server(ThreadingHTTPServer):
    """`requests` as they came in; `stop` is set when it closes, for an answer that waits."""

    daemon_threads = True
    block_on_close = False
    scheme = "http"

    def __init__(self, answer: Answer, pace: Pace) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.answer, self.pace = answer, pace
        self.requests: list[Request] = []
        self.body_bytes = 0
        self.stop = threading.Event()
        self.failures: list[str] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, address: object) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | ssl.SSLError):  # clients come and go
            self.failures.append(f"{type(error).__name__}: {error}")


@contextmanager
def serving(
    answer: Answer, pace: Pace = lambda count: None, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    server = Server(answer, pace)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
    with at_work(server):
        try:
            yield server
        finally:
            server.stop.set()
    assert server.failures == []


def hub(data: bytes, far: Callable[[], Server], **said: str) -> Answer:
    """A repository that sends on to another server, with a signed address, as the real hub does."""
    linked = {"X_Linked_Size": str(len(data)), "X_Linked_ETag": '"5ha"', "X_Repo_Commit": "c0ffee"}

    def answer(exchange: Exchange) -> None:
        exchange.redirect(f"{far().url}/blob?Signature=5ecret", **(linked | said))

    return answer
