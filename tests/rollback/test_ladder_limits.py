"""What a rollback leaves alone, and what it survives: kept services, no threads, lost engines."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.common.errors import EngineError, EngineTimeout
from console.host import children, memory, process
from console.host.licence import Licence
from console.host.process import ProcessSpec
from console.journal.lock import ladder_busy
from console.journal.run_dir import RunDir
from console.recovery.rollback import live, trigger
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.context import RollbackContext, run_all
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import PROGRESS_FILE, Report, new_trigger
from console.recovery.rollback.sealed_plan import EngineAddress
from console.recovery.rollback.stages import drain, start, stop, verify
from console.recovery.rollback.stages.start import Baseline
from console.runtime.answers.completion import Completion, prove
from console.runtime.spec import is_of_another, role_label
from tests.clock import FakeClock
from tests.ports import free_port
from tests.rollback.conftest import STANDIN, Stage, standin
from tests.waiting import until


def test_kept_service_outlives_what_the_runner_asks_for(stage: Stage) -> None:
    stage.seal(keep=("helper",))
    helper = stage.recorded("process", "helper")
    candidate = stage.recorded("process", "candidate")
    assert stage.roll_back(emergency=False).serving
    assert process.alive(*helper)
    assert not process.alive(*candidate)
    assert stage.roll_back().serving
    assert not process.alive(*helper), "an emergency ends everything"


def test_a_baseline_that_is_started_once_more_has_a_grace_of_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates here get no grace; the baseline never becomes ready, so it is started twice."""
    graces, stop_group = [], process.stop_group

    def stopped(pid: int, start: int, *, grace_s: float, **more: Any) -> bool:
        graces.append(grace_s)
        return stop_group(pid, start, grace_s=grace_s, **more)

    monkeypatch.setattr(process, "stop_group", stopped)
    monkeypatch.setattr(verify, "LAST_PAUSE_S", 5.0)
    file = stage.root / "lines"
    file.write_text(json.dumps({"status": 503, "error": "Loading model"}))
    loading = standin(stage.port, "--loading", "1000000", "--lines", str(file))
    clock = FakeClock()
    stage.base(process=loading, ready_timeout_s=120.0)
    stage.seal(grace_s=0.0)
    assert not Procedure(stage.plan, clock=clock, trigger=new_trigger(clock)).run().serving
    assert graces == [10.0]


def test_answer_of_somebody_else_is_not_the_baseline(stage: Stage) -> None:
    pid = str(stage.root / "pid")
    dies = ProcessSpec(("sh", "-c", f"echo address already in use; echo $$ > {pid}; exit 1"))
    stage.base(process=dies)
    # It answers 503 at first, so that the baseline is started, and 200 after that.
    words = ("--loading", "1", "--outlive", pid)
    other = stage.spawn([*standin(stage.port, *words).argv], cookie="other")
    until(lambda: _listens(stage.port), "it listens")
    result = stage.roll_back()
    assert not result.serving
    assert process.alive(*other)


