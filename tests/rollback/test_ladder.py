"""The rollback procedure on real processes: a stand-in baseline, runner, steps and candidates."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from console.common.errors import Exit
from console.host import ports, process
from console.host.ports import owners
from console.host.process import ProcessSpec
from console.host.units import UnitSpec
from console.recovery.rollback import context, live, observe, procedure, restores
from console.recovery.rollback.context import log_path
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import (
    PROGRESS_FILE,
    Result,
    StageName,
    new_trigger,
    read_lines,
)
from console.recovery.rollback.script import write
from console.recovery.rollback.script.write import commands
from console.recovery.rollback.sealed_plan import EngineAddress, Proof
from console.recovery.rollback.stages import drain, load, start, stop, verify
from console.recovery.rollback.trigger import Lock, is_stopped
from console.runtime.engine_api import RawEngine
from console.runtime.loading import Work
from console.runtime.probe import Health, health
from tests.children import SLEEP
from tests.clock import FakeClock
from tests.ports import free_port
from tests.rollback.conftest import DASH, STANDIN, Stage, kill_now, run_script, standin
from tests.waiting import some, until


def test_restores_a_stopped_baseline_and_proves_it(stage: Stage) -> None:
    result = stage.roll_back()
    assert (result.serving, result.exit_code, result.nothing_to_do) == (True, Exit.OK, False)
    assert result.restore_s is not None
    assert result.restore_s > 0
    assert result.tok_s == pytest.approx(50.0)
    stages = list(dict.fromkeys(line["rung"] for line in stage.lines))
    assert stages == [name for name in get_args(StageName) if name in stages]
    proved = {"fence", "stop", "start", "ready", "completion", "serving", "measure", "done"}
    assert proved <= set(stages)
    lines, _ = read_lines(stage.plan.rollback_dir / "ladder.jsonl")
    assert lines == stage.lines
    assert (lines[-1]["rung"], lines[-1]["serving"]) == ("done", True)
    assert all({"trigger", "rung", "state", "at", "t", "detail"} <= set(line) for line in lines)
    before = stage.running()
    stage.lines.clear()
    again = stage.roll_back()
    assert (again.nothing_to_do, again.serving, again.restore_s) == (True, True, None)
    assert stage.said("start", "skipped")
    assert stage.baseline_process() == before
    memory = Path(stage.plan.memory_file)
    assert restores.expected_restore(memory, "baseline") == result.restore_s
    assert len(json.loads(memory.read_text())) == 1
    assert restores.expected_restore(memory, "other") is None


Restore = Callable[[], None]


def test_fence_and_stop(stage: Stage, restore: Restore) -> None:
    stage.seal(protected=("cand",))  # protects a container, not the service of the same name
    base = stage.start_baseline()
    runner = stage.recorded("runner", "runner", stage.plan.run_id)
    strays = [stage.sleeper() for _ in range(3)]
    step, candidate = stage.recorded("step", "build"), stage.recorded("process", "cand")
    stranger, (pid, start) = stage.sleeper("xx"), stage.sleeper("yy")
    for name in ("baseline", "other"):
        stage.record("process", name, base)
    for kind in ("runner", "process"):
        stage.record(kind, "old", (pid, start - 1))
    restore()
    for gone in (runner, step, *strays, candidate):
        assert not process.alive(*gone)
    for kept in (base, stranger, (pid, start)):
        assert process.alive(*kept)


def test_stubborn_candidate_is_killed_with_its_children(stage: Stage, restore: Restore) -> None:
    stage.seal(grace_s=1.0)
    candidate = stage.up("trap '' TERM; sleep 600 & echo up; wait; wait; sleep 600")
    stage.record("process", "cand", candidate)
    assert len(process.members(*candidate)) == 2
    restore()
    assert process.members(*candidate, cookie="no") == []
    assert len(stage.said("stop", "ok")) == bool(stage.lines)


@pytest.mark.parametrize("kind", ["step", "process"])
def test_a_reused_number_is_not_that_of_the_run(stage: Stage, restore: Restore, kind: str) -> None:
    """The number of an entry of long ago is a daemon's by now: its session's leader has ended."""
    body = "sleep 600 & echo $! up; exit 0"
    strange, own = stage.up(body), stage.up(body, stage.plan.run_id)
    until(lambda: not process.alive(*strange) and not process.alive(*own), "both have ended")
    (daemon,) = process.members(*strange, cookie="no")
    stage.record(kind, "old", (strange[0], strange[1] - 5000))
    stage.record(kind, "new", own)
    restore()
    assert process.alive(daemon.pid, daemon.start)
    assert process.members(*own, cookie=stage.plan.run_id) == []


def test_pids_of_another_boot_name_nobody(stage: Stage, restore: Restore) -> None:
    kept, old = stage.sleeper("a"), stage.sleeper("b")
    line = live.Live("process", "x", *kept).line().replace(process.boot_id(), "another") + "\n"
    with stage.live.open("a") as file:
        file.write(line + line.replace('"process"', '"runner"'))
        file.write(f'{{"pid":{old[0]},"start":{old[1]},"kind":"step","name":"without"}}\n')
    ended = stage.recorded("process", "cand")
    restore()
    assert process.alive(*kept)
    assert not process.alive(*old)
    assert not process.alive(*ended)


def test_no_fence_when_the_runner_asks(stage: Stage) -> None:
    runner = stage.recorded("runner", "runner", stage.plan.run_id)
    assert stage.roll_back(emergency=False).serving
    assert process.alive(*runner)
    assert stage.said("fence", "skipped")


def test_nobody_is_asked_to_end_while_ram_is_nearly_full(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "is_scarce", lambda: True)
    stage.seal(grace_s=250.0)  # more than a test may take
    candidate = stage.up("trap '' TERM; echo up; while :; do sleep 600; done")
    stage.record("process", "candidate", candidate)
    assert stage.roll_back().serving
    assert process.members(*candidate, cookie="no") == []
    assert stage.said("stop", "note") == [
        "RAM is nearly full: candidates are killed at once",
        f"ending pid {candidate[0]}, candidate: a candidate of this run",
    ]


def test_ten_minutes_of_loading_is_loading(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "LAST_PAUSE_S", 5.0)
    clock, port = FakeClock(), free_port()
    url, loading = f"http://127.0.0.1:{port}", standin(port, "--loading", "180")
    stage.base(url=url, process=loading, ready_timeout_s=900.0)
    # It listens before the fake clock runs: a start in real time would cost fake minutes.
    running = stage.start_baseline()
    until(lambda: "stand-in listens" in (stage.root / "base.log").read_text())
    until(lambda: health(url)[0] is Health.LOADING, "it loads")
    trigger = new_trigger(clock)
    result = Procedure(stage.plan, clock=clock, trigger=trigger, emit=stage.lines.append).run()
    assert result.serving
    assert 550 < sum(clock.slept) < 650
    assert stage.baseline_process() == running, "loading is no reason to restart"
    far = [line["done"] for line in stage.lines if line["rung"] == "ready" and "done" in line]
    assert far
    assert len(stage.said("ready", "note")) == 1 + len(far)


def test_dying_baseline_is_started_twice_and_its_words_are_shown(stage: Stage) -> None:
    code = "print('CUDA error: \\x1b[31mout of memory'); raise SystemExit(1)"
    stage.base(process=ProcessSpec((sys.executable, "-c", code)))
    result = stage.roll_back()
    assert not result.serving
    assert "CUDA error: out of memory" in result.detail
    assert (stage.root / "base.log").read_text().count("CUDA error") == 2
    for word in ("setsid nohup", "/health"):
        assert any(word in command for command in result.manual)


def test_restore_memory_keeps_twenty_and_takes_the_median_of_five(tmp_path: Path) -> None:
    memory = tmp_path / "restore.json"
    for seconds in range(30):
        restores.remember_restore(memory, "base", float(seconds), 0.0)
    assert len(json.loads(memory.read_text())) == 20
    assert restores.expected_restore(memory, "base") == 27.0


def test_two_at_once_share_one_ladder(stage: Stage) -> None:
    results: list[Result] = []
    lines: list[list[dict[str, object]]] = [[], []]
    both = threading.Barrier(2)

    def go(at: int) -> None:
        def emit(line: dict[str, object]) -> None:
            if not lines[at]:
                both.wait(60)  # the first begins no stage before the second one follows it
            lines[at].append(line)

        results.append(Procedure(stage.plan, emit=emit).run())

    threads = [threading.Thread(target=go, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [r.serving for r in results] == [True, True]
    assert results[0] == results[1]
    assert len({line["trigger"] for part in lines for line in part}) == 1
    assert (stage.root / "base.log").read_text().count("stand-in listens") == 1


def test_follower_climbs_when_the_first_one_dies(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback that is killed half way leaves no final line; the second one takes over."""
    code = (
        "import sys, time, fcntl, os\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    lock = stage.plan.rollback_dir / "lock"
    holder = stage.spawn([sys.executable, "-c", code, str(lock)], cookie="holder")
    stage.until_said("held")
    results: list[Result] = []
    tries, taken = list[bool](), Lock.taken

    def tried(lock: Lock) -> bool:
        tries.append(taken(lock))
        return tries[-1]

    monkeypatch.setattr(Lock, "taken", tried)
    thread = threading.Thread(target=lambda: results.append(stage.roll_back()))
    thread.start()
    until(lambda: len(tries) > 2, "it tries again")
    assert (any(tries), stage.lines) == (False, [])
    process.send(*holder, signal.SIGKILL)
    thread.join(60)
    assert results
    assert results[0].serving


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_a_lock_that_a_stopped_script_holds_is_known_as_such(stage: Stage) -> None:
    """The kernel names the `flock` command, which has ended, as the holder of its lock."""
    path, made = (
        stage.tool("curl", "exec sleep 600"),
        write.write(stage.plan, stage.plan.rollback_dir),
    )
    pid, _ = stage.spawn(["env", f"PATH={path}", str(DASH), str(made)], cookie="no")
    lock = Lock(stage.plan.rollback_dir)
    stage.until_said("stop")
    assert not lock.taken()
    assert not lock.holder_is_stopped()
    # The shell that was called only waits for the one that restores.
    [pid] = [one.pid for one in process.all_stats() if one.parent == pid]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid), "it is stopped, and what it has started goes on")
    assert lock.holder_is_stopped()
    os.kill(pid, signal.SIGCONT)
    until(lambda: not lock.holder_is_stopped(), "it goes on")
    lock.close()


