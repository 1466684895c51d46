"""What a host tells of itself, over and over from one process."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.frontends.cli.fleet.state import HostState
from console.host.gpu.inventory import Asked
from tests.fleet.far import SITE, Far, documented, new_run
from tests.ports import free_port


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked(SystemClock())
    yield made
    made.close()


def test_each_answer_is_of_now(host: Far, asked: Asked, tmp_path: Path) -> None:
    port, site = free_port(), tmp_path / "site.yaml"
    site.write_text(SITE.replace("127.0.0.1:1", f"127.0.0.1:{port}"))
    state = HostState(str(site), asked)
    first = state.look()
    assert (first["baseline"]["word"], first["run"]) == ("stopped", None)
    assert set(first) <= documented("how-to/fleet.md", "state")
    run = new_run()
    with HTTPServer(("127.0.0.1", port), Healthy) as server:
        threading.Thread(target=server.serve_forever).start()
        second = state.look()
        server.shutdown()
    assert second["baseline"]["word"] == "serving"
    assert second["run"]["id"] == run.id
    assert state.look()["baseline"]["word"] == "stopped"