def test_one_that_ends_after_its_completion_is_proven_anew(stage: Stage) -> None:
    file = stage.root / "ended"
    stage.base(process=standin(stage.port, "--once", str(file)))
    result = stage.roll_back()
    assert (result.serving, file.exists(), _listens(stage.port)) == (True, True, True), stage.lines
    assert result.tok_s is not None


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_no_thread_left_is_no_obstacle(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    candidate, step = stage.recorded("process", "candidate"), stage.recorded("step", "build")
    stage.seal(engine=EngineAddress(socket=str(stage.root / "none.sock")))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = stage.roll_back()
    monkeypatch.undo()
    assert result.serving, stage.lines
    assert not process.alive(*candidate)
    assert not process.alive(*step)
    assert (stage.plan.rollback_dir / PROGRESS_FILE).read_text().count('"rung": "done"') == 1
    assert run_all([], 1.0)
    stage.close()
    while process._unwatched:  # without a thread, nothing has waited for the started processes
        process._unwatched.pop().wait(60)


def test_error_nobody_foresaw_is_a_result(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(RollbackContext, "__init__", broken)
    result = stage.roll_back()
    assert not result.serving
    assert result.manual


def test_engine_over_the_network_is_asked_with_the_docker_command(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stage.root / "said"
    rows = (
        r"aaa\tcandidate\tcand\t\t\tomni-cand\nbbb\t\t\t\t\tomni-web\n"
        r"ccc\t\t\t\t\trecorded\nddd\toneoff\tx\t\t\tguarded\n"
        r"eee\tcandidate\tcand\t0:another site\t\tomni-cand-2\n"
    )
    body = f'echo "$DOCKER_HOST $*" >>{said}; case "$1" in ps) printf "{rows}" ;; esac'
    monkeypatch.setenv("PATH", stage.tool("docker", body))
    stage.seal(engine=EngineAddress(docker_host="tcp://10.0.0.1:2376"), protected=("guarded",))
    live.append(stage.live, live.Live("container", "cand", container="ccc"))
    assert stage.roll_back().serving
    stops = [line for line in said.read_text().splitlines() if " stop " in line]
    assert stops == ["tcp://10.0.0.1:2376 stop -t 3 aaa ccc"]


BOXED = {"kind": "container", "container_name": "base", "process": None}


def context_of(stage: Stage, **base: Any) -> RollbackContext:
    """Of the plan with this other baseline, which is not sealed."""
    clock = SystemClock()
    report = Report(stage.root / "lines", new_trigger(clock), clock, None)
    plan = replace(stage.plan, baseline=replace(stage.plan.baseline, **base))
    return RollbackContext(plan, clock, report, None)


def test_a_baseline_without_a_mark_owns_no_other_sites_server(stage: Stage) -> None:
    """A container or a unit has none: what a console started for another site is not its own."""
    assert stage.roll_back().serving
    assert stage.running()[0] in context_of(stage).marked()
    assert context_of(stage, **BOXED).marked() == set()


def test_whose_container_it_is() -> None:
    me, other = str(os.getuid()), str(os.getuid() + 1)
    table = {
        "": False, f"{me}:mine": False, f"{me}:another": True,
        f"{other}:mine": os.getuid() != 0, f"{other}:another": True,
    }  # fmt: skip
    assert {owner: is_of_another(owner, "mine") for owner in table} == table


def test_after_a_stop_that_failed_a_baseline_nobody_knows_is_not_believed(stage: Stage) -> None:
    """A candidate answers on the baseline's own port, and the engine is away."""
    stage.spawn([*standin(stage.port).argv], cookie="other")
    until(lambda: _listens(stage.port), "it listens")
    context = context_of(stage, **BOXED)
    baseline = Baseline(context)
    assert baseline.serving(), "as far as known it is the baseline"
    context.fail("stop", "candidate containers could not be looked for")
    assert not baseline.serving()


class Engine:
    """An engine that is away for its first `calls`, and then has one running candidate."""

    path = "/nowhere"

    def __init__(self, calls: int) -> None:
        self.calls, self.said = calls, list[str]()

    def list_containers(self, _: object) -> list[SimpleNamespace]:
        self.calls -= 1
        if self.calls >= 0:
            raise EngineError("the container engine is not running")
        labels = {role_label(): "candidate"}
        return [SimpleNamespace(id="cand", name="cand", labels=labels, image="")]

    def inspect(self, name: str) -> dict[str, Any]:
        return {"Id": name, "State": {"Running": f"stop {name}" not in self.said}}

    def stop(self, _: Licence, name: str, __: float) -> None:
        self.said.append(f"stop {name}")

    def start(self, name: str) -> bool:
        self.said.append(f"start {name}")
        return True


def test_an_engine_that_comes_back_ends_the_candidates_before_the_start(stage: Stage) -> None:
    context, engine = context_of(stage, **BOXED), Engine(2)
    context.clock, context.engine, context.engine_away = FakeClock(), engine, True  # type: ignore[assignment]
    Baseline(context).start()
    assert engine.said == ["stop cand", "start base"]
    assert not context.engine_away


class Dead:
    """An engine that takes connections and answers nothing: each call takes its whole deadline."""

    path, call_s = "/nowhere", 2.0

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.asked = clock, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def hang(*_: object) -> None:
            self.asked += 1
            self.clock.sleep(self.call_s)
            raise EngineTimeout("the container engine does not answer")

        return hang


@pytest.mark.parametrize("kind", ["container", "process"])
def test_a_rollback_waits_once_for_an_engine_that_is_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All stages and the docker command have one deadline; they waited for six minutes."""
    stage.seal(engine=EngineAddress("/nowhere"))
    clock = FakeClock()
    dead, took, begun = Dead(clock), list[float](), clock.monotonic()

    def command(argv: list[str], timeout_s: float, **_: object) -> tuple[int, bytes, bytes]:
        clock.sleep(timeout_s)
        took.append(timeout_s)
        raise subprocess.TimeoutExpired(argv, timeout_s)

    monkeypatch.setattr(children, "run", command)
    monkeypatch.setattr(RollbackContext, "engine_is_missing", lambda *_: False)
    made = context_of(stage, **(BOXED if kind == "container" else {}))
    live.append(stage.live, live.Live("container", "cand", container="cand"))
    made.clock, made.engine = clock, dead  # type: ignore[assignment]
    monkeypatch.setattr(stop, "pids_of_container", lambda _: [os.getpid()])
    stop.stop(made)
    if kind == "process":
        assert clock.monotonic() - begun <= stop.ENGINE_WAIT_S + 2 * dead.call_s
        assert made.stop_failed
        return
    for _ in range(2):  # the second one is a restart
        with pytest.raises(EngineError, match="did not end in time"):
            Baseline(made).start()
    assert clock.monotonic() - begun < 160
    assert dead.asked > 25, "it usually comes back"
    assert took[1:] == [5.0] * (len(took) - 1)


def test_an_engine_that_has_answered_is_waited_for_again(stage: Stage) -> None:
    made = context_of(stage, **BOXED)
    made.clock, made.engine = FakeClock(), Engine(3)  # type: ignore[assignment]
    assert made.engine_left_s() == 120.0
    made.clock.sleep(119.0)
    made.engine_away = True
    made.engine_answers()
    assert (made.engine_left_s(), made.engine_away) == (120.0, False)


def test_what_is_ended_twice_or_in_parts_is_one_candidate(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes are ended without a hung engine, which then stops its container."""
    made, engine = context_of(stage), Engine(3)
    live.append(stage.live, live.Live("container", "cand", container="cand"))
    made.clock, made.engine, lines = FakeClock(), engine, list[dict[str, Any]]()  # type: ignore[assignment]
    made.report._emit = lines.append
    inside = [stage.sleeper(made.plan.run_id) for _ in range(3)]
    pids = {pid for pid, _ in inside}
    monkeypatch.setattr(memory, "container_of", lambda pid: "cand" if pid in pids else "")
    monkeypatch.setattr(stop, "pids_of_container", lambda _: [os.getpid()])
    stop.stop(made)
    assert engine.said == ["stop cand"]
    assert not any(process.alive(*one) for one in inside)
    said = [one["detail"] for one in lines if one["rung"] == "stop" and one["state"] == "ok"]
    assert said == ["1 candidate stopped"]


@pytest.mark.parametrize("held", [True, False])
def test_a_process_baseline_waits_for_the_engine_while_a_container_holds_memory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """Otherwise it does not wait: a baseline that needs no engine must not depend on one."""
    context, engine = context_of(stage), Engine(3)
    live.append(stage.live, live.Live("container", "cand", container="cand"))
    context.clock, context.engine = FakeClock(), engine  # type: ignore[assignment]
    monkeypatch.setattr(stop, "pids_of_container", lambda _: [os.getpid()] if held else [])
    stop.stop(context)
    assert engine.said == (["stop cand"] if held else [])
    assert context.stop_failed is not held


def test_memory_that_is_not_back_is_said(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(stage)
    context.available, context.held = 10 << 30, 300 << 30
    monkeypatch.setattr(drain, "available", lambda: 100 << 30)
    words = "179.8 GiB of the 300.0 GiB that candidates held is not free yet"
    assert words in drain.not_freed(context)
    monkeypatch.setattr(drain, "available", lambda: 290 << 30)
    assert drain.not_freed(context) == ""
    context.available, context.held = 100 << 30, 1 << 30
    monkeypatch.setattr(drain, "available", lambda: 40 << 30)
    words = drain.not_freed(context)  # it used to say "59 GiB of the 1 GiB"
    assert "candidates held 1.0 GiB: another process has taken it; 40.0 GiB" in words


def test_command_that_outlives_sigkill_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    real = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: pids.append(pid))
    with pytest.raises(subprocess.TimeoutExpired):
        children.run(["sleep", "600"], 0.2, env=os.environ)
    real(pids[0], 9)


def test_ladder_that_was_killed_is_not_busy(stage: Stage) -> None:
    run = RunDir(Path(stage.plan.run_dir))
    run.ladder.write_text('{"trigger": "t", "rung": "stop", "state": "begin"}\n')
    assert not ladder_busy(run)
    held = trigger.Lock(stage.plan.rollback_dir)
    assert held.taken()
    assert ladder_busy(run)
    held.close()
    assert not ladder_busy(run)


def test_the_docker_command_goes_by_id_then_by_name(
    stage: Stage, restore: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the command reaches the engine, and the container was created anew under its name."""
    said, server = stage.root / "said", shlex.join(standin(stage.port).argv)
    body = f"""case "$*" in
  "start old"*) echo "$2" >>{said}
    echo "Error response from daemon: No such container: $2" >&2; exit 1 ;;
  "start base") echo "$2" >>{said}
    setsid {server} >/dev/null 2>&1 </dev/null & echo $! >{stage.root}/pid ;;
  "inspect "*" base") echo "true false false 1234 now" ;;
  "inspect "*) exit 1 ;;
