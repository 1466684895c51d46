"""The front of a stand-in that is not llama.cpp: it speaks another engine's dialect.

llama.cpp serves on a loopback port behind it, and every request goes there. The address is taken
at the start, and connections are refused until llama.cpp serves, as with the real engines. A front
can also make every other answer slow.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from console.rehearsal.inside.dialect import DONE, Server, Tree, text_of
from console.rehearsal.inside.ik_llama import Llama
from console.rehearsal.inside.settings import fetched

LOOPBACK = "127.0.0.1"
BACKLOG = 64
LOOK_S = 0.05
JSON = "application/json"
STREAM = "text/event-stream"
LONG = 8
"""Tokens from which an answer counts as long: soaks, proofs and prompts ask for fewer."""


class Failed(Exception):
    """llama.cpp reported an error in the middle of a stream."""


def free_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


class Pace:
    """Makes every other long answer as slow as `tok_s`; none if that is 0.0."""

    def __init__(self, tok_s: float) -> None:
        self._tok_s = tok_s
        self._lock = threading.Lock()
        self._long = 0

    def __call__(self, body: Tree, events: Iterator[Tree]) -> Iterator[Tree]:
        """The events of the answer to a request, some of them late."""
        if not self._tok_s or int(body.get("max_tokens") or 0) < LONG:
            return events
        with self._lock:
            self._long += 1
            slow = self._long % 2 == 0
        return self._late(events) if slow else events

    def _late(self, events: Iterator[Tree]) -> Iterator[Tree]:
        """Each token when a slow server would have it, which also says so in its timings."""
        first = due = 0.0
        for event in events:
            now = time.monotonic()
            if text_of(event):
                first = first or now
                due = max(due, now) if not due else due + 1 / self._tok_s
                time.sleep(max(0.0, due - now))
            timings = event.get("timings")
            if first and isinstance(timings, dict):
                spent = (time.monotonic() - first) * 1000
                made = max(1.0, float(timings.get("predicted_n") or 1))
                event["timings"] = {
                    **timings, "predicted_ms": spent, "predicted_per_token_ms": spent / made,
                    "predicted_per_second": made * 1000 / spent if spent else 0.0,
                }  # fmt: skip
            yield event


class Relay(ThreadingHTTPServer):
    """Answers at `address` for `engine`, with what llama.cpp at `inner` says. Raises OSError if the
    address is taken."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(
        self, address: tuple[str, int], engine: Server | Llama, inner: int, slow: float = 0.0
    ) -> None:
        """`slow`: tok/s of every other answer."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        front = Through if isinstance(engine, Llama) else Front
        super().__init__(address, front, bind_and_activate=False)
        self.engine, self.inner, self.pace = engine, inner, Pace(slow)
        self.server_bind()

    def serve(self) -> None:
        """Wait until llama.cpp serves, then answer for ever; end the process on a bug."""
        try:
            while fetched(self.inner, "/health") is None:
                time.sleep(LOOK_S)
            self.server_activate()
            self.serve_forever()
        except Exception as error:  # a front that is gone must not look like a server that hangs
            print(f"stand-in: {error}", file=sys.stderr, flush=True)
            os._exit(1)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what went wrong; a client that hung up is nothing."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            print(f"stand-in: {error!r}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Relay
    disable_nagle_algorithm = True

    def _given(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _stream(self, chunks: Iterator[Tree]) -> None:
        """Pass the chunks on as they come; a client that hangs up ends it."""
        self._head(200, STREAM)
        try:
            for chunk in chunks:
                self._event(json.dumps(chunk))
        except Failed as failed:
            error = self.server.engine.refusal(500, str(failed))
            self._event(json.dumps({"error": error.get("error", error)}))
        self._event(DONE)

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())

    def _answer(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self._head(status, JSON if data else "", len(data))
        self.wfile.write(data)

    def _head(self, status: int, kind: str, size: int = -1) -> None:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if size >= 0:
            self.send_header("Content-Length", str(size))
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no line for a request."""


