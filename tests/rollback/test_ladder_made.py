"""The rollback of containers on an engine in this process, whose answers a test can change."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.errors import EngineError
from console.host import process
from console.host.ports import listener
from console.recovery.rollback import context, observe, procedure
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.stages import start, stop, verify
from console.runtime.engine_api import RawEngine
from console.runtime.probe import Health, health
from tests.children import SLEEP
from tests.licences import CANDIDATE
from tests.rollback.conftest import DASH, Stage, run_script, standin
from tests.rollback.test_ladder_engine import Yard, in_this_process
from tests.rollback.test_strangers import known
from tests.runtime.made_engine import MadeEngine, Refused
from tests.waiting import until

AWAY = "engine_away"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(in_this_process(tmp_path, stack))
        base = made.plan.baseline
        identity = made.create_baseline(base.container_name)
        made.plan = replace(made.plan, baseline=replace(base, container_id=identity))
        sealed.write(made.plan, made.plan.rollback_dir / sealed.PLAN)
        yield made


def engine_of(yard: Yard) -> MadeEngine:
    assert isinstance(yard.engine, MadeEngine)
    return yard.engine


@pytest.mark.parametrize("at", ["127.0.0.1", "127.0.1.1", socket.gethostname()])
@pytest.mark.parametrize("loads", [True, False])
def test_in_the_hosts_network_only_its_own_processes_are_the_baseline(
    yard: Yard, tmp_path: Path, loads: bool, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline has not bound its port yet, and another server of the same user has it."""
    base, port = yard.plan.baseline, int(yard.plan.baseline.url.rpartition(":")[2])
    known(socket.gethostname(), "127.0.0.1", monkeypatch)
    yard.remove(base.container_id)
    base = replace(base, url=f"http://{at}:{port}")
    server = standin(port, "--host", "0.0.0.0")
    argv = list(SLEEP) if loads else list(server.argv)
    host = {"NetworkMode": "host"}
    made = engine_of(yard).make(base.container_name, argv, HostConfig=host)
    base = replace(base, container_id=made, ready_timeout_s=2.0 if loads else 60.0)
    yard.plan = replace(yard.plan, baseline=base)

    def inside(identity: str) -> list[int]:
        pid = yard.raw.inspect(identity)["State"]["Pid"]
        return [one.pid for one in process.all_stats() if pid and one.session == pid]

    monkeypatch.setattr(observe, "pids_of_container", inside)
    if not loads:
        assert yard.roll_back().serving, yard.lines
        return
    stranger = process.spawn(server, log=tmp_path / "log", cookie="no")
    try:
        until(lambda: listener(base.url), "it listens")
        assert not yard.roll_back().serving, yard.lines
        assert "restarting" not in str(yard.lines), "it does not get its port back by that"
    finally:
        process.stop_group(*stranger, grace_s=0.0)


@pytest.mark.parametrize("answers", [True, False])
def test_a_container_that_is_published_elsewhere_is_not_what_answers(
    yard: Yard, answers: bool
) -> None:
    """It was made again with another port, and another server of the same user may have the old
    one; a restart, which loads its model again, changes nothing of that."""
    base = yard.plan.baseline
    yard.remove(base.container_id)
    port = int(base.url.rpartition(":")[2])
    argv = list(standin(port).argv) if answers else list(SLEEP)
    ports = {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "1"}]}
    made = engine_of(yard).make(base.container_name, argv, HostConfig={"PortBindings": ports})
    yard.plan = replace(yard.plan, baseline=replace(base, container_id=made, ready_timeout_s=30.0))
    result = yard.roll_back()
    assert (result.serving, "published at 127.0.0.1:1, and not at" in result.detail) == (
        False,
        True,
    )
    assert engine_of(yard).calls.count(f"POST /containers/{made}/start") == 1, yard.lines


