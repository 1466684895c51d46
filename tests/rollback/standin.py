"""A stand-in for llama-server, for tests without an engine: health, slots, chat completions.

    python standin.py PORT [--loading N] [--ignore-term] [--outlive FILE] [--once FILE]
        [--host ADDRESS] [--lines FILE] [--shared] [--tls FILE]

With `--loading N` it answers 503 to the first N requests of /health. With `--outlive FILE` it
completes nothing before the process whose pid is in that file has ended. With `--lines FILE` the
JSON in it says how it answers for as long as it is there: `health` and `status` of the replies,
the seconds that its health path is `slow`, `error`, its `slots`, the `message`, that its tokens
are `uncounted`, the `raw` reply in its place, a line for its `log`, `most` tokens after which it
hangs, or `spins`; in `stream` how a streamed answer is, `well`, `cut`, or the words of an error
that comes after its third event (else it streams nothing); by path how an answer begins that
`drips` on byte by byte and never ends.
What is asked for by GET /stream it sends a word of every 50 ms.
`--tls FILE` speaks TLS with the key and certificate in it.
`--shared` shares its address with others that do (SO_REUSEPORT). With `--once FILE` it
creates the file and ends after its first completion, unless the file exists.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOK_S = 50.0


class Server(ThreadingHTTPServer):
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up: its traceback would stand in the log pane."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    loading = 0
    outlive = ""
    once = ""
    lines = ""
    asked = 0

    def do_GET(self) -> None:
        if self.path == "/stream":
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"data: word\n\n")
                time.sleep(0.05)
        if self.drips():
            return
        if self.path == "/health":
            time.sleep(self.told().get("slow", 0))
            status = self.told().get("health", 200)
            if status != 200:
                self.answer(status, {"error": {"message": "not for you"}})
            elif Handler.loading > 0:
                Handler.loading -= 1
                self.answer(503, {"error": {"message": "Loading model", "code": 503}})
            else:
                self.answer(200, {"status": "ok"})
        elif self.path == "/slots" and "slots" in self.told():
            self.answer(200, self.told()["slots"])
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        while Handler.outlive and not has_ended(Handler.outlive):
            time.sleep(0.01)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count, told = int(asked["max_tokens"]), self.told()
        if self.drips():
            return
        if "log" in told:
            print(told["log"], flush=True)
        if told.get("status", 200) != 200:
            self.answer(told["status"], {"error": {"message": told.get("error", "no")}})
            return
        while count > told.get("most", count):
            time.sleep(0 if told.get("spins") else 0.05)
        rate = told.get("rate", TOK_S)
        message = told.get("message", {"content": counting(count)})
        if texts := told.get("messages"):  # one after the other, the last one from then on
            message = {"content": texts[min(Handler.asked, len(texts) - 1)]}
            Handler.asked += 1
        if "raw" in told:
            self.answer(200, told["raw"])
            return
        if asked.get("stream") and "stream" in told:
            self.stream(count, told["stream"])
            return
        counted = {} if "uncounted" in told else {
            "usage": {"completion_tokens": count},
            "timings": {"predicted_n": count, "predicted_ms": (count - 1) * 1000 / rate},
        }  # fmt: skip
        self.answer(
            200,
            {
                "choices": [
                    {
                        "message": {"role": "assistant", **message},
                        "finish_reason": told.get("finish", "length"),
                    }
                ],
                **counted,
            },
        )

        if Handler.once and not os.path.exists(Handler.once):
            open(Handler.once, "w").close()
            os._exit(0)

    def stream(self, count: int, ends: str) -> None:
        """Send the answer in events, a word each, as far as it comes. `http`: an error in place of
        it; `reset`: the connection is; `stops`: nothing more comes; `dies`: nor does any later
        answer."""

        def event(value: Any) -> None:
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

        if ends == "dies":
            Path(Handler.lines).write_text(
                '{"status": 500, "error": "EngineCore encountered an issue"}'
            )
        if ends in ("http", "dies"):
            self.answer(500, {"error": {"message": "CUDA error: an illegal memory access"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in counting(count).split()[: count if ends == "well" else 3]:
            event({"choices": [{"delta": {"content": f"{word} "}, "finish_reason": None}]})
        if ends == "stops":
            time.sleep(30)
        if ends == "reset":  # with bytes unread, or lingering for no time, a close is a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        if ends in ("cut", "stops", "reset"):
            return
        if ends != "well":
            event({"error": {"message": ends}})
            return
        event({
            "choices": [{"delta": {}, "finish_reason": "length"}],
            "timings": {"predicted_n": count, "predicted_ms": (count - 1) * 1000 / TOK_S},
        })  # fmt: skip
        self.wfile.write(b"data: [DONE]\n\n")

    def drips(self) -> bool:
        """Send an answer that never ends, where that is told, until the client goes."""
        begin = self.told().get("drips", {}).get(self.path)
        while begin is not None:
            self.wfile.write(begin.encode())
            begin = " "
            time.sleep(0.02)
        return False

    def told(self) -> dict[str, Any]:
        try:
            with open(Handler.lines) as file:
                return dict(json.load(file))
        except OSError:
            return {}

    def answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def counting(count: int) -> str:
    """As many words as tokens, and no loop: what repeats itself is no answer."""
    return " ".join(map(str, range(1, count + 1)))


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
    Handler.lines = after("--lines")
    if "--ignore-term" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Server.allow_reuse_port = "--shared" in arguments
    host = after("--host", "127.0.0.1")
    if ":" in host:
        Server.address_family = socket.AF_INET6
    server = Server((host, int(arguments[0])), Handler)
    if "--tls" in arguments:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(after("--tls"))
        # each connection's own thread shakes hands: a plain request keeps nobody waiting
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    print("stand-in listens", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