esac"""
    monkeypatch.setenv("PATH", stage.tool("docker", body))
    stage.base(kind="container", container_id="old" + "0" * 61, container_name="base")
    stage.seal(engine=EngineAddress(docker_host="tcp://192.0.2.1:2376"))
    try:
        restore()
        assert said.read_text().split() == ["old" + "0" * 61, "base"]
    finally:
        pid = int((stage.root / "pid").read_text())
        stage.groups.append((pid, process.start_time(pid) or 0))


def test_a_no_that_the_docker_command_brings_is_not_taken_for_an_engine_that_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """case "$*" in
  "start "*) echo "Error response from daemon: port is already allocated" >&2; exit 1 ;;
  "inspect "*) exit 1 ;;
esac"""
    monkeypatch.setenv("PATH", stage.tool("docker", body))
    monkeypatch.setattr(start, "ENGINE_RETRY_S", 0.01)
    monkeypatch.setattr(start, "ADDRESS_S", 0.1)  # the port is never free
    monkeypatch.setattr(verify, "FAILED_S", 0.1)
    stage.base(kind="container", container_id="base" + "0" * 60, container_name="base")
    stage.seal(engine=EngineAddress(docker_host="tcp://192.0.2.1:2376"))
    result = stage.roll_back()
    assert not result.serving
    assert "port is already allocated" in result.detail
    assert not any("asking again" in line for line in stage.said("start", "note"))


def test_processes_that_do_not_end_are_no_stopped_candidate(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs in the kernel: the stage says so, and the baseline is started all the same."""
    released = threading.Event()
    monkeypatch.setattr(stop, "kill_wait_s", lambda holding: 0.0)
    monkeypatch.setattr(stop, "_stop_processes", lambda *_: released.wait(60))
    monkeypatch.setattr(stop, "LEEWAY_S", 0.05)
    stage.seal(grace_s=0.0)
    try:
        result = stage.roll_back()
    finally:
        released.set()
    assert result.serving
    [said] = stage.said("stop", "failed")
    assert said.startswith("processes of the run have not ended after")


