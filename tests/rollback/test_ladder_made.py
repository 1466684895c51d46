"""The ladder and containers on an engine in this process, which says what a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from console.host import process
from console.host.ports import listener
from console.recovery.rollback import observe
from tests.rollback.conftest import standin
from tests.rollback.test_ladder_engine import Yard, in_this_process
from tests.services.made_engine import MadeEngine
from tests.waiting import until


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(in_this_process(tmp_path, stack))
        base = made.plan.baseline
        identity = made.create_baseline(base.container_name)
        made.plan = replace(made.plan, baseline=replace(base, container_id=identity))
        yield made


def engine_of(yard: Yard) -> MadeEngine:
    assert isinstance(yard.engine, MadeEngine)
    return yard.engine


@pytest.mark.parametrize("loads", [True, False])
def test_in_the_hosts_network_only_its_own_processes_are_the_baseline(
    yard: Yard, tmp_path: Path, loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not bound its port yet, and a server of the user's own has it."""
    base, port = yard.plan.baseline, int(yard.plan.baseline.url.rpartition(":")[2])
    yard.remove(base.container_id)
    argv = ["sleep", "600"] if loads else list(standin(port).argv)
    host = {"NetworkMode": "host"}
    made = engine_of(yard).make(base.container_name, argv, HostConfig=host)
    base = replace(base, container_id=made, ready_timeout_s=2.0)
    yard.plan = replace(yard.plan, baseline=base)

    def inside(identity: str) -> list[int]:
        pid = yard.raw.inspect(identity)["State"]["Pid"]
        return [one.pid for one in process.all_stats() if pid and one.session == pid]

    monkeypatch.setattr(observe, "pids_of_container", inside)
    if not loads:
        assert yard.climb().serving, yard.lines
        return
    stranger = process.spawn(standin(port), log=tmp_path / "log", cookie="no")
    try:
        until(lambda: listener(base.url), "it listens")
        assert not yard.climb().serving, yard.lines
    finally:
        process.stop_group(*stranger, grace_s=0.0)