@pytest.mark.parametrize("emergency", [True, False])
def test_the_runners_own_climb_is_no_answer_to_an_emergency(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, emergency: bool
) -> None:
    """It ends no runner, so the runner might go on after an emergency was answered with 0."""
    runner, results, taken = stage.recorded("runner", "runner"), list[Result](), Lock.taken
    path, tries = stage.plan.rollback_dir / PROGRESS_FILE, list[int]()
    line = {"trigger": "runner-1", "rung": "start", "state": "begin"}
    lock = Lock(stage.plan.rollback_dir)
    assert lock.taken()
    path.write_text(json.dumps(line) + "\n")
    monkeypatch.setattr(Lock, "taken", lambda lock: tries.append(1) or taken(lock))
    thread = threading.Thread(target=lambda: results.append(stage.roll_back(emergency)))
    thread.start()
    until(lambda: len(tries) > 2, "it follows")
    with path.open("a") as file:
        file.write(json.dumps({**line, "rung": "done", "state": "ok", "serving": True}) + "\n")
    if not emergency:
        thread.join(60)
    lock.close()
    thread.join(60)
    assert [one.serving for one in results] == [True]
    assert process.alive(*runner) is not emergency
    assert (stage.baseline_process() is not None) is emergency


def test_read_only_run_directory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can write everywhere, so this test refuses where the files are opened."""
    real = os.open

    def refuse(path: object, flags: int, *rest: object, **more: object) -> int:
        inside = str(path).startswith(stage.plan.run_dir)
        if inside and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    result = stage.roll_back()
    monkeypatch.undo()
    assert result.serving
    assert stage.lines[-1]["rung"] == "done"
    assert not (stage.plan.rollback_dir / "ladder.jsonl").exists()


def test_full_disk_costs_the_lines_only(stage: Stage) -> None:
    os.symlink("/dev/full", stage.plan.rollback_dir / "ladder.jsonl")
    assert stage.roll_back().serving
    assert stage.lines[-1]["rung"] == "done"


def test_hung_engine_is_named_early_and_the_process_baseline_comes_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedure, "ENGINE_REPORT_S", 0.2)
    monkeypatch.setattr(context, "RawEngine", lambda path: RawEngine(path, 1.2))
    path = str(stage.root / "hung.sock")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen(8)
        stage.seal(engine=EngineAddress(socket=path))
        candidate = stage.sleeper()
        stage.record("process", "candidate", candidate)
        result = stage.roll_back()
    assert result.serving
    assert not process.alive(*candidate)
    named = [x["detail"] for x in stage.lines if "did not answer" in x["detail"]]
    assert "ping: nothing" in named[0]
    assert "within 0.20 s" in named[0], "before the stage that needs it has waited"
    assert "no engine answers" in stage.said("stop", "failed")[0]


def test_absent_engine_is_no_failure_when_nothing_needs_it(stage: Stage) -> None:
    stage.seal(engine=EngineAddress(socket=str(stage.root / "none.sock")))
    result = stage.roll_back()
    assert result.serving
    assert stage.said("stop", "failed") == []


def test_what_breaks_costs_itself_only(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("boom")

    assert Procedure(stage.plan, emit=broken).run().serving
    monkeypatch.setattr(stop, "stop", broken)
    result = stage.roll_back()
    assert result.serving
    assert stage.said("stop", "failed") == ["RuntimeError: boom"]
    assert "boom" in result.detail


def test_finish_command_runs_detached_after_an_emergency_and_files_stay(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = stage.root / "finished"
    for name in ("WANTED_TOKEN", "OTHER_TOKEN"):
        monkeypatch.setenv(name, "x")
    code = "import os,sys; own = [n for n in os.environ if 'TOKEN' in n]; "
    code += "open(sys.argv[1], 'w').write(f'{os.getsid(0) == os.getpid()} {own}')"
    stage.seal(
        finish_argv=(sys.executable, "-c", code, str(mark)), finish_env=("WANTED_TOKEN", "NONE")
    )
    stage.sleeper()
    before = set(stage.root.rglob("*"))
    stage.roll_back(emergency=False)
    assert not mark.exists()
    stage.roll_back()
    known = live.read(stage.plan.rollback_dir / live.LIVE)
    assert [entry.kind for entry in known if entry.kind == "closer"], "a follower waits for it"
    said = "True ['WANTED_TOKEN']"
    until(lambda: mark.exists() and mark.read_text() == said, "the file is there")
    assert before <= set(stage.root.rglob("*"))


def test_a_baseline_that_hangs_is_ended_and_started_once(
    stage: Stage, restore: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline takes connections and answers none, as it does when a GPU driver hangs."""
    monkeypatch.setattr(verify, "HUNG_S", 1.0)
    monkeypatch.setattr(observe, "SLOW_S", 0.2)
    monkeypatch.setattr(start, "RESTART_GRACE_S", 0.0)
    hung = stage.start_baseline()
    until(lambda: ports.listener(stage.plan.baseline.url), "it listens")
    process.send(*hung, signal.SIGSTOP)
    restore()
    assert not process.alive(*hung)
    assert stage.baseline_process() not in {None, hung}


