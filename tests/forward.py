"""A program that passes TCP connections on and that nothing is known of, as a proxy is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from console.host.ports import listener
from tests.children import running
from tests.waiting import until

SCRIPT = """
import socket, sys, threading
outer, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def pipe(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
door = socket.create_server(("127.0.0.1", outer))
while True:
    near, _ = door.accept()
    far = socket.create_connection((host, port))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pipe, args=pair, daemon=True).start()
"""


@contextlib.contextmanager
def forward(outer: int, port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Passes connections to the port `outer` of this machine on to `host` and `port`."""
    argv = [sys.executable, "-c", SCRIPT, str(outer), host, str(port)]
    with running(argv):
        url = f"http://127.0.0.1:{outer}"
        until(lambda: listener(url) is not None, "the forward listens")
        yield url
