"""What answers at a service's address is the service, or the step says who it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.host import ports
from console.host.process import ProcessSpec
from console.runner.context import Attempt, StepFailed
from console.runner.services import RunServices, refuse_stranger
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.run.unit.conftest import Bench, MakePlan
from tests.waiting import until

SERVER = f"{sys.executable} -S {STANDIN}"
ASIDE = "setsid {} >/dev/null & sleep 600"
"""A start script whose server has a session of its own."""


@pytest.fixture
def services(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunServices]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bench = Bench(tmp_path, plan("{id: up, service: {start: cand}}"), monkeypatch)
    bench.context.clock = SystemClock()
    (bench.context.run.path / "logs").mkdir()
    made = bench.context.services = RunServices(bench.context)
    yield made
    for name in list(made.handles):
        made.stop(name)
    made.close()
    bench.close()


@pytest.mark.parametrize(
    ("script", "stranger"), [("exec {}", False), (ASIDE, False), ("sleep 600", True)]
)
def test_who_answers_is_the_service_or_named(
    services: RunServices, script: str, stranger: bool
) -> None:
    port = free_port()
    runs = ProcessSpec(("sh", "-c", script.format(f"{SERVER} {port}")))
    spec = replace(services.specs["cand"], runs=runs, url=f"http://127.0.0.1:{port}")
    services.use(spec)
    services.start("cand", Attempt(services.context, "up", 1, 60.0))
    child = subprocess.Popen([*SERVER.split(), str(port)]) if stranger else None
    try:
        until(lambda: ports.listener(spec.url), "somebody listens")
        if child is None:
            refuse_stranger(services.context, "cand")
        else:
            with pytest.raises(StepFailed, match=f"pid {child.pid}, .* and not cand"):
                refuse_stranger(services.context, "cand")
    finally:
        if child is not None:
            child.kill()
            child.wait()
