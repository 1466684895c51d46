"""A baseline that ends each time its engine or systemd starts it again is down, not loading."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.host import process, units
from console.host.licence import Licence, Reason, refusal
from console.host.process import ProcessSpec
from console.host.units import UnitSpec, UnitState
from console.recovery.rollback import look, observe
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.context import RollbackContext, log_path
from console.recovery.rollback.look import Looker, judge
from console.recovery.rollback.progress import Report, new_trigger
from console.recovery.rollback.stages.start import Baseline
from console.runtime.engine_api import RawEngine
from tests.ports import free_port
from tests.rollback.conftest import DASH, Stage, run_script, standin
from tests.rollback.test_ladder_engine import Yard, in_this_process, on_a_real_one
from tests.rollback.test_ladder_limits import context_of
from tests.runtime.made_engine import MadeEngine
from tests.testbed.engine import Engine
from tests.waiting import until

NOW = 1_800_000_000.0


def at(seconds_ago: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW - seconds_ago)) + ".123456789Z"


def container(restarts: object, started_ago: float, **state: Any) -> dict[str, Any]:
    """What Docker tells of a container that it has started again `restarts` times."""
    state = {"Running": True, "StartedAt": at(started_ago), "ExitCode": 0} | state
    return {"Name": "/llm", "RestartCount": restarts, "State": state}


@pytest.mark.parametrize(
    ("container_json", "word", "detail"),
    [
        (container(0, 5), Word.LOADING, "container is up"),
        (container(1, 5), Word.LOADING, "container is up (its engine started it again 1 time: "
                                        "docker logs llm)"),
        (container(3, 5), Word.DOWN, "container ends again and again (its engine started it again "
                                     "3 times: docker logs llm)"),
        (container(3, 600), Word.LOADING, "container is up (its engine started it again 3 times: "
                                          "docker logs llm)"),
        (container("x", 5), Word.LOADING, "container is up"),
        (container(2, 5, Running=False, Restarting=True, ExitCode=139), Word.DOWN,
         "container ended (139), and is to be started again (its engine started it again 2 times: "
         "docker logs llm)"),
        (container(0, 5, Restarting=True, ExitCode=1), Word.DOWN,
         "container ended (1), and is to be started again"),
    ],
)  # fmt: skip
def test_a_container_that_ends_again_and_again_is_down(
    container_json: dict[str, Any], word: Word, detail: str
) -> None:
    assert judge(container_json, NOW) == (word, detail)


@pytest.mark.parametrize(
    ("state", "word", "detail"),
    [
        (UnitState("loaded", "activating", 7, sub="start"), Word.LOADING, "unit llm is activating"),
        (UnitState("loaded", "active", 7, sub="running"), Word.LOADING, "unit llm is active"),
        (UnitState("loaded", "activating", sub="auto-restart"), Word.DOWN,
         "unit llm is activating, auto-restart"),
        (UnitState("loaded", "deactivating", 7, sub="stop-sigterm"), Word.DOWN,
         "unit llm is deactivating, stop-sigterm"),
        (UnitState("loaded", "failed", sub="failed"), Word.DOWN, "unit llm is failed"),
    ],
)  # fmt: skip
def test_a_unit_that_has_ended_or_is_being_stopped_does_not_load(
    state: UnitState, word: Word, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "look", lambda _: state)
    assert look._unit(UnitSpec("llm")) == (word, detail)


@pytest.fixture
def looping(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    """A baseline that a real engine starts again each time it ends; a wait for it takes an hour."""
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(on_a_real_one(request, tmp_path, stack))
        assert isinstance(made.engine, Engine)
        base = made.plan.baseline
        argv = ["sh", "-c", "echo CUDA error: out of memory; exit 3"]
        identity = made.create(base.container_name, argv, {})
        made.engine.run("update", "--restart", "always", identity)
        base = replace(base, container_id=identity, ready_timeout_s=3600.0)
        made.plan = replace(made.plan, site_name="ws", baseline=base)
        sealed.write(made.plan, made.plan.rollback_dir / sealed.PLAN)
        yield made


@pytest.mark.engine
@pytest.mark.alone
def test_a_rollback_does_not_wait_for_one_for_ever(looping: Yard) -> None:
    """It sees four starts of it, starts it anew, and sees four more."""
    result = looping.roll_back()
    assert not result.serving
    assert "its container engine starts it again and again" in result.detail, result
    assert "out of memory" in result.detail, result
    until(lambda: Looker().look(looping.plan).word is Word.DOWN, "it is down, not loading")


def test_one_that_has_ended_and_is_not_reaped_yet_is_started_again(stage: Stage) -> None:
    """Its parent does not wait for it, as the first process of many containers."""
    words = ["sh", "-c", 'sleep 600 & echo $! >"$0"; exec sleep 601', str(stage.root / "child")]
    parent = stage.spawn(words)
    until(lambda: (stage.root / "child").exists() and process.members(*parent), "it has a child")
    until(lambda: (stage.root / "child").read_text().strip(), "its pid is known")
    child = int((stage.root / "child").read_text())
    start = process.start_time(child) or 0
    licence = Licence(Reason.BASELINE, "ws")
    assert refusal(licence, child, start) == "nothing records it as the baseline of this site"
    os.kill(child, signal.SIGKILL)
    until(lambda: not process.alive(child, start), "it is a zombie")
    assert process.stat(child) is not None
    assert refusal(licence, child, start) == ""


def test_a_zombie_whose_children_live_is_still_left_alone(stage: Stage) -> None:
    body = "import os, time; os.setsid(); os.fork() and os._exit(0); time.sleep(600)"
    stage.spawn(["sh", "-c", f'python3 -c "{body}" & echo $! >"$0"; exec sleep 601',
                 str(stage.root / "child")])  # fmt: skip
    until(lambda: (stage.root / "child").exists() and (stage.root / "child").read_text().strip(),
          "its pid is known")  # fmt: skip
    leader = int((stage.root / "child").read_text())
    start = process.start_time(leader) or 0
    until(lambda: not process.alive(leader, start), "the leader is a zombie")
    try:
        assert process.members(leader, start), "whom it has started lives"
        why = refusal(Licence(Reason.BASELINE, "ws"), leader, start)
        assert why == "nothing records it as the baseline of this site"
    finally:
        for member in process.members(leader, start):
            os.kill(member.pid, signal.SIGKILL)


def test_what_an_earlier_server_wrote_is_not_why_this_one_ended(stage: Stage) -> None:
    """A later rollback finds it running, and sees it end: the log begins where its record says."""
    stage.base(process=ProcessSpec(("sleep", "613")))
    log = log_path(stage.plan)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("ggml: cudaMalloc failed: out of memory\n")
    Baseline(context_of(stage)).start()
    later = Baseline(context_of(stage))
    assert "runs already" in later.start()
    assert later.last_lines() == []
    with log.open("a") as file:
        file.write("bind: Address already in use\n")
    assert later.last_lines() == ["bind: Address already in use"]
    log.write_text("rotated\n")
    assert later.last_lines() == ["rotated"]


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_the_script_records_where_its_log_begins(stage: Stage) -> None:
    log = log_path(stage.plan)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("before\n")
    stage.seal()
    assert run_script(stage).returncode == 0
    pid, start = stage.running()
    name = stage.plan.baseline.name
    assert process.log_begin_of(stage.plan.records_dir, name, pid, start) == len("before\n")


def test_nobody_else_answers_for_a_container_that_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the host's network its own socket takes connections, and nobody answers them."""
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(in_this_process(tmp_path, stack))
        assert isinstance(made.engine, MadeEngine)
        made.raw.start(made.create_baseline(made.plan.baseline.container_name))
        made.plan = replace(made.plan, site_name="ws", run_id="", run_dir="")
        until(lambda: Looker().look(made.plan).word is Word.SERVING, "the baseline serves")
        name = made.plan.baseline.container_name
        pid = made.raw.inspect(name)["State"]["Pid"]
        made.engine.route("POST", f"/containers/{name}/pause", {}, None)
        in_host = {"HostConfig": {"NetworkMode": "host"}}
        of_engine = RawEngine.inspect
        monkeypatch.setattr(
            RawEngine, "inspect", lambda engine, word: of_engine(engine, word) | in_host
        )
        monkeypatch.setattr(observe.Observed, "_container_pids", lambda _: {pid})
        assert observe.somebody_else(made.plan) == ""
        assert look.paused_words(made.plan) == f"container paused: docker unpause {name}"