def test_a_baseline_is_started_as_it_was_sealed(
    stage: Stage, restore: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the program and the environment of the seal, though whoever rolls back has another
    PATH, as under sudo, and a shell that hides the GPUs."""
    tool = stage.root / "opt" / "my-llama-server"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\n"
        f'echo "$PATH ${{CUDA_VISIBLE_DEVICES-unset}} $OMNI_RUN $A" >{stage.root}/env\n'
        f'exec {sys.executable} -S {STANDIN} "$@"\n'
    )
    tool.chmod(0o755)
    spec = ProcessSpec(("my-llama-server", str(free_port())), (("A", "b c"),))
    url = f"http://127.0.0.1:{spec.argv[1]}"
    path = f"{tool.parent}:/usr/bin:/bin"
    sealed_env = (("PATH", path), ("LD_LIBRARY_PATH", "/x"))
    stage.base(process=spec, url=url, program=str(tool), environment=sealed_env)
    assert sealed.read(stage.plan.rollback_dir / sealed.PLAN) == stage.plan
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    restore()
    assert (stage.root / "env").read_text() == f"{path} unset baseline b c\n"
    assert stage.baseline_process() is not None, "it is known by what the site file says"


def test_a_baseline_that_hangs_once_it_is_ready_is_started_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between its health and its completion: two minutes twice would be waited for it."""
    hung: list[tuple[int, int]] = []

    def ask(*url: str, timeout_s: float, **asked: Any) -> Completion:
        found = stage.baseline_process()
        if not hung and found is not None:
            hung.append(found)
            process.send(*found, signal.SIGSTOP)
            assert timeout_s == verify.HUNG_S
            timeout_s = 0.5
        return prove(*url, timeout_s=timeout_s, **asked)

    monkeypatch.setattr(verify, "prove", ask)
    monkeypatch.setattr(start, "RESTART_GRACE_S", 0.0)
    assert stage.roll_back().serving
    assert not process.alive(*hung[0])


def test_a_baseline_that_hangs_after_its_proof_is_started_once_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It froze while it was measured; it has just been started, and yet it does not load."""
    monkeypatch.setattr(verify, "HUNG_S", 1.0)
    monkeypatch.setattr(start, "RESTART_GRACE_S", 0.0)
    frozen: list[tuple[int, int]] = []

    def freeze(line: dict[str, object]) -> None:
        if (line["rung"], line["state"]) == ("serving", "ok") and not frozen:
            frozen.append(stage.running())
            process.send(*frozen[0], signal.SIGSTOP)

    stage.sleeper()
    result = Procedure(stage.plan, emit=freeze).run()
    assert result.serving
    assert result.tok_s is not None
    assert not process.alive(*frozen[0])
    assert stage.running() != frozen[0]