class Through(_Handler):
    """A request to llama.cpp or its fork: llama.cpp takes it as it is."""

    def do_GET(self) -> None:
        self._pass("GET", b"")

    def do_POST(self) -> None:
        self._pass("POST", self._given())

    def _pass(self, method: str, data: bytes) -> None:
        path, engine = self.path.partition("?")[0], self.server.engine
        assert isinstance(engine, Llama)
        link = http.client.HTTPConnection(LOOPBACK, self.server.inner)
        try:
            link.request(method, self.path, data or None, {"Content-Type": JSON})
            reply = link.getresponse()
            kind = reply.getheader("Content-Type") or ""
            if kind.startswith(STREAM):
                events = self.server.pace(_object(data), _events(reply))
                self._stream(engine.event(path, event) for event in events)
                return
            body = reply.read()
            if kind.startswith(JSON) and reply.status == 200:
                body = json.dumps(engine.answer(path, json.loads(body))).encode()
            self._head(reply.status, kind, len(body))
            self.wfile.write(body)
        finally:
            link.close()


class Front(_Handler):
    """A request to an engine that is not llama.cpp."""

    @property
    def _engine(self) -> Server:
        engine = self.server.engine
        assert isinstance(engine, Server)
        return engine

    def do_GET(self) -> None:
        path, documents = self.path.partition("?")[0], self._engine.documents()
        if path in self._engine.dialect.empty:
            self._answer(200, None)
        elif path in documents:
            self._answer(200, documents[path])
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        path, engine, data = self.path.partition("?")[0], self._engine, self._given()
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        if path in engine.dialect.tokenize:
            self._tokenize(body)
            return
        if path not in engine.dialect.keys:
            self._answer(404, {"detail": "Not Found"})
            return
        status, words = engine.unfit(path, body)
        if status:
            self._answer(status, engine.refusal(status, words))
        else:
            self._complete(path, body)

    def _complete(self, path: str, body: Tree) -> None:
        engine = self._engine
        link = http.client.HTTPConnection(LOOPBACK, self.server.inner)
        try:
            reply = _posted(link, path, engine.passed_on(path, body))
            if reply.status != 200:
                words = _words(_object(reply.read()))
                self._answer(reply.status, engine.refusal(reply.status, words))
            elif not body.get("stream"):
                self._answer(200, engine.whole(path, _object(reply.read())))
            else:
                events = self.server.pace(body, _events(reply))
                self._stream(engine.stream(path, body, events))
        finally:
            link.close()

    def _tokenize(self, body: object) -> None:
        engine = self._engine
        text = body.get("prompt") if isinstance(body, dict) else None
        if not isinstance(text, str):
            self._answer(400, engine.refusal(400, "Field required: body.prompt"))
            return
        link = http.client.HTTPConnection(LOOPBACK, self.server.inner)
        try:
            tokens = _object(_posted(link, "/tokenize", {"content": text}).read()).get("tokens")
        finally:
            link.close()
        counted = tokens if isinstance(tokens, list) else []
        sizes = {"count": len(counted), "max_model_len": engine.context}
        self._answer(200, {"tokens": counted, **sizes})


def _posted(link: http.client.HTTPConnection, path: str, body: Tree) -> http.client.HTTPResponse:
    link.request("POST", path, json.dumps(body).encode(), {"Content-Type": JSON})
    return link.getresponse()


def _events(reply: http.client.HTTPResponse) -> Iterator[Tree]:
    """The objects of llama.cpp's stream, up to its end. Raises Failed for an error in it."""
    while line := reply.readline():
        name, _, data = line.decode(errors="replace").partition(":")
        if name not in ("data", "error") or data.strip() == DONE:
            continue
        event = _object(data.encode())
        if name == "error" or event.get("error"):
            raise Failed(_words(event))
        yield event


def _words(answer: Tree) -> str:
    """The message of llama.cpp's error."""
    error = answer.get("error") or answer
    return str(error.get("message") or "the engine has failed")


def _object(data: bytes) -> Tree:
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
