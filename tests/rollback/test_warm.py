"""The standby: a real process that waits at a real FIFO."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.common.clock import SystemClock
from console.common.errors import Exit
from console.host import process
from console.recovery.rollback import live, procedure, standby
from console.recovery.rollback.command import rollback
from console.recovery.rollback.progress import PROGRESS_FILE, Line, read_lines, who_asked
from console.runtime import proxy
from tests.ports import free_port
from tests.rollback.conftest import NOBODY, Stage, as_root, kill_now, standin
from tests.rollback.test_command import give_to_nobody
from tests.waiting import until

STANDBY = (sys.executable, "-m", "console.recovery.rollback.standby")
StartStandby = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def start_standby(stage: Stage) -> Iterator[StartStandby]:
    begun: list[subprocess.Popen[bytes]] = []

    def go() -> subprocess.Popen[bytes]:
        with warned(stage).open("ab") as errors:
            child = subprocess.Popen(
                [*STANDBY, str(stage.plan.rollback_dir)], stdin=subprocess.DEVNULL, stderr=errors,
                start_new_session=True, env={**os.environ, "OMNI_RUN": stage.plan.run_id},
            )  # fmt: skip
        begun.append(child)
        until(lambda: standby.is_standing_by(stage.plan.rollback_dir), "the standby waits")
        return child

    yield go
    for child in begun:
        child.kill()
        child.wait()


def warned(stage: Stage) -> Path:
    """The file of what the standby writes to stderr."""
    return stage.root / "standby.log"


def done(stage: Stage, count: int = 1) -> list[Line]:
    path = stage.plan.rollback_dir / PROGRESS_FILE
    until(
        lambda: sum(x["rung"] == "done" for x in read_lines(path)[0]) >= count,
        f"{count} rollbacks are done", where=lambda: str(read_lines(path)[0][-9:]),
    )  # fmt: skip
    return read_lines(path)[0]


def test_emergency_byte_kills_the_runner_and_restores(
    stage: Stage, start_standby: StartStandby
) -> None:
    """The standby is on record, leaves after the rollback, and its protection is not inherited."""
    runner = stage.recorded("runner", "runner", stage.plan.run_id)
    child, directory = start_standby(), stage.plan.rollback_dir
    fifo = os.stat(directory / "trigger")
    assert stat.S_ISFIFO(fifo.st_mode)
    assert stat.S_IMODE(fifo.st_mode) == 0o600
    assert [e.pid for e in live.read(stage.live) if e.kind == "ladder"] == [child.pid]
    said = json.loads((directory / "warm.json").read_text())
    assert said["pid"] == child.pid
    assert said["memory"]
    assert said["oom_score_adj"].split(":")[0] == score(child.pid)
    assert standby.trigger(directory)
    assert done(stage)[-1]["serving"] is True
    assert not process.alive(*runner)
    assert child.wait(60) == 0, "nobody needs a way back any more"
    running = stage.running()
    assert score(running[0]) == score(os.getpid())


def score(pid: int) -> str:
    return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


def test_asked_by_the_runner_fences_nobody(stage: Stage, start_standby: StartStandby) -> None:
    runner = stage.recorded("runner", "runner", stage.plan.run_id)
    start_standby()
    assert standby.trigger(stage.plan.rollback_dir, standby.REQUEST)
    assert done(stage)[-1]["serving"] is True
    assert process.alive(*runner)


def test_quit(stage: Stage, start_standby: StartStandby) -> None:
    child = start_standby()
    assert standby.trigger(stage.plan.rollback_dir, standby.QUIT)
    assert child.wait(60) == 0
    assert not standby.is_standing_by(stage.plan.rollback_dir)
    assert not standby.trigger(stage.plan.rollback_dir)


def test_it_leaves_when_the_baseline_serves_without_it_and_no_runner_lives(
    stage: Stage, start_standby: StartStandby
) -> None:
    runner = stage.recorded("runner", "runner", stage.plan.run_id)
    child = start_standby()
    assert standby.trigger(stage.plan.rollback_dir, standby.LEAVE)
    assert standby.trigger(stage.plan.rollback_dir, standby.REQUEST)
    assert done(stage)[-1]["serving"] is True, "with a runner, or a call, it stays"
    assert child.poll() is None
    kill_now(runner)
    assert standby.trigger(stage.plan.rollback_dir, standby.LEAVE)
    assert child.wait(60) == 0


def test_it_stays_for_a_baseline_that_does_not_serve(
    stage: Stage, start_standby: StartStandby
) -> None:
    child = start_standby()
    assert standby.trigger(stage.plan.rollback_dir, standby.LEAVE)
    assert standby.trigger(stage.plan.rollback_dir, standby.REQUEST)
    assert done(stage)[-1]["serving"] is True
    assert child.poll() is None


class Later(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def in_silence(stage: Stage, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> int:
    """How many silences a standby waits through before it leaves; `act` is called in each of
    them, with its number."""
    silences: list[float] = []
    waiting = standby.Standby(stage.plan.rollback_dir)
    waiting.clock = later = Later()

    def silence(
        readers: list[int], _w: object, _x: object, seconds: float
    ) -> tuple[list[int], ...]:
        silences.append(seconds)
        later.ahead += seconds
        assert len(silences) < 20
        act(len(silences))
        return [], [], []

    monkeypatch.setattr(standby, "select", SimpleNamespace(select=silence))
    monkeypatch.setattr(waiting, "_drain", lambda: b"")  # there is no FIFO
    waiting.run()
    return len(silences)


def serve(stage: Stage) -> None:
    stage.start_baseline()
    stage.until_it_is()


def test_it_leaves_by_itself_when_runner_and_sentinel_are_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(stage)
    left = [stage.recorded(kind, kind) for kind in ("runner", "sentinel")]

    def act(number: int) -> None:
        if number in (2, 3):
            process.stop_group(*left.pop(0), grace_s=0.0)

    silences = in_silence(stage, monkeypatch, act)
    assert silences == 3, "it stays for a runner, and for a sentinel"


def test_it_stays_while_a_candidate_answers_in_the_baselines_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, port = stage.plan.baseline.url, free_port()
    stage.spawn(list(standin(port).argv))
    relay = stage.spawn(list(proxy.argv(proxy.address(url), f"127.0.0.1:{port}", "cand")))
    stage.until_it_is()

    def act(number: int) -> None:
        if number == 2:
            process.stop_group(*relay, grace_s=3.0)
            serve(stage)

    silences = in_silence(stage, monkeypatch, act)
    assert silences == 2, "the baseline is down behind the relay"


def test_the_lease_counts_with_runner_and_sentinel_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.seal(lease_s=2.5 * standby.LOOK_S)
    stage.point()
    runner = stage.recorded("runner", "runner", stage.plan.run_id)
    rolled_back: list[int] = []

    def act(number: int) -> None:
        if number == 3:
            kill_now(runner)
        if not rolled_back and (stage.plan.rollback_dir / PROGRESS_FILE).exists():
            rolled_back.append(number)

    silences = in_silence(stage, monkeypatch, act)
    assert rolled_back == [silences] == [7], "three minutes after the silence that found nobody"
    lines = done(stage)
    assert (lines[-1]["serving"], lines[-1]["trigger"].split("-")[0]) == (True, "lease")
    assert who_asked(stage.plan.rollback_dir) == "the lease"


@pytest.mark.parametrize("earlier", ["", '{"rung": "done", "state": "ok"}\n'])
def test_the_lease_counts_again_after_a_restore_of_this_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    stage.seal(lease_s=2.5 * standby.LOOK_S)
    stage.point()
    (stage.plan.rollback_dir / PROGRESS_FILE).write_text(earlier)
    in_silence(stage, monkeypatch, lambda number: None)
    assert done(stage)[-1]["trigger"].split("-")[0] == "lease"


IDLE = ["no lease", "it was climbed meanwhile", "a sentinel lives", "it is over", "another is on"]


@pytest.mark.parametrize("why", IDLE)
def test_nothing_runs_out(stage: Stage, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    stage.seal(lease_s=0.0 if why == "no lease" else 2.5 * standby.LOOK_S)
    progress_file, sentinel = stage.plan.rollback_dir / PROGRESS_FILE, stage.sleeper()
    run_id = "another" if why == "another is on" else stage.plan.run_id
    stage.point(run_id=run_id, over=why == "it is over")
    if why == "a sentinel lives":
        stage.record("sentinel", "sentinel", sentinel)
    before = '{"rung": "done"}\n' if why == "it was climbed meanwhile" else ""

    def act(number: int) -> None:
        if number == 2:
            progress_file.write_text(before)
        if number == 8:
            kill_now(sentinel)
            serve(stage)

    assert in_silence(stage, monkeypatch, act) == 8
    assert progress_file.read_text() == before, "nothing rolled back"


def test_quit_that_comes_with_a_call_is_not_lost(stage: Stage, start_standby: StartStandby) -> None:
    child = start_standby()
    os.kill(child.pid, signal.SIGSTOP)
    assert standby.trigger(stage.plan.rollback_dir, standby.REQUEST)
    assert standby.trigger(stage.plan.rollback_dir, standby.QUIT)
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(60) == 0
    assert done(stage)[-1]["serving"] is True


def test_command_goes_on_beside_a_ladder_that_was_stopped_half_way(
    stage: Stage, start_standby: StartStandby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedure, "STOPPED_S", 0.2)
    stage.seal(grace_s=1.5)
    candidate = stage.up("trap '' TERM; echo up; sleep 600 & wait; sleep 600")
    stage.record("process", "candidate", candidate)
    child = start_standby()
    stage.point(alive=True, started_at=SystemClock().now())

    def emit(line: Line) -> None:
        stage.lines.append(line)
        if str(line["trigger"]).startswith("warm-") and line["rung"] == "stop":
            os.kill(child.pid, signal.SIGSTOP)

    assert rollback(None, False, emit).serving
    assert any(str(x["trigger"]).startswith("command-") for x in stage.lines)


@pytest.mark.parametrize(("under_way", "times", "code"), [
    (False, 1, -signal.SIGTERM), (True, 1, 0), (True, 2, Exit.ROLLBACK_FAILED),
])  # fmt: skip
def test_sigterm_ends_it_while_it_waits_and_a_rollback_under_way_the_second_time(
    stage: Stage, start_standby: StartStandby, under_way: bool, times: int, code: int
) -> None:
    stage.seal(grace_s=2.0 if times == 1 else 600.0)
    candidate = stage.up("trap 'echo told' TERM; echo up; while :; do sleep 600 & wait; done")
    stage.record("process", "candidate", candidate)
    child = start_standby()
    if under_way:
        assert standby.trigger(stage.plan.rollback_dir)
        stage.until_said("told")
    child.terminate()
    if times == 2:  # two signals at once would be one
        until(lambda: warned(stage).stat().st_size, "it has warned that it goes on")
        child.terminate()
    assert child.wait(60) == code
    assert (stage.baseline_process() is not None) is (under_way and times == 1)


def test_trigger_without_a_reader_says_so(stage: Stage) -> None:
    directory = stage.plan.rollback_dir
    assert not standby.trigger(directory)
    os.mkfifo(directory / "trigger")
    assert not standby.trigger(directory)
    os.unlink(directory / "trigger")
    (directory / "trigger").write_text("")
    assert not standby.trigger(directory)
    assert (directory / "trigger").read_text() == ""


def test_plan_is_read_again_when_it_changed(stage: Stage, start_standby: StartStandby) -> None:
    start_standby()
    stage.base(reference_tok_s=500.0)
    assert standby.trigger(stage.plan.rollback_dir)
    assert done(stage)[-1]["degraded"] is True


@pytest.mark.parametrize("text", [None, "garbage"])
def test_plan_in_memory_serves_when_the_file_is_gone(
    stage: Stage, start_standby: StartStandby, text: str | None
) -> None:
    start_standby()
    path = stage.plan.rollback_dir / "plan.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert standby.trigger(stage.plan.rollback_dir)
    assert done(stage)[-1]["serving"] is True
    stage.seal()


@pytest.mark.parametrize("stuck", [False, True])
def test_command_goes_through_the_warm_ladder_or_helps_itself(
    stage: Stage, start_standby: StartStandby, monkeypatch: pytest.MonkeyPatch, stuck: bool
) -> None:
    child = start_standby()
    if stuck:
        os.kill(child.pid, signal.SIGSTOP)
    else:
        monkeypatch.setattr("console.recovery.rollback.command.STANDBY_WORD_S", 60.0)
    stage.point(alive=True, started_at=SystemClock().now())
    assert rollback(None, False, stage.lines.append).serving
    assert stage.lines[-1]["rung"] == "done"
    who = "command-" if stuck else "warm-"
    assert any(str(x["trigger"]).startswith(who) for x in stage.lines)
    assert child.wait(60) == (-signal.SIGKILL if stuck else 0)


def test_warm_ladder_without_a_plan_says_why(stage: Stage) -> None:
    done = subprocess.run([*STANDBY, str(stage.root / "none")], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr


ROLLBACK = """
import sys
from pathlib import Path
from console.recovery.rollback.standby import Standby
standby = Standby(Path(sys.argv[1]))
standby.prepare()
before = set(sys.modules)
standby._run("warm")
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_climb_loads_nothing_any_more(stage: Stage, scheme: str) -> None:
    """By then the interpreter's files may be gone, or closed to the current user."""
    candidate = stage.recorded("process", "candidate", stage.plan.run_id)
    url = stage.plan.baseline.url.replace("http", scheme, 1)
    stage.base(url=url, ready_timeout_s=120.0 if scheme == "http" else 1.0)
    argv = [sys.executable, "-P", "-c", ROLLBACK, str(stage.plan.rollback_dir)]
    late = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    assert late.split() == []
    assert not process.alive(*candidate)


COMMAND = """
import sys
from console.recovery.rollback import command, finder
before, become = set(), finder.become
def closed(uid):
    become(uid)
    before.update(sys.modules)
finder.become = closed
command.rollback(None, False, lambda line: print(line["detail"]))
print("late:", *sorted(set(sys.modules) - before))
"""


@as_root
def test_root_loads_everything_before_it_becomes_the_runs_owner(stage: Stage) -> None:
    give_to_nobody(stage, stage.point(uid=NOBODY))
    argv = [sys.executable, "-P", "-c", COMMAND]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.endswith("late:\n"), said
    assert "ModuleNotFoundError" not in said
    assert "LookupError" not in said
