"""A scripted engine: what llama-server answers, from a thread of the test's own process."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

from tests.runtime.serving import Quiet

TOKEN_S = 0.001
"""Seconds between two streamed tokens."""
FOREVER_S = 3600.0
Garbage = dict[int, Callable[[int], str]]
"""Port → number of a completion → its every token, "" for a sane one."""
UNSEEN = "unseen"
"""Such a token is of reasoning that the engine shows nobody."""
KNOWN: dict[str, Any] = {
    "/health": {"status": "ok"}, "/v1/models": {"data": [{"id": "scripted"}]},
    "/props": {"build_info": "scripted", "model_path": "scripted.gguf"}, "/slots": [],
}  # fmt: skip


class Handler(Quiet):
    """One request; HTTP/1.0, so that a stream ends with its connection."""

    server: ScriptedServer

    def do_GET(self) -> None:
        self.server.stopped.wait()
        self._json(200 if self.path in KNOWN else 404, KNOWN.get(self.path, {}))

    def do_POST(self) -> None:
        self.server.stopped.wait()
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            asked = json.loads(raw)
        except ValueError:
            self._json(400, {"error": {"message": "not JSON"}})
            return
        count = int(asked.get("max_tokens", 8))
        self.server.answers -= 1
        self.server.asked += 1
        if self.server.answers < 0:
            status, words = self.server.refusal
            self._json(status, {"error": {"message": words}})
            return
        with contextlib.suppress(OSError):  # whoever asked has gone, or this engine has
            if asked.get("stream"):
                self._stream(count)
            else:
                message = {"role": "assistant", "content": "".join(map(self._piece, range(count)))}
                self._json(200, {"choices": [{"message": message}], **self._end(count)})

    def _stream(self, count: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for number in range(count):
            time.sleep(TOKEN_S)
            self.server.stopped.wait()
            text = self._piece(number)
            self._event({"choices": [{"delta": {"content": text}, "finish_reason": None}]})
        finish = {"choices": [{"delta": {}, "finish_reason": "length"}]}
        self._event({**finish, **self._end(count)})
        self.wfile.write(b"data: [DONE]\n\n")

    def _piece(self, number: int) -> str:
        garbage = self.server.garbage.get(self.server.server_port)
        piece = (garbage and garbage(self.server.asked)) or f"{number} "
        return "" if piece == UNSEEN else piece

    def _end(self, count: int) -> dict[str, Any]:
        timings = {
            "prompt_n": 9, "prompt_ms": 9 * TOKEN_S * 1000, "cache_n": 0,
            "predicted_n": count, "predicted_ms": (count - 1) * TOKEN_S * 1000,
        }  # fmt: skip
        return {"usage": {"completion_tokens": count, "prompt_tokens": 9}, "timings": timings}

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: Any) -> None:
        self.whole(status, json.dumps(value).encode())


class ScriptedServer(ThreadingHTTPServer):
    """One engine on a port of loopback; `close` drops every connection, as a kill does."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64
    refusal = (500, "EngineDeadError: out of memory")

    def __init__(self, port: int, answers: int, garbage: Garbage) -> None:
        """`answers`: so many completions, then `refusal` to each."""
        super().__init__(("127.0.0.1", port), Handler)
        self.answers, self.asked, self.garbage = answers, 0, garbage
        self.stopped = threading.Event()
        """Cleared by SIGSTOP: requests are taken and nothing is answered."""
        self.stopped.set()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(FOREVER_S,), daemon=True)
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was dropped is no news."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a connection
        self.shutdown()
        self.server_close()
        for peer in list(self._open):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        self.stopped.set()
        self._thread.join()
