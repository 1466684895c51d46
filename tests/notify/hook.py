"""A web server on loopback that is told things, and answers as a test wants it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ports import free_port


@dataclass(frozen=True)
class Told:
    path: str
    headers: dict[str, str]
    body: str
    status: int

    @property
    def key(self) -> str:
        return self.headers["Idempotency-Key"]

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Hook:
    """`status`: what is answered; None: nothing, and the connection stays open."""

    url: str
    status: int | None = 200
    said: bytes = b""
    holds_first: bool = False
    """Whether the first request with a key gets no answer, and only the next ones `status`."""
    came: list[Told] = field(default_factory=list)
    """Every request, with the status that it was answered, 0 for none."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def answered(self) -> list[str]:
        """The keys of what was taken."""
        return [one.key for one in self.came if one.status == 200]


@contextmanager
def serving() -> Iterator[Hook]:
    port = free_port()
    hook = Hook(f"http://127.0.0.1:{port}")

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            known = self.headers["Idempotency-Key"] in [one.key for one in hook.came]
            status = None if hook.holds_first and not known else hook.status
            hook.came.append(Told(self.path, dict(self.headers), body, status or 0))
            if status is None:
                hook.over.wait()
                return
            self.send_response(status)
            self.send_header("Location", f"{hook.url}/elsewhere")
            self.send_header("Content-Length", str(len(hook.said)))
            self.end_headers()
            self.wfile.write(hook.said)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Door)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