@pytest.mark.parametrize("runs", [True, False])
def test_a_container_that_the_engine_cannot_look_at_keeps_none_of_the_others(
    yard: Yard, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its layer is lost, for example; the kernel still knows whether it runs."""
    broken, labelled, recorded = yard.candidate(""), yard.candidate(), yard.candidate("")
    yard.record("broken", broken)
    yard.record("cand", recorded)
    if not runs:
        yard.raw.stop(CANDIDATE, broken, 0.0)

    def answer(call: str) -> None:
        if call == f"GET /containers/{broken}/json":
            raise Refused(500, "RWLayer of container is unexpectedly nil")

    def inside(identity: str) -> list[int]:
        return [os.getppid()] if runs and identity == broken else []

    engine_of(yard).answer = answer
    monkeypatch.setattr(stop, "pids_of_container", inside)
    monkeypatch.setattr(stop, "GONE_S", 0.5)
    monkeypatch.setattr(stop, "kill_wait_s", lambda holding: 0.0)
    yard.roll_back()
    engine_of(yard).answer = lambda call: None
    assert [yard.up(one) for one in (broken, labelled, recorded)] == [False] * 3, yard.lines
    assert any("nil" in one for one in yard.said("stop", "note")), yard.lines


def test_an_engine_that_is_closed_to_this_user_is_not_waited_for_as_for_one_that_is_away(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(engine: RawEngine, seconds: float) -> socket.socket:
        raise PermissionError(13, "Permission denied")

    def no_command(*_: object) -> str:
        raise EngineError("docker cannot be run")

    yard.record("cand", yard.candidate())
    monkeypatch.setattr(RawEngine, "_dial", closed)
    monkeypatch.setattr(context.RollbackContext, "command", no_command)
    for module in (start, stop):
        monkeypatch.setattr(module, "ENGINE_RETRY_S", 0.05)
    monkeypatch.setattr(context, "DENIED_S", 0.2)
    monkeypatch.setattr(verify, "FAILED_S", 0.1)
    monkeypatch.setattr(stop, "ENGINE_WAIT_S", 1e6)
    monkeypatch.setattr(context, "ENGINE_WAIT_S", 1e6)
    result = yard.roll_back()  # which would never end if it waited as for one that is away
    assert not result.serving
    for stage in ("stop", "start"):
        notes = [line for line in yard.said(stage, "note") if "asking again" in line]
        assert "the docker group, or root, may use it" in notes[0]


def test_a_moment_in_which_the_engine_is_closed_ends_no_wait(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is restarted: its socket is there before its rights are."""
    dial, calls = RawEngine._dial, list[float]()

    def opens(engine: RawEngine, seconds: float) -> socket.socket:
        calls.append(seconds)
        if len(calls) % 3 == 1 and len(calls) < 60:
            raise PermissionError(13, "Permission denied")
        if len(calls) < 60:
            raise ConnectionRefusedError
        return dial(engine, seconds)

    yard.record("cand", yard.candidate())
    monkeypatch.setattr(RawEngine, "_dial", opens)
    monkeypatch.setattr(context, "DENIED_S", 0.2)
    for module in (start, stop):
        monkeypatch.setattr(module, "ENGINE_RETRY_S", 0.05)
    assert yard.roll_back().serving, yard.lines


@pytest.mark.parametrize("is_there", [True, False])
def test_the_container_whose_network_the_baseline_joins_is_started_first(
    yard: Yard, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "ENGINE_RETRY_S", 0.05)
    base, engine = yard.plan.baseline, engine_of(yard)
    yard.remove(base.container_id)
    port = int(base.url.rpartition(":")[2])
    other = engine.make("sidecar", list(SLEEP))
    if not is_there:
        yard.remove(other)
    joins = {"NetworkMode": f"container:{other}"}
    made = engine.make(base.container_name, list(standin(port).argv), HostConfig=joins)
    yard.plan = replace(yard.plan, baseline=replace(base, container_id=made))

    def answer(call: str) -> None:
        if call == f"POST /containers/{made}/start" and not (is_there and yard.up(other)):
            raise Refused(409, f"cannot join network of a non running container: {other}")

    engine.answer = answer
    result = yard.roll_back()
    assert result.serving is is_there, yard.lines
    gone = f"container {other[:12]}, whose network the baseline joins, is gone"
    assert (gone in result.detail) is not is_there


def test_a_docker_command_without_compose_is_named(yard: Yard, tmp_path: Path) -> None:
    base = yard.plan.baseline
    yard.remove(base.container_id)
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho \"docker: 'compose' is not a docker command.\" >&2; exit 1")
    docker.chmod(0o755)
    argv = (str(docker), "compose", "-f", str(tmp_path / "compose.yaml"), "up", "-d", "base")
    yard.plan = replace(yard.plan, baseline=replace(base, compose_argv=argv))
    result = yard.roll_back()
    assert not result.serving
    assert "Docker Compose is missing" in result.detail, yard.lines


