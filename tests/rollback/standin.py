"""A stand-in for llama-server, for tests without an engine: health, slots, chat completions.

    python standin.py PORT [--loading N] [--ignore-term] [--outlive FILE] [--once FILE]
        [--host ADDRESS]

With `--loading N` it answers 503 to the first N requests of /health. With `--outlive FILE` it
completes nothing before the process whose pid is in that file has ended. With `--once FILE` it
creates the file and ends after its first completion, unless the file exists.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOK_S = 50.0


class Handler(BaseHTTPRequestHandler):
    loading = 0
    outlive = ""
    once = ""

    def do_GET(self) -> None:
        if self.path == "/health":
            if Handler.loading > 0:
                Handler.loading -= 1
                self.answer(503, {"error": {"message": "Loading model", "code": 503}})
            else:
                self.answer(200, {"status": "ok"})
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        while Handler.outlive and not has_ended(Handler.outlive):
            time.sleep(0.01)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = int(asked["max_tokens"])
        self.answer(
            200,
            {
                "choices": [{"message": {"role": "assistant", "content": "ready " * count}}],
                "usage": {"completion_tokens": count},
                "timings": {"predicted_n": count, "predicted_ms": (count - 1) * 1000 / TOK_S},
            },
        )

        if Handler.once and not os.path.exists(Handler.once):
            open(Handler.once, "w").close()
            os._exit(0)

    def answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def has_ended(file: str) -> bool:
    """Whether the process whose pid is in the file has lived and is gone or a zombie."""
    try:
        with open(file) as text:
            pid = int(text.read())
    except (OSError, ValueError):
        return False
    try:
        with open(f"/proc/{pid}/stat") as text:
            return text.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def main(arguments: list[str]) -> None:
    def after(flag: str, usual: str = "") -> str:
        return arguments[arguments.index(flag) + 1] if flag in arguments else usual

    Handler.loading = int(after("--loading", "0"))
    Handler.outlive, Handler.once = after("--outlive"), after("--once")
    if "--ignore-term" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ThreadingHTTPServer.allow_reuse_address = True
    print("stand-in listens", flush=True)
    ThreadingHTTPServer((after("--host", "127.0.0.1"), int(arguments[0])), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
