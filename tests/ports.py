"""Ports of loopback for servers that a test starts."""

import contextlib
import os
import re
import secrets
import socket

WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
PORTS = range(20_000, 32_768)[WORKER::WORKERS]
"""Below those that the kernel gives to connections, so that a server that is started anew finds its
own; and others for each worker, since a port is chosen some time before it is used."""
_given: set[int] = set()


def free_port() -> int:
    """A port nobody listens on, and each one once a session."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
