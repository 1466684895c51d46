"""A server that sends each event when it is due, and tells when it really did.

It runs in a process of its own and answers one connection at a time, so that nothing of it competes
with the next event. Before an event it sleeps, and spins for the last moment, because a sleep ends
late. What is compared are differences of its own stamps.

Each prompt is the script of its answer, a Script as JSON. A token is the word ` tok`.
"""

import gc
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.benchmarks.surroundings import helper

TOKEN = " "
"""Each token is a number after a space."""
SPIN_S = 0.0005
TURN = os.sched_param(10)
NS = 1e9
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Script:
    """One answer: `tokens` at `rate` tok/s after `delay` seconds, `each` in a chunk.

    `first`: tokens in the first chunk; 1 is what speculative decoding does, whose first token
    comes out of the prompt alone. `thought`: tokens that are reasoning, at the front. `tell`: who
    counts: usage or timings in each chunk, `end` (usage in the last chunk alone), `tokenize` (the
    server counts text when it is asked) or `nobody`.
    """

    delay: float
    tokens: int
    rate: float
    each: int = 1
    first: int = 0
    thought: int = 0
    tell: str = "usage"

    @property
    def sizes(self) -> list[int]:
        """Tokens of each chunk; a chunk holds reasoning or answer, never both."""
        sizes = [self.first or min(self.each, self.tokens)]
        while (left := self.tokens - sum(sizes)) > 0:
            sizes.append(min(self.each, left))
        return sizes


@dataclass(frozen=True, slots=True)
class Truth:
    """When the server had read the request, and sent its first token, the first that is no
    reasoning, and the last, in ns; how late it was at worst, in seconds."""

    asked: int
    first: int
    answer: int
    last: int
    late: float

    @property
    def ttft_s(self) -> float:
        return (self.first - self.asked) / NS

    @property
    def ttfo_s(self) -> float:
        return (self.answer - self.asked) / NS

    def rate(self, script: Script) -> float:
        """Tokens a second after the first chunk, as they left the server."""
        return (script.tokens - script.sizes[0]) * NS / (self.last - self.first)


class Paced:
    """The server's process, seen from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{int(self._line())}"

    def truth(self) -> Truth:
        """Of the answer that was just read."""
        return Truth(**json.loads(self._line()))

    @contextmanager
    def undisturbed(self) -> Iterator[bool]:
        """Both sides go before every other program, where this user may ask for that: on a busy
        machine one would measure the others' turns. False where not."""
        both = (0, self._process.pid)
        before = [(os.sched_getscheduler(pid), os.sched_getparam(pid)) for pid in both]
        try:
            for pid in both:
                os.sched_setscheduler(pid, os.SCHED_RR, TURN)
            yield True
        except PermissionError:
            yield False
        finally:
            for pid, how in zip(both, before, strict=True):
                os.sched_setscheduler(pid, *how)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def paced() -> Iterator[Paced]:
    with helper(__name__) as process:
        yield Paced(process)


# -- the server's side ---------------------------------------------------------------------------


def events(script: Script) -> list[tuple[float, bytes, int]]:
    """(due in seconds after the request, bytes, tokens so far) of every event but the end."""
    found = [
        (0.0, _sse({"choices": [_choice(role="assistant", content=None)]}), 0),
        (script.delay / 3, b": ping\n\n", 0),
        (script.delay / 2, _sse({"prompt_progress": {"processed": 1}, "choices": [_choice()]}), 0),
    ]
    sizes, done = script.sizes, 0
    for size in sizes:
        name = "reasoning_content" if done < script.thought else "content"
        done += size
        due = script.delay + (done - sizes[0]) / script.rate
        chunk: dict[str, Any] = {"choices": [_choice(**{name: _text(done - size, size)})]}
        if script.tell == "usage":
            chunk["usage"] = _usage(done)
        if script.tell == "timings":
            took = 1e3 * (done - 1) / script.rate
            chunk["timings"] = {
                "cache_n": 0, "prompt_n": 20, "prompt_ms": script.delay * 1e3,
                "predicted_n": done, "predicted_ms": took,
            }  # fmt: skip
        found.append((due, _sse(chunk), done))
    return found


def _text(first: int, count: int) -> str:
    return "".join(f"{TOKEN}{number}" for number in range(first, first + count))


def _end(script: Script) -> bytes:
    last: dict[str, Any] = {"choices": [_choice("length")]}
    end = _sse(last)
    if script.tell in ("usage", "end"):
        end += _sse({"choices": [], "usage": _usage(script.tokens)})
    return end + b"data: [DONE]\n\n"


def _choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _usage(done: int) -> dict[str, Any]:
    return {"completion_tokens": done, "prompt_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip


def _sse(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _part(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _until(due: int) -> int:
    """Wait; the moment it is over, in ns."""
    while (left := (due - time.perf_counter_ns()) / NS) > SPIN_S:
        time.sleep(left - SPIN_S)
    while (now := time.perf_counter_ns()) < due:
        pass
    return now


class Handler(BaseHTTPRequestHandler):
    """One request; its socket is written to without a buffer."""

    script: Script | None = None
    """Of the answer before, which /tokenize is asked about."""

    def parse_request(self) -> bool:
        self.asked = time.perf_counter_ns()
        return super().parse_request()

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/chat/completions":
            script = Handler.script = Script(**json.loads(body["messages"][0]["content"]))
            print(json.dumps(asdict(self.stream(script))), flush=True)
        elif Handler.script is not None and Handler.script.tell == "tokenize":
            found = json.dumps({"tokens": [1] * body["content"].count(TOKEN)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)
        else:
            self.send_error(404)

    def stream(self, script: Script) -> Truth:
        planned = [(due, _part(data), done) for due, data, done in events(script)]
        self.wfile.write(HEAD)
        late, stamps = 0, []
        for due, data, done in planned:
            at = self.asked + round(due * NS)
            now = _until(at)
            self.wfile.write(data)
            late = max(late, now - at)
            if done:
                stamps.append((now, done))
        self.wfile.write(_part(_end(script)) + b"0\r\n\r\n")
        answer = next((now for now, done in stamps if done > script.thought), stamps[-1][0])
        return Truth(self.asked, stamps[0][0], answer, stamps[-1][0], late / NS)

    def log_message(self, *_: object) -> None:
        pass


def serve() -> None:
    """One connection after another, until it is ended."""
    gc.disable()
    Handler.disable_nagle_algorithm = True
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve()