@pytest.mark.engine
@pytest.mark.alone
def test_what_an_earlier_life_of_its_container_wrote_is_not_why_it_ended(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Docker keeps one log for all lives of a container."""
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(on_a_real_one(request, tmp_path, stack))
        assert isinstance(made.engine, Engine)
        name = made.plan.baseline.container_name
        body = "if [ ! -e /tmp/was ]; then touch /tmp/was; echo cudaMalloc failed; exit 1; fi; "
        identity = made.create(name, ["sh", "-c", body + "exec sleep 600"], {})
        made.raw.start(identity)
        until(lambda: not made.up(identity), "its first life is over")
        made.raw.start(identity)
        baseline = Baseline(RollbackContext(made.plan, SystemClock(), report(tmp_path), made.raw))
        assert baseline.running()
        assert baseline.last_lines() == []
        assert baseline.last_lines(earlier=True) == ["cudaMalloc failed"]


def report(folder: Path) -> Report:
    clock = SystemClock()
    return Report(folder / "lines", new_trigger(clock), clock, None)


LOOPS = """
case "$*" in
  *.RestartCount*) count=$(($(cat {0} 2>/dev/null || echo 0) + 1)); echo "$count" >{0}
    [ "$count" -lt 3 ] || more=', out of memory'
    echo "$count, exit code 137$more" ;;
  *.State.Running*) echo "false false true 0 $(cat {0})" ;;
esac
"""


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_the_script_does_not_wait_for_one_that_ends_each_time(stage: Stage) -> None:
    """`restart: always`: each look finds it about to be started again."""
    path = stage.tool("docker", LOOPS.format(stage.root / "count"))
    stage.base(
        kind="container", process=None, container_id="a" * 64, container_name="base",
        ready_timeout_s=3600.0,
    )  # fmt: skip
    done = run_script(stage, path)
    assert done.returncode == 7
    words = "its container engine starts it again and again: the baseline ended, exit code 137, "
    assert f"{words}out of memory" in done.stdout


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_the_script_names_the_port_at_which_it_answers(stage: Stage) -> None:
    other = free_port()
    argv = tuple(
        str(other) if word == str(stage.port) else word for word in standin(stage.port).argv
    )
    stage.base(process=ProcessSpec(argv), ready_timeout_s=3.0)
    done = run_script(stage)
    assert done.returncode == 7
    assert f"it answers at port {other}, and the url says port {stage.port}" in done.stdout
