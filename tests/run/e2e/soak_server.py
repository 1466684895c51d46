"""A stand-in for a server that goes bad slowly, which a real engine does not do on demand.

`python soak_server.py --port N` streams completions as llama-server does. From `--bad-after`
seconds after the first request on a token takes `--slower` times as long, each request leaves
`--leak` bytes behind, and one in `--critical` prints a line that a soak looks for.
"""

from __future__ import annotations

import argparse
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKENS = 4
TOKEN_S = 0.012


class Going(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", options.port), Handler)
        self.options = options
        self.begun: float | None = None
        self.leaked: list[bytes] = []
        self.asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Going

    def do_GET(self) -> None:
        found: dict[str, Any] = {"status": "ok", "data": [{"id": "stand-in"}]}
        body = json.dumps(found).encode()
        self.send_response(404 if self.path == "/metrics" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        server, options = self.server, self.server.options
        server.asked += 1
        server.begun = server.begun or time.monotonic()
        bad = time.monotonic() - server.begun > options.bad_after
        server.leaked.append(b"x" * options.leak)  # written to, so that it is in RAM
        if options.critical and server.asked % options.critical == 0:
            print(f"CUDA error: \x1b[31mout of memory\x1b[0m at request {server.asked}", flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for _ in range(TOKENS):
            time.sleep(TOKEN_S * (options.slower if bad else 1))
            self._event({"choices": [{"delta": {"content": "x"}}]})
        end = {"choices": [{"delta": {}, "finish_reason": "length"}]}
        self._event(end | {"usage": {"completion_tokens": TOKENS, "prompt_tokens": 9}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--leak", type=int, default=0)
    parser.add_argument("--slower", type=float, default=1.0)
    parser.add_argument("--bad-after", type=float, default=0.0)
    parser.add_argument("--critical", type=int, default=0)
    Going(parser.parse_args()).serve_forever(0.05)


if __name__ == "__main__":
    main()
