"""A door to a shared engine that shows only one test's containers in lists.

The ladder stops every running container with a candidate label; on an engine that other test
sessions share, that would be theirs too. Everything but the list's filter goes through untouched.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit


@contextmanager
def scoped_engine(path: Path, engine_socket: str, label: str) -> Iterator[str]:
    """A socket at `path` in front of the engine's; its name."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(32)

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_one, args=(peer, engine_socket, label), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _one(peer: socket.socket, engine_socket: str, label: str) -> None:
    with peer, socket.socket(socket.AF_UNIX) as engine:
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                more = peer.recv(65536)
                if not more:
                    return
                data += more
            engine.connect(engine_socket)
            engine.sendall(_rewritten(data, label))
            back = threading.Thread(target=_pump, args=(peer, engine), daemon=True)
            back.start()
            _pump(engine, peer)
        except OSError:
            return


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def _rewritten(data: bytes, label: str) -> bytes:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    method, target, version = first.split(" ")
    parts = urlsplit(target)
    if parts.path.endswith("/containers/json"):
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        filters = json.loads(query.get("filters", "{}"))
        labels = filters.get("label", [])
        # The docker command sends {"a=b": true}, others a list.
        filters["label"] = [*labels, label]
        query["filters"] = json.dumps(filters)
        target = f"{parts.path}?{urlencode(query)}"
    kept = [line for line in headers if not line.lower().startswith("connection:")]
    lines = [f"{method} {target} {version}", *kept, "Connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
