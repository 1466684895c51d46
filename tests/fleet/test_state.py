"""What a host tells of itself, over and over from one process."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.frontends.cli.fleet.state import HostState
from console.host.gpu.inventory import GpuInventory
from console.host.process import ProcessSpec
from console.journal.store import Journal
from console.recovery.rollback import sealed_plan
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from tests.fleet.far import SITE, Far, documented, new_run
from tests.ports import free_port


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def asked() -> Iterator[GpuInventory]:
    made = GpuInventory(SystemClock())
    yield made
    made.close()


def test_each_answer_is_of_now(host: Far, asked: GpuInventory, tmp_path: Path) -> None:
    port, site = free_port(), tmp_path / "site.yaml"
    site.write_text(
        SITE.replace("[cat]", "[./serve.sh]").replace("127.0.0.1:1", f"127.0.0.1:{port}")
    )
    state = HostState(str(site), asked)
    first = state.look()
    assert (first["baseline"]["word"], first["run"]) == ("down", None)
    assert set(first) <= documented("how-to/fleet.md", "state")
    run = new_run()
    with HTTPServer(("127.0.0.1", port), Healthy) as server:
        threading.Thread(target=server.serve_forever).start()
        second = state.look()
        server.shutdown()
    assert second["baseline"]["word"] == "serving"
    assert second["run"]["id"] == run.id
    assert state.look()["baseline"]["word"] == "down"


def test_a_crash_beside_the_outage_of_another_site_is_not_for_this_run(
    host: Far, asked: GpuInventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, site = free_port(), tmp_path / "site.yaml"
    site.write_text(
        SITE.replace("[cat]", "[./serve.sh]").replace("127.0.0.1:1", f"127.0.0.1:{port}")
    )
    monkeypatch.setattr("console.frontends.cli.fleet.state.runner_alive", lambda run: True)
    run = new_run()
    journal = Journal(run.journal)
    journal.append(3.0, "outage", "", 0, {"down": True, "proof": 0.0, "url": ""})
    journal.close()
    for at, for_this_run in ((port, True), (free_port(), False)):
        url = f"http://127.0.0.1:{at}"
        base = Baseline("baseline", "process", url, process=ProcessSpec(("x",)))
        plan = SealedPlan(run.id, str(run.path), base, "dock")
        sealed_plan.write(plan, run.path / sealed_plan.ROLLBACK / sealed_plan.PLAN)
        state = HostState(str(site), asked)
        told = state.look()["baseline"]
        assert (told["word"], told["detail"] == "for this run") == ("down", for_this_run)


def test_a_guard_is_told_of_while_a_run_goes_on_or_where_it_has_acted(
    host: Far, asked: GpuInventory
) -> None:
    state, run = HostState(None, asked), new_run()
    assert state.look()["guard"]["run"] == run.id
    journal = Journal(run.journal)
    journal.append(3.0, "run.state", "", 0, {"state": "rolled_back"})
    journal.append(4.0, "run.finished", "", 0, {})
    journal.close()
    assert state.look()["guard"] is None
    run.guard.mkdir()
    run.breach.write_text(json.dumps({"reason": "RAM below 2.0 GiB", "at": 1.0}))
    assert state.look()["guard"]["alarming"] is True


def test_a_host_without_a_run_imports_nothing_that_tells_of_one() -> None:
    """Ten hosts are ten new processes, and importing is nearly all that each of them does."""
    script = "import sys, console.frontends.cli.fleet.state\nprint(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    for name in ("journal.guard_status", "journal.breach", "runner.control", "runner.slurm.job"):
        assert f"console.{name}" not in loaded
