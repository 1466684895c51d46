"""One server for sockets of any family, each connection in a thread of its own; what every stand-in
of an HTTP server does alike; and a question that another user asks."""

import json
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any


@contextmanager
def serving(
    listener: socket.socket, talk: Callable[[socket.socket], None]
) -> Iterator[threading.Event]:
    """`talk` has each connection until it returns; the event is set when the server ends."""
    over, threads = threading.Event(), list[threading.Thread]()

    def one(peer: socket.socket) -> None:
        with peer, suppress(OSError):  # the other side hung up
            talk(peer)

    def accept() -> None:
        with suppress(OSError):  # it was shut down
            while True:
                peer, _ = listener.accept()
                threads.append(threading.Thread(target=one, args=(peer,), daemon=True))
                threads[-1].start()

    threads.append(threading.Thread(target=accept, daemon=True))
    threads[0].start()
    try:
        yield over
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(5)


class Quiet(BaseHTTPRequestHandler):
    """One request; it writes no line about it."""

    def whole(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def at_work(server: BaseServer) -> Iterator[None]:
    """It serves in a thread until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def unix_listener(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    return listener


def in_child(act: Callable[[], object]) -> Any:
    """What `act` returns, or its error, in a forked child, because it gives root away."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(act()).encode())
        except BaseException as error:
            places = [
                f"{one.name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)
            ]
            words = f"{error!r} {getattr(error, 'filename', '')} at {' '.join(places)}"
            os.write(writer, json.dumps(words).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return json.loads(data)
