"""A door to an engine that others use too: what is created through it bears one test's label, and
lists show only what bears it. The ladder stops every running candidate it can see; here it sees
this test's alone.

`python -m tests.testbed.door SOCKET ENGINE_SOCKET KEY=VALUE` keeps one open until its stdin ends:
a process of its own, so that one with a stopwatch shares its interpreter with nobody.
"""

import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

CREATE = re.compile(r"(/v[\d.]+)?/containers/create")
LIST = re.compile(r"(/v[\d.]+)?/containers/json")


def answers_all(_: str) -> bool:
    return False


@contextmanager
def door(
    path: Path, engine_socket: str, label: tuple[str, str],
    hangs: Callable[[str], bool] = answers_all,
) -> Iterator[str]:  # fmt: skip
    """The name of a socket at `path` (107 bytes at most), in front of the engine's. A request whose
    path `hangs` is neither passed on nor answered."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(
                target=_one, args=(peer, engine_socket, label, hangs), daemon=True
            ).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _one(
    peer: socket.socket, engine_socket: str, label: tuple[str, str], hangs: Callable[[str], bool]
) -> None:
    """One request a connection: the answer says `Connection: close`."""
    with peer, socket.socket(socket.AF_UNIX) as engine:
        try:
            request = _request(peer)
            if not request:
                return
            if hangs(request.split(b" ", 2)[1].decode()):
                peer.recv(1)  # until the client gives up
                return
            engine.connect(engine_socket)
            engine.sendall(_rewritten(request, label))
            back = threading.Thread(target=_pump, args=(peer, engine), daemon=True)
            back.start()
            _pump(engine, peer)
            back.join(1)
        except OSError:
            return


def _request(peer: socket.socket) -> bytes:
    """The head, and the body as far as Content-Length goes; empty when the peer went away."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = peer.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    while found and len(body) < int(found[1]):
        more = peer.recv(65536)
        if not more:
            return b""
        body += more
    return head + b"\r\n\r\n" + body


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def _rewritten(data: bytes, label: tuple[str, str]) -> bytes:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    method, target, version = first.split(" ")
    parts = urlsplit(target)
    if LIST.fullmatch(parts.path):
        target = f"{parts.path}?{_filtered(parts.query, '='.join(label))}"
    elif method == "POST" and CREATE.fullmatch(parts.path):
        body = _labelled(body, label)
        headers = [h for h in headers if not h.lower().startswith("content-length:")]
        headers.append(f"Content-Length: {len(body)}")
    hijack = any(h.lower().startswith("upgrade:") for h in headers)
    if not hijack:
        headers = [h for h in headers if not h.lower().startswith("connection:")]
        headers.append("Connection: close")
    return "\r\n".join([f"{method} {target} {version}", *headers]).encode() + b"\r\n\r\n" + body


def _filtered(query_text: str, label: str) -> str:
    query = {key: values[0] for key, values in parse_qs(query_text).items()}
    filters = json.loads(query.get("filters", "{}"))
    # The docker command sends {"a=b": true}, others a list.
    filters["label"] = [*filters.get("label", []), label]
    return urlencode({**query, "filters": json.dumps(filters)})


def _labelled(body: bytes, label: tuple[str, str]) -> bytes:
    config = json.loads(body)
    config["Labels"] = {**(config.get("Labels") or {}), label[0]: label[1]}
    return json.dumps(config).encode()


def main(path: str, engine_socket: str, label: str) -> None:
    key, _, value = label.partition("=")
    with door(Path(path), engine_socket, (key, value)):
        print("open", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
