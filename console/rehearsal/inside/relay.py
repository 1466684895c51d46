"""The front of a stand-in that is not llama.cpp: it speaks another engine's dialect.

llama.cpp serves on a loopback port behind it, and every request goes there. The address is taken
at the start, and connections are refused until llama.cpp serves, as with the real engines.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from console.rehearsal.inside.dialect import DONE, Server, Tree
from console.rehearsal.inside.settings import fetched

LOOPBACK = "127.0.0.1"
BACKLOG = 64
LOOK_S = 0.05
JSON = "application/json"


class Failed(Exception):
    """llama.cpp reported an error in the middle of a stream."""


def free_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.create_server((LOOPBACK, 0)) as one:
        return int(one.getsockname()[1])


class Relay(ThreadingHTTPServer):
    """Answers at `address` for `told`, with what llama.cpp at `inner` says. Raises OSError if the
    address is taken."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, address: tuple[str, int], told: Server, inner: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Front, bind_and_activate=False)
        self.told, self.inner, self.documents = told, inner, told.documents()
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


class Front(BaseHTTPRequestHandler):
    """One request."""

    server: Relay
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in self.server.told.dialect.empty:
            self._answer(200, None)
        elif path in self.server.documents:
            self._answer(200, self.server.documents[path])
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        path, told = self.path.partition("?")[0], self.server.told
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        if path in told.dialect.tokenize:
            self._tokenize(body)
            return
        if path not in told.dialect.keys:
            self._answer(404, {"detail": "Not Found"})
            return
        status, words = told.unfit(path, body)
        if status:
            self._answer(status, told.refusal(status, words))
        else:
            self._complete(path, body)

    def _complete(self, path: str, body: Tree) -> None:
        told = self.server.told
        link = http.client.HTTPConnection(LOOPBACK, self.server.inner)
        try:
            reply = _posted(link, path, told.passed_on(path, body))
            if reply.status != 200:
                words = _words(_object(reply.read()))
                self._answer(reply.status, told.refusal(reply.status, words))
            elif not body.get("stream"):
                self._answer(200, told.whole(path, _object(reply.read())))
            else:
                self._stream(told.stream(path, body, _events(reply)))
        finally:
            link.close()

    def _stream(self, chunks: Iterator[Tree]) -> None:
        """Pass the chunks on as they come; a client that hangs up ends it."""
        self._head(200, "text/event-stream")
        try:
            for chunk in chunks:
                self._event(json.dumps(chunk))
        except Failed as failed:
            told = self.server.told.refusal(500, str(failed))
            self._event(json.dumps({"error": told.get("error", told)}))
        self._event(DONE)

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())

    def _tokenize(self, body: object) -> None:
        told = self.server.told
        text = body.get("prompt") if isinstance(body, dict) else None
        if not isinstance(text, str):
            self._answer(400, told.refusal(400, "Field required: body.prompt"))
            return
        link = http.client.HTTPConnection(LOOPBACK, self.server.inner)
        try:
            tokens = _object(_posted(link, "/tokenize", {"content": text}).read()).get("tokens")
        finally:
            link.close()
        counted = tokens if isinstance(tokens, list) else []
        sizes = {"count": len(counted), "max_model_len": told.context}
        self._answer(200, {"tokens": counted, **sizes})

    def _answer(self, status: int, body: Tree | None) -> None:
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


def _posted(link: http.client.HTTPConnection, path: str, body: Tree) -> http.client.HTTPResponse:
    link.request("POST", path, json.dumps(body).encode(), {"Content-Type": JSON})
    return link.getresponse()


def _events(reply: http.client.HTTPResponse) -> Iterator[Tree]:
    """The objects of llama.cpp's stream, up to its end. Raises Failed for an error in it."""
    while line := reply.readline():
        name, _, data = line.decode(errors="replace").partition(":")
        if name not in ("data", "error") or data.strip() == DONE:
            continue
        found = _object(data.encode())
        if name == "error" or found.get("error"):
            raise Failed(_words(found))
        yield found


def _words(answer: Tree) -> str:
    """The message of llama.cpp's error."""
    error = answer.get("error") or answer
    return str(error.get("message") or "the engine has failed")


def _object(data: bytes) -> Tree:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
