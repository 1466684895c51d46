"""The ladder on real processes: a stand-in baseline, runner, steps and candidates."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from console.clock import FakeClock, SystemClock
from console.errors import Exit
from console.rollback import ladder, ram, restore, stop
from console.rollback.ladder import Ladder
from console.rollback.plan import EngineAddress
from console.rollback.report import RUNGS, Result, new_trigger, read_lines
from console.services import process
from console.services.base import ProcessSpec
from console.services.engine import RawEngine
from console.services.probe import Health, health
from tests.ports import free_port
from tests.rollback.conftest import Stage, standin
from tests.waiting import until


def climb(stage: Stage, emergency: bool = True) -> Result:
    clock = SystemClock()
    trigger = new_trigger(clock, emergency)
    return Ladder(stage.plan, clock=clock, trigger=trigger, emit=stage.lines.append).run()


def test_restores_a_stopped_baseline_and_proves_it(stage: Stage) -> None:
    result = climb(stage)
    assert result.serving
    assert result.exit_code is Exit.OK
    assert result.restore_s is not None
    assert result.restore_s > 0
    assert result.tok_s == pytest.approx(50.0)
    assert not result.nothing_to_do
    assert stage.baseline_process() is not None
    rungs = list(dict.fromkeys(line["rung"] for line in stage.lines))
    assert rungs == [rung for rung in RUNGS if rung in rungs]
    assert {"fence", "stop", "start", "ready", "completion", "serving", "measure", "done"} <= set(
        rungs
    )


def test_second_rollback_finds_nothing_to_do(stage: Stage) -> None:
    climb(stage)
    before = stage.baseline_process()
    stage.lines.clear()
    result = climb(stage)
    assert result.nothing_to_do
    assert result.serving
    assert result.restore_s is None
    assert stage.said("start", "skipped")
    assert stage.baseline_process() == before


def test_file_and_callback_say_the_same(stage: Stage) -> None:
    climb(stage)
    lines, _ = read_lines(stage.plan.rollback_dir / "ladder.jsonl")
    assert lines == stage.lines
    assert lines[-1]["rung"] == "done"
    assert lines[-1]["serving"] is True
    assert all({"trigger", "rung", "state", "at", "t", "detail"} <= set(line) for line in lines)


def test_fence_ends_runner_steps_and_strays_but_not_the_baseline(stage: Stage) -> None:
    base = stage.start_baseline()
    runner, step, stray = stage.sleeper(), stage.sleeper("no"), stage.sleeper()
    stranger = stage.sleeper("another-run")
    stage.record("runner", "runner", runner)
    stage.record("step", "build", step)
    result = climb(stage)
    assert result.serving
    assert not result.nothing_to_do
    assert not process.alive(*runner)
    assert not process.alive(*step)
    assert not process.alive(*stray)
    assert process.alive(*stranger)
    assert process.alive(*base)


def test_no_fence_when_the_runner_asks(stage: Stage) -> None:
    runner = stage.sleeper()
    stage.record("runner", "runner", runner)
    assert climb(stage, emergency=False).serving
    assert process.alive(*runner)
    assert stage.said("fence", "skipped")


def test_reused_pid_is_left_alone(stage: Stage) -> None:
    pid, start = stage.sleeper("other")
    stage.record("runner", "runner", (pid, start - 1))
    stage.record("process", "candidate", (pid, start - 1))
    assert climb(stage).serving
    assert process.alive(pid, start)


def test_stubborn_candidate_and_its_child_are_killed(stage: Stage) -> None:
    stage.seal(grace_s=0.2)
    body = "trap '' TERM; sleep 600 & echo up; wait; wait; sleep 600"
    candidate = stage.spawn(["sh", "-c", body])
    until(lambda: "up" in (stage.root / "log").read_text(), "it says up")
    stage.record("process", "candidate", candidate)
    assert len(process.members(*candidate)) == 2
    assert climb(stage).serving
    assert process.members(*candidate) == []
    assert len(stage.said("stop", "ok")) == 1


def test_nobody_is_asked_to_end_while_ram_is_nearly_full(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ram, "is_scarce", lambda: True)
    stage.seal(grace_s=250.0)  # more than a test may take
    candidate = stage.spawn(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 600; done"])
    until(lambda: "up" in (stage.root / "log").read_text(), "it says up")
    stage.record("process", "candidate", candidate)
    assert climb(stage).serving
    assert process.members(*candidate) == []
    assert len(stage.said("stop", "note")) == 1


def test_the_baseline_is_never_stopped_and_a_service_called_like_a_container_is(
    stage: Stage,
) -> None:
    base = stage.start_baseline()
    load = stage.sleeper()
    stage.seal(protected=("executor",))
    stage.record("process", "baseline", base)
    stage.record("process", "other", base)
    stage.record("process", "executor", load)
    assert climb(stage).serving
    assert process.alive(*base)
    assert not process.alive(*load)


def test_ten_minutes_of_loading_is_loading(stage: Stage) -> None:
    clock = FakeClock()
    port = free_port()
    base = replace(
        stage.plan.baseline,
        url=f"http://127.0.0.1:{port}",
        process=standin(port, "--loading", "1200"),
        ready_timeout_s=900.0,
    )
    stage.seal(baseline=base)
    # It listens before the fake clock runs: a start-up on the real clock would eat fake minutes.
    running = stage.start_baseline()
    until(lambda: "stand-in listens" in (stage.root / "base.log").read_text())
    until(lambda: health(base.url)[0] is Health.LOADING, "it loads")
    result = Ladder(
        stage.plan, clock=clock, trigger=new_trigger(clock), emit=stage.lines.append
    ).run()
    assert result.serving
    assert 550 < sum(clock.slept) < 650
    assert stage.baseline_process() == running, "loading is no reason to restart"
    assert len(stage.said("ready", "note")) == 1


def test_dying_baseline_is_started_twice_and_its_words_are_shown(stage: Stage) -> None:
    argv = (
        sys.executable,
        "-c",
        "print('CUDA error: \\x1b[31mout of memory'); raise SystemExit(1)",
    )
    stage.seal(baseline=replace(stage.plan.baseline, process=ProcessSpec(argv)))
    result = climb(stage)
    assert not result.serving
    assert "CUDA error: out of memory" in result.detail
    assert (stage.root / "base.log").read_text().count("CUDA error") == 2
    assert any("setsid nohup" in command for command in result.manual)
    assert any("/health" in command for command in result.manual)


def test_restore_time_is_remembered_only_after_a_real_start(stage: Stage) -> None:
    first = climb(stage)
    climb(stage)
    memory = Path(stage.plan.memory_file)
    assert restore.expected(memory, "baseline") == first.restore_s
    assert len(json.loads(memory.read_text())) == 1
    assert restore.expected(memory, "other") is None


def test_restore_memory_keeps_twenty_and_takes_the_median_of_five(tmp_path: Path) -> None:
    memory = tmp_path / "restore.json"
    for seconds in range(30):
        restore.remember(memory, "base", float(seconds), 0.0)
    assert len(json.loads(memory.read_text())) == 20
    assert restore.expected(memory, "base") == 27.0


def test_two_at_once_share_one_ladder(stage: Stage) -> None:
    results: list[Result] = []
    lines: list[list[dict[str, object]]] = [[], []]

    both = threading.Barrier(2)

    def go(at: int) -> None:
        def emit(line: dict[str, object]) -> None:
            if not lines[at]:
                both.wait(60)  # the one that climbs begins no rung before the other one listens
            lines[at].append(line)

        results.append(Ladder(stage.plan, emit=emit).run())

    threads = [threading.Thread(target=go, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [r.serving for r in results] == [True, True]
    assert results[0] == results[1]
    triggers = {line["trigger"] for part in lines for line in part}
    assert len(triggers) == 1
    assert "stand-in listens" in (stage.root / "base.log").read_text()
    assert (stage.root / "base.log").read_text().count("stand-in listens") == 1


def test_follower_climbs_when_the_first_one_dies(stage: Stage) -> None:
    """A ladder killed half way leaves no final line; the second one takes over."""
    code = (
        "import sys, time, fcntl, os\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    lock = stage.plan.rollback_dir / "lock"
    holder = stage.spawn([sys.executable, "-c", code, str(lock)], cookie="holder")
    until(lambda: "held" in (stage.root / "log").read_text(), "it says held")
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(climb(stage)))
    thread.start()
    until(lambda: thread.is_alive())
    assert not results
    process.send(*holder, signal.SIGKILL)
    thread.join(60)
    assert results
    assert results[0].serving


def test_read_only_run_directory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root writes everywhere, so the refusal is made where the files are opened."""
    real = os.open

    def refuse(path: object, flags: int, *rest: object, **more: object) -> int:
        inside = str(path).startswith(stage.plan.run_dir)
        if inside and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    result = climb(stage)
    monkeypatch.undo()
    assert result.serving
    assert stage.lines[-1]["rung"] == "done"
    assert not (stage.plan.rollback_dir / "ladder.jsonl").exists()


