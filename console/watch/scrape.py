"""`/metrics` on loopback, from the process of the watch: what `omni-console metrics` prints.

The text is made by a child, at most once an interval, so that journals, SQLite and NVML are never
loaded by the watch, however often it is scraped.
"""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError
from console.common.paths import module_argv
from console.host import children
from console.watch.plan import usual_environment

if TYPE_CHECKING:
    from http.server import HTTPServer

CHILD_S = 20.0
REQUEST_S = 5.0
LEAST_S = 10.0
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Scrape:
    """Serves HOST:PORT; with "" nothing. One request at a time, in a thread."""

    def __init__(self, address: str, site: str, every_s: float, clock: Clock | None = None) -> None:
        self.address, self._site = address, site
        self._every, self._clock = max(LEAST_S, every_s), clock or SystemClock()
        self._text, self._at = b"", float("-inf")
        self._server: HTTPServer | None = None

    def start(self) -> None:
        """Raises ConsoleError if the address is not free."""
        if not self.address:
            return
        from http.server import BaseHTTPRequestHandler, HTTPServer

        text = self.text

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_GET(self) -> None:
                found = text() if self.path.partition("?")[0] == "/metrics" else None
                body = found if found else b"only /metrics, and nothing else\n"
                code = 404 if found is None else 200 if found else 503
                self.send_response(code)
                self.send_header("Content-Type", CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a line for each scrape would fill the journal."""

        host, _, port = self.address.rpartition(":")
        try:
            self._server = HTTPServer((host.strip("[]"), int(port)), Handler)
        except (OSError, ValueError) as error:
            raise ConsoleError(
                f"/metrics cannot be served at {self.address}", str(error),
                "another port in `watch: {metrics: …}` of the site file",
            ) from None  # fmt: skip
        serve = self._server.serve_forever
        threading.Thread(target=serve, name="metrics", daemon=True).start()

    @property
    def port(self) -> int:
        """The port at which it answers; 0 for none."""
        return self._server.server_address[1] if self._server is not None else 0

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
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
