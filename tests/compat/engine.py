"""The engine in the archives, with the standard library alone: health, completions, streams.

    python engine.py PORT [FILE]

Each completion repeats one word at a fixed pace. Once FILE exists, it holds 16 MiB more every
50 ms, up to 256 MiB, for the run that the guard ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN_S = 0.01
MOST = 16
KNOWN: dict[str, Any] = {
    "/health": {"status": "ok"}, "/v1/models": {"data": [{"id": "tiny"}]}, "/slots": [],
    "/props": {"build_info": "b1-fixed", "model_path": "tiny.gguf"},
}  # fmt: skip
END = {"choices": [{"delta": {}, "finish_reason": "length"}]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._json(200 if self.path in KNOWN else 404, KNOWN.get(self.path, {}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = int(asked.get("max_tokens", 8))
        with contextlib.suppress(OSError):  # whoever asked has gone
            if asked.get("stream"):
                self._stream(count)
            else:
                message = {"role": "assistant", "content": " ".join(map(str, range(count)))}
                self._json(200, {"choices": [{"message": message}], **figures(count)})

    def _stream(self, count: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number in range(count):
            time.sleep(TOKEN_S)
            self._event({"choices": [{"delta": {"content": f"{number} "}, "finish_reason": None}]})
        self._event({**END, **figures(count)})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def figures(count: int) -> dict[str, Any]:
    """The usage and the timings that end an answer."""
    token_ms = TOKEN_S * 1000
    return {
        "usage": {"completion_tokens": count, "prompt_tokens": 9},
        "timings": {
            "prompt_n": 9, "prompt_ms": 9 * token_ms, "cache_n": 0,
            "predicted_n": count, "predicted_ms": (count - 1) * token_ms,
        },
    }  # fmt: skip


def grow(file: str) -> None:
    held: list[bytes] = []
    while len(held) < MOST:
        time.sleep(0.05)
        if os.path.exists(file):
            held.append(b"x" * (16 << 20))
    threading.Event().wait()


def main(words: list[str]) -> None:
    if len(words) > 1:
        threading.Thread(target=grow, args=(words[1],), daemon=True).start()
    ThreadingHTTPServer.allow_reuse_address = True
    print("listening", flush=True)
    ThreadingHTTPServer(("127.0.0.1", int(words[0])), Handler).serve_forever(0.05)


if __name__ == "__main__":
    main(sys.argv[1:])
