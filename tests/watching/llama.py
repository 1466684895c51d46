"""As much of llama-server as a look of the watch asks."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from console.watch.look import Looker
from console.watch.plan import Settings
from tests.watching.conftest import plan_of

ANSWER = {
    "choices": [{"message": {"content": "yes"}}], "usage": {"completion_tokens": 16},
    "timings": {"predicted_n": 16, "predicted_ms": 1500.0},
}  # fmt: skip


class Llama:
    """As much of llama-server as a look asks: its slots, its health and its answers are given."""

    def __init__(self) -> None:
        self.health, self.completion, self.slots_status = 200, 200, 200
        self.answer: dict[str, Any] = ANSWER
        self.processing: list[bool] = [False]
        self.decoded = 0
        self.grows = False
        self.counters: tuple[float, float] | None = None
        self.asked: list[dict[str, Any]] = []
        self.hold, self.holds, self.others_come = threading.Event(), False, False
        self.drips: dict[str, bytes] = {}
        """By path the beginning of an answer that goes on byte by byte, and never ends."""
        llama = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/health":
                    self.say(llama.health, {"status": "?"})
                elif self.path == "/slots":
                    self.say(llama.slots_status, llama.slots())
                elif self.path == "/metrics" and llama.counters is not None:
                    tokens, seconds = llama.counters
                    self.say(200, f"llamacpp:tokens_predicted_total {tokens}\n"
                             f"llamacpp:tokens_predicted_seconds_total {seconds}\n"
                             f"llamacpp:requests_processing {sum(llama.processing)}\n")  # fmt: skip
                else:
                    self.say(501, {"error": "no metrics"})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                llama.asked.append(json.loads(body))
                if llama.others_come:
                    llama.processing = [True]
                if llama.holds:
                    llama.hold.wait(60)
                self.say(llama.completion, llama.answer)

            def say(self, status: int, value: Any) -> None:
                if self.path in llama.drips:
                    self.wfile.write(llama.drips[self.path])
                    while not llama.hold.wait(0.02):
                        self.wfile.write(b" ")
                    return
                text = value if isinstance(value, str) else json.dumps(value)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """A look that has given up is no error."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def slots(self) -> list[dict[str, Any]]:
        self.decoded += 7 * self.grows
        return [
            {"id": number, "id_task": 1, "is_processing": works, "n_decoded": self.decoded}
            for number, works in enumerate(self.processing)
        ]

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


def looker(llama: Llama, **settings: Any) -> Looker:
    return Looker(plan_of(llama.url).sealed, Settings(**settings))
