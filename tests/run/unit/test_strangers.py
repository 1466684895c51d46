"""What answers at a service's address is the service, or the step says who it is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from console.common.clock import SystemClock
from console.host import ports
from console.host.process import ProcessSpec
from console.runner.context import Attempt, StepFailed
from console.runner.services import RunServices, refuse_stranger
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.run.unit.conftest import Bench
from tests.waiting import until

SERVER = f"{sys.executable} -S {STANDIN}"
ASIDE = "setsid {} >/dev/null & sleep 600"
"""A start script whose server has a session of its own."""


@pytest.mark.parametrize(
    ("script", "is_stranger"), [("exec {}", False), (ASIDE, False), ("sleep 600", True)]
)
def test_who_answers_is_the_service_or_named(bench: Bench, script: str, is_stranger: bool) -> None:
    bench.context.clock = SystemClock()
    (bench.context.run.path / "logs").mkdir()
    port = free_port()
    with closing(RunServices(bench.context)) as services:
        bench.context.services = services
        runs = ProcessSpec(("sh", "-c", script.format(f"{SERVER} {port}")))
        spec = replace(services.specs["cand"], runs=runs, url=f"http://127.0.0.1:{port}")
        services.use(spec)
        services.start("cand", Attempt(bench.context, "up", 1, 60.0))
        child = subprocess.Popen([*SERVER.split(), str(port)]) if is_stranger else None
        try:
            until(lambda: ports.listener(spec.url), "somebody listens")
            if child is None:
                refuse_stranger(bench.context, "cand")
            else:
                with pytest.raises(StepFailed, match=f"pid {child.pid}, .* and not cand"):
                    refuse_stranger(bench.context, "cand")
        finally:
            services.stop("cand")
            if child is not None:
                child.kill()
                child.wait()