def test_a_paused_baseline_goes_on_with_what_it_has_loaded(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "SLOW_S", 0.2)  # it answers nothing as long as it is paused
    base = yard.plan.baseline
    yard.raw.start(base.container_id)
    until(lambda: health(base.url, "/health")[0] is Health.SERVING, "it answers")
    begun = yard.raw.inspect(base.container_id)["State"]["Pid"]
    engine_of(yard).route("POST", f"/containers/{base.container_id}/pause", {}, None)
    result = yard.roll_back()
    assert result.serving, yard.lines
    assert not result.nothing_to_do
    assert yard.raw.inspect(base.container_id)["State"]["Pid"] == begun


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_the_script_unpauses_a_paused_baseline(stage: Stage) -> None:
    """A stand-in for the docker command: a paused container cannot be started."""
    server, tools = (
        stage.spawn(list(standin(int(stage.plan.baseline.url.rpartition(":")[2])).argv), "no"),
        stage.root / "bin",
    )
    until(lambda: health(stage.plan.baseline.url, "/health")[0] is Health.SERVING, "it answers")
    process.send(*server, signal.SIGSTOP)
    tools.mkdir()
    (tools / "docker").write_text(
        f'#!/bin/sh\npaused=true; [ ! -e {tools}/on ] || paused=false\ncase "$*" in\n'
        f'*.State.Running*) echo "true $paused false {server[0]} then" ;;\n'
        f"unpause*) : >{tools}/on; kill -s CONT {server[0]} ;;\nstart*) exit 1 ;;\nesac\n"
    )
    (tools / "docker").chmod(0o755)
    stage.base(kind="container", container_id="a" * 64, ready_timeout_s=1.0)
    done = run_script(stage, f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_candidate_that_hangs_inside_the_engine_does_not_keep_the_baseline_down(
    yard: Yard, runs: bool, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start hangs, and so does every call that names it; all others are answered."""
    hung = yard.candidate("")
    yard.record("cand", hung)
    pid = yard.raw.inspect(hung)["State"]["Pid"]
    released = threading.Event()

    def answer(call: str) -> None:
        if f"/{hung}/" in call:
            released.wait(250)

    def inside(identity: str) -> list[int]:
        return [pid] if runs and identity == hung and process.stat(pid) else []

    if is_late:  # the engine was away in the stage before
        monkeypatch.setattr(procedure.stop, "stop", lambda context: setattr(context, AWAY, True))
    monkeypatch.setattr(stop, "pids_of_container", inside)
    engine_of(yard).answer = answer
    begun = time.monotonic()
    try:
        assert yard.roll_back().serving, yard.lines
    finally:
        released.set()
    assert time.monotonic() - begun < 120
    words = "it does not run now, but may still start"
    assert any(words in one for one in yard.said("stop", "failed")), yard.lines
    assert yard.up(hung) is not runs