def by_hand(stage: Stage, **environment: str) -> None:
    """Paste every command that a failed rollback offers into a shell. What hangs answers a question
    in one second no more than in five."""
    for line in commands(stage.plan):
        short = line.replace("sleep 5", "sleep 0.2").replace("-m 5", "-m 1")
        subprocess.run(
            ["sh", "-c", short], check=False, timeout=60,
            env={"PATH": os.environ["PATH"], **environment}, stdout=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.mark.parametrize("way", ["a proxy in between", "no curl", "it hangs"])
def test_the_commands_to_type_by_hand_end_nobody_who_may_serve(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.base(completion=Proof(timeout_s=1.0))
    stage.roll_back()
    before = stage.running()
    environment = {"http_proxy": f"http://127.0.0.1:{free_port()}"}
    if way == "no curl":
        monkeypatch.setattr(write, "_CURL", "no-such-curl")
    elif way == "it hangs":
        process.send(*before, signal.SIGSTOP)
    by_hand(stage, **environment)
    process.send(*before, signal.SIGCONT)
    assert process.alive(*before)
    assert (stage.baseline_process(), len(servers(stage))) == (before, 1)


def servers(stage: Stage) -> list[int]:
    """The pids of every server that is told to use the port of the stage."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if {str(stage.port).encode(), os.fsencode(STANDIN)} <= {*words}:
                found.append(int(path.parent.name))
    return found


def test_the_commands_to_type_by_hand_start_what_is_down(stage: Stage) -> None:
    """A process that was taken over and does not listen yet has no mark: nothing starts beside
    it, as its record says that it lives."""
    stage.base(process=ProcessSpec(SLEEP))
    pid, start = stage.spawn(list(SLEEP), cookie="theirs")
    spec = some(stage.plan.baseline.process)
    process.write_record(stage.plan.records_dir, stage.plan.baseline.name, spec, pid, start)
    by_hand(stage)
    assert process.alive(pid, start)
    stage.base(process=standin(stage.port))
    by_hand(stage)
    stage.until_it_is(Health.REFUSED)
    process.record_path(stage.plan.records_dir, stage.plan.baseline.name).unlink()
    by_hand(stage)
    stage.until_it_is()
    for server in servers(stage):
        process.send(server, process.start_time(server) or 0, signal.SIGKILL)


@pytest.mark.parametrize("record", [True, False])
def test_the_commands_to_type_by_hand_end_nobody_who_loads(stage: Stage, record: bool) -> None:
    """vLLM, SGLang and TGI bind their port after the load: until then connections are refused."""
    stage.base(process=ProcessSpec(SLEEP), ready_timeout_s=0.2)
    result = stage.roll_back()
    assert result.exit_code == 7
    assert write.WAIT in result.manual
    assert not any("kill" in line or "setsid" in line for line in result.manual)
    shown = run_script(stage).stdout.partition("By hand")[2]
    before = stage.running()  # a second rollback restarts one that was not seen to load
    assert write.WAIT in shown
    assert "kill" not in shown
    if not record:
        process.record_path(stage.plan.records_dir, stage.plan.baseline.name).unlink()
    by_hand(stage)
    assert process.alive(*before)
    marked = process.mark(stage.plan.records_dir, "baseline", some(stage.plan.baseline.process))
    assert [pid for pid, _ in process.by_cookie(process.BASELINE_COOKIE, marked[1])] == [before[0]]
    process.send(*before, signal.SIGKILL)


def test_the_commands_to_type_by_hand_end_what_a_dead_baseline_left(stage: Stage) -> None:
    """A worker that holds the cards after its server has ended."""
    body = "sh -c 'trap \"\" HUP; exec sleep 600' & echo $! >$0; exec sleep 600"
    file = stage.root / "worker"
    stage.base(process=ProcessSpec(("sh", "-c", body, str(file))), ready_timeout_s=0.2)
    stage.roll_back()
    kill_now(stage.running())
    worker = int(file.read_text())
    start_time = some(process.start_time(worker))
    stop = next(line for line in commands(stage.plan) if "kill -9" in line)
    subprocess.run(["sh", "-c", stop.replace("sleep 5", "sleep 0.2")], check=False, timeout=60)
    until(lambda: not process.alive(worker, start_time), "the worker is gone")


class Working:
    """Processes that work for so many seconds after the first look."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.begun = seconds, float("nan")

    def __call__(self) -> Work:
        working = self

        class Told(Work):
            def look(self, pids: object, now: float) -> None:
                working.begun = now if math.isnan(working.begun) else working.begun
                self.known = True
                if now - working.begun <= working.seconds:
                    self.seen_at = now

        return Told()


@pytest.mark.parametrize(("seconds", "left"), [(1e9, True), (5.0, False)])
def test_what_still_works_at_its_load_is_not_restarted(
    stage: Stage, seconds: float, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not bound its port after `ready.timeout`: it loads, or it hangs."""
    stage.base(process=ProcessSpec(SLEEP), ready_timeout_s=20.0)
    monkeypatch.setattr(load, "Work", Working(seconds))
    monkeypatch.setattr(verify, "LAST_PAUSE_S", 2.0)
    monkeypatch.setattr(start, "RESTART_GRACE_S", 0.0)
    result = Procedure(stage.plan, clock=FakeClock(), emit=stage.lines.append).run()
    assert result.exit_code == 7
    restarts = [line for line in stage.lines if "restarting it once" in line["detail"]]
    assert len(restarts) == (0 if left else 1)
    assert ("it still loads and was left as it is" in result.detail) is left
    assert write.WAIT in result.manual


def test_no_command_to_type_by_hand_shows_a_secret_or_starts_with_a_hidden_one(
    stage: Stage,
) -> None:
    hidden = "sk-" + "4f9" * 8
    stage.base(process=standin(stage.port, "--api-key", hidden))
    lines = commands(stage.plan)
    assert hidden not in "".join(lines)
    assert not any("setsid" in line or "*****" in line for line in lines)
    path = stage.plan.rollback_dir / "rollback.sh"
    assert not stage.plan.run_dir or f"sh {path}" in lines


@pytest.mark.parametrize("kind", ["container", "unit"])
def test_a_container_or_unit_is_started_by_hand_only_where_nothing_listens(
    stage: Stage, kind: str
) -> None:
    base = replace(stage.plan.baseline, kind=kind, process=None)
    base = replace(base, container_id="it", compose_argv=("docker", "compose", "up", "-d"))
    if kind == "unit":
        base = replace(base, container_id="", compose_argv=(), unit=UnitSpec("it.service"))
    plan = replace(stage.plan, baseline=base)
    assert not any("restart" in line for line in commands(plan)), "it may load, and not listen yet"
    [line] = [line for line in commands(plan) if " start " in line]
    assert line.endswith("docker start it || docker compose up -d") is (kind == "container")
    assert line.startswith("curl -q --noproxy '*' ")
    assert re.search(r"; \[ \$\? -ne 7 \] \|\| ([a-z-]+ )+", line)
    lines = commands(plan, lives=True)
    assert len(lines) == 3, lines
    assert not any(word in line for line in lines for word in ("restart", "kill", "up -d"))


@pytest.mark.parametrize("where", ["file", "nowhere"])
def test_by_hand_shows_the_log_of_the_process_that_runs(stage: Stage, where: str) -> None:
    """One that was adopted writes to where its own starter sent it."""
    own, base = stage.root / "its own.log", stage.plan.baseline
    assert base.process is not None
    with open(own if where == "file" else os.devnull, "w") as log:
        child = subprocess.Popen(list(SLEEP), stdout=log, stderr=log)
    stat = process.stat(child.pid)
    assert stat is not None
    process.write_record(stage.plan.records_dir, base.name, base.process, child.pid, stat.start)
    [line] = [line for line in commands(stage.plan, lives=True) if "log" in line]
    sealed = "".join(commands(stage.plan, later=True))
    child.kill()
    child.wait()
    words = f"tail -n 50 '{own}'" if where == "file" else f"# its log: pid {child.pid} writes to "
    assert line.startswith(words), line
    assert f"tail -n 50 {log_path(stage.plan)}" in sealed
    none = "# its log: none yet; where the console starts it, it writes to "
    assert f"{none}{log_path(stage.plan)}" in commands(stage.plan, lives=True)
    log_path(stage.plan).write_text("begun\n")
    assert f"tail -n 50 {log_path(stage.plan)}" in commands(stage.plan, lives=True)


def test_by_hand_shows_the_log_of_what_answers_without_a_record(stage: Stage, lines: Path) -> None:
    """Neither way back started it, so the file of a start is not there."""
    assert stage.plan.baseline.process is not None
    lines.write_text('{"health": 401}')
    stage.spawn(list(stage.plan.baseline.process.argv), cookie="no")
    until(lambda: owners(stage.plan.baseline.url), "it listens")
    assert f"tail -n 50 {stage.root / 'log'}" in commands(stage.plan, lives=True)
    stage.base(ready_timeout_s=1.0)
    done = run_script(stage)
    assert done.returncode == 7
    assert f"tail -n 50 {log_path(stage.plan)}\n" not in done.stdout
