"""A scripted stand-in for a server, for the stream shapes a real one will not produce on demand."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from itertools import cycle, islice
from typing import Any

from console.bench.client import ChatRequest, stream_chat
from console.bench.sse import FailureKind, Reply
from console.rehearsal.demo import passage
from tests.runtime.serving import Quiet, at_work

Answer = Callable[["Handler"], None]


def sse(data: object) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"data: {text}\n\n".encode()


def delta(
    *, usage: dict[str, Any] | None = None, finish: str | None = None, **fields: Any
) -> bytes:
    """One chunk with a single choice."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return sse({"choices": [choice]} | ({"usage": usage} if usage else {}))


def usage(tokens: int, cached: int = 0) -> dict[str, Any]:
    return {
        "completion_tokens": tokens,
        "prompt_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


ROLE = delta(role="assistant", content=None)
FINISH = delta(finish="length")
DONE = b"data: [DONE]\n\n"


def spoken(tokens: int, usages: bool = False) -> list[bytes]:
    """Plain English, one token in each chunk; with `usages` each chunk says how many there were."""
    words = islice(cycle(passage.words()), tokens)
    return [
        delta(content=word, usage=usage(number) if usages else None)
        for number, word in enumerate(words, 1)
    ]


def reply(tokens: int, cached: int = 0) -> list[bytes]:
    """A whole stream, one token in each chunk, with usage at the end."""
    end = sse({"choices": [], "usage": usage(tokens, cached)})
    return [ROLE, *spoken(tokens), FINISH, end, DONE]


def garbage(tokens: int, piece: str = "\n") -> list[bytes]:
    """The same of a server that says one thing again and again."""
    end = sse({"choices": [], "usage": usage(tokens)})
    return [ROLE, *[delta(content=piece)] * tokens, FINISH, end, DONE]


class Handler(Quiet):
    """One request; HTTP/1.0, so that a stream ends with its connection."""

    server: Scripted

    def do_GET(self) -> None:
        found = self.server.documents.get(self.path)
        self.whole(404 if found is None else 200, json.dumps(found or {}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path in self.server.documents:
            self.whole(200, json.dumps(self.server.documents[self.path]).encode())
            return
        self.server.requests.append(body)
        number = min(len(self.server.requests), len(self.server.answers)) - 1
        try:
            self.server.answers[number](self)
        except OSError:
            pass  # the client went away, as some tests want

    def stream(self, parts: list[bytes], pause_s: float = 0.0) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in parts:
            self.wfile.write(part)
            self.wfile.flush()
            self.server.stop.wait(pause_s)

    def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.wfile.close()
        self.connection.close()

    def finish(self) -> None:
        if not self.wfile.closed:
            super().finish()


class Scripted(ThreadingHTTPServer):
    """Answers the chat requests in order of the script; the last answer repeats."""

    daemon_threads = True

    def __init__(self, answers: list[Answer], documents: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.documents = documents
        self.requests: list[dict[str, Any]] = []
        self.stop = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def scripted(*answers: Answer, documents: dict[str, Any] | None = None) -> Iterator[Scripted]:
    """A running stand-in; `documents` are served at their paths."""
    server = Scripted(list(answers), documents or {})
    with at_work(server):
        try:
            yield server
        finally:
            server.stop.set()


def streams(parts: list[bytes], pause_s: float = 0.0) -> Answer:
    return lambda handler: handler.stream(parts, pause_s)


def answers(status: int, body: bytes, kind: str = "application/json") -> Answer:
    return lambda handler: handler.whole(status, body, kind)


def asked(request: ChatRequest, *answers: Answer, **options: Any) -> Reply:
    """What the client makes of one request to a server that answers so."""
    with scripted(*answers) as server:
        return stream_chat(server.url, request, **options)


def failed(got: Reply) -> FailureKind | None:
    return got.failure.kind if got.failure is not None else None
