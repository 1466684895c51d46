"""A server whose parent has died, and whose workers go on: it is the baseline, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from console.host import ports, process
from console.host.process import BASELINE_COOKIE, COOKIE, ProcessSpec
from tests.rollback.conftest import STANDIN, Stage
from tests.waiting import until


def orphaned(stage: Stage, more: str = "") -> int:
    """The pid of the worker that serves, after the parent that the console started was killed."""
    words = f"{sys.executable} -I -S {STANDIN} {stage.port} & {more} wait"
    stage.base(process=ProcessSpec(("sh", "-c", words)))
    assert stage.roll_back().serving, stage.lines
    base = stage.plan.baseline
    assert base.process is not None
    known = process.known(stage.plan.records_dir, base.name, base.process, BASELINE_COOKIE)
    assert known is not None
    os.kill(known[0], signal.SIGKILL)
    until(lambda: not process.alive(*known), "the parent is gone")
    listener = ports.listener(base.url)
    assert listener is not None
    assert listener.pid != known[0]
    return listener.pid


def test_workers_that_serve_are_the_baseline(stage: Stage, restore: Callable[[], None]) -> None:
    worker = orphaned(stage)
    restore()
    assert ports.listener(stage.plan.baseline.url).pid == worker, "it is left as it is"  # type: ignore[union-attr]


def test_a_worker_that_hangs_is_restarted_with_all_of_them(
    stage: Stage, restore: Callable[[], None]
) -> None:
    stage.base(ready_timeout_s=3.0)
    worker = orphaned(stage)
    start = process.start_time(worker)
    assert start is not None
    os.kill(worker, signal.SIGSTOP)
    restore()
    assert not process.alive(worker, start)


def test_what_a_dead_server_left_without_any_socket_is_not_it(stage: Stage) -> None:
    """As a program that copied its log: the baseline is down, and is started."""
    worker = orphaned(stage, "sleep 600 &")
    os.kill(worker, signal.SIGKILL)
    until(lambda: ports.listener(stage.plan.baseline.url) is None, "nothing listens")
    assert stage.roll_back().serving, stage.lines
    details = [str(line.get("detail")) for line in stage.lines if line["rung"] == "start"]
    assert details
    assert not any("runs already" in detail for detail in details), details


@pytest.mark.parametrize("mark", [True, False])
def test_a_worker_without_the_mark_is_a_stranger(stage: Stage, mark: bool) -> None:
    prefix = "" if mark else "env -u OMNI_STEP "
    words = f"{prefix}{sys.executable} -I -S {STANDIN} {stage.port} & wait"
    stage.base(process=ProcessSpec(("sh", "-c", words)))
    assert stage.roll_back().serving, stage.lines
    base = stage.plan.baseline
    assert base.process is not None
    known = process.known(stage.plan.records_dir, base.name, base.process, BASELINE_COOKIE)
    assert known is not None
    os.kill(known[0], signal.SIGKILL)
    until(lambda: not process.alive(*known), "the parent is gone")
    found = process.known(stage.plan.records_dir, base.name, base.process, BASELINE_COOKIE)
    assert (found is not None) is mark


def test_workers_of_a_parent_that_nobody_has_waited_for(
    stage: Stage, restore: Callable[[], None]
) -> None:
    """A parent that is a zombie is as dead as one that is gone."""
    words = f"{sys.executable} -I -S {STANDIN} {stage.port} & wait"
    spec = ProcessSpec(("sh", "-c", words))
    stage.base(process=spec)
    base = stage.plan.baseline
    mark, value = process.mark(stage.plan.records_dir, base.name, spec)
    marks = {mark: value, COOKIE: BASELINE_COOKIE}
    parent = subprocess.Popen(spec.argv, start_new_session=True, env={**os.environ, **marks})
    try:
        stage.until_it_is()
        listener = ports.listener(base.url)
        assert listener is not None
        stage.groups.append((listener.pid, process.start_time(listener.pid) or 0))
        parent.kill()
        until(lambda: process.is_gone(parent.pid), "the parent is dead")
        assert process.stat(parent.pid) is not None, "nobody has waited for it"
        restore()
        assert ports.listener(base.url) == listener, "it is left as it is"
    finally:
        parent.wait()
