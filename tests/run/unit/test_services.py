"""Services of a run as real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.host import cgroup, process
from console.host.process import ProcessSpec
from console.runner.context import Attempt
from console.runner.services import RunServices
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import Bench
from tests.services.test_enclosure import ESCAPE
from tests.waiting import until


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


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a control group")
def test_who_left_the_session_ends_with_a_service_of_another_login(
    services: RunServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ProcessSpec((sys.executable, "-S", "-c", ESCAPE))
    services.use(replace(services.specs["cand"], runs=runs))
    handle = services.start("cand", Attempt(services.context, "up", 1, 60.0))
    group = cgroup.of_process(handle.pid, handle.start)

    def away() -> set[int]:
        near = process.members(handle.pid, handle.start)
        return set(cgroup.pids(group)) - {one.pid for one in near}

    until(away, "one of them is away")
    # a `resume` from a second login: its own group is another one
    monkeypatch.setattr(cgroup, "_home", lambda: "/sys/fs/cgroup/elsewhere")
    assert services.stop("cand")
    until(lambda: not cgroup.pids(group), "nobody is left")