def test_full_disk_costs_the_lines_only(stage: Stage) -> None:
    os.symlink("/dev/full", stage.plan.rollback_dir / "ladder.jsonl")
    assert climb(stage).serving
    assert stage.lines[-1]["rung"] == "done"


def test_hung_engine_is_named_early_and_the_process_baseline_comes_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "ENGINE_WORD_S", 0.2)
    monkeypatch.setattr(ladder, "RawEngine", lambda path: RawEngine(path, 1.2))
    path = str(stage.root / "hung.sock")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen(8)
        stage.seal(engine=EngineAddress(socket=path))
        candidate = stage.sleeper()
        stage.record("process", "candidate", candidate)
        result = climb(stage)
    assert result.serving
    assert not process.alive(*candidate)
    named = [x["detail"] for x in stage.lines if "did not answer" in x["detail"]]
    assert "ping: nothing" in named[0]
    assert "within 0.20 s" in named[0], "before the rung that needs it has waited"
    assert "engine away" in stage.said("stop", "failed")[0]


def test_absent_engine_is_no_failure_when_nothing_needs_it(stage: Stage) -> None:
    stage.seal(engine=EngineAddress(socket=str(stage.root / "none.sock")))
    result = climb(stage)
    assert result.serving
    assert stage.said("stop", "failed") == []


def test_printer_that_raises_stops_nothing(stage: Stage) -> None:
    def broken(_: object) -> None:
        raise BrokenPipeError

    assert Ladder(stage.plan, emit=broken).run().serving


def test_unforeseen_error_in_a_rung_costs_that_rung(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(stop, "stop", broken)
    result = climb(stage)
    assert result.serving
    assert stage.said("stop", "failed") == ["RuntimeError: boom"]
    assert "boom" in result.detail


def test_finish_command_runs_detached_after_an_emergency(stage: Stage) -> None:
    mark = stage.root / "finished"
    code = "import os,sys; open(sys.argv[1], 'w').write(str(os.getsid(0) == os.getpid()))"
    stage.seal(finish_argv=(sys.executable, "-c", code, str(mark)))
    climb(stage, emergency=False)
    assert not mark.exists()
    climb(stage)
    until(lambda: mark.exists() and mark.read_text() == "True", "the file is there")


def test_files_stay(stage: Stage) -> None:
    stage.sleeper()
    (stage.root / "kept").write_text("x")
    before = {str(p) for p in stage.root.rglob("*")}
    climb(stage)
    assert before <= {str(p) for p in stage.root.rglob("*")}
    assert stat.S_ISREG((stage.root / "kept").stat().st_mode)
