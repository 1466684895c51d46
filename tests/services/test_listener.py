"""Who listens on a port, with real sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from console.host.ports import listener


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_process_that_listens_is_found(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        found = listener(f"http://localhost:{port}/v1")
    assert found is not None
    assert found.pid == os.getpid()
    assert "python" in found.words


def test_nobody_and_another_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert listener(url.replace("127.0.0.1", "10.1.2.3")) is None
        assert listener(url, tmp_path) is None, "a system without /proc"
    assert listener(url) is None
    assert listener("http://127.0.0.1:99999999") is None
