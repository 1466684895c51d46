"""Candidates that left their session, parents and environment, by the procedure and the script, for
root and for a plain user."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console.host import ports, process
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.live import Live, append
from console.recovery.rollback.sealed_plan import Candidate
from console.recovery.rollback.stages import left
from console.runtime.probe import Health
from tests.children import running
from tests.ports import free_port
from tests.rollback.conftest import DASH, NOBODY, STANDIN, Stage, as_root, open_up, run_script
from tests.waiting import some, until

DAEMON = """
import os, socket, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
if int(sys.argv[2]): os.setgroups([]), os.setuid(int(sys.argv[2]))
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""
BOTH = pytest.mark.parametrize("by", ["procedure", "script"])
pytestmark = pytest.mark.skipif(DASH is None, reason="needs dash")


@pytest.fixture
def daemon(stage: Stage) -> Callable[..., tuple[int, int]]:
    """Starts a server that daemonises at its candidate's address; its pid and start time."""
    stage.record("runner", "runner", stage.sleeper("no"))
    (stage.root / "log").unlink()  # another user's baseline writes there, too

    def begin(*, exclusive: bool = True, user: int = 0) -> tuple[int, int]:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-S", "-c", DAEMON, str(port), str(user)]
        with running(argv, env={}, start_new_session=True) as script:
            script.wait()
        until(lambda: ports.listener(url), "it listens")
        pid = some(ports.listener(url)).pid
        made = pid, some(process.start_time(pid))
        stage.groups.append(made)
        stage.seal(candidates=(Candidate("cand", "process", url=url),), exclusive=exclusive)
        return made

    return begin


def roll_back(stage: Stage, by: str, user: int | None = None) -> tuple[int, str]:
    """Roll back; the exit code and what was said."""
    if by == "script":
        done = run_script(stage, user=user)
        return done.returncode, str(done.stdout)
    result = stage.roll_back()
    return result.exit_code, f"{stage.lines} {result.detail}"


@BOTH
def test_a_daemon_on_record_ends(
    stage: Stage, daemon: Callable[..., tuple[int, int]], by: str
) -> None:
    found = daemon()
    append(stage.live, Live("process", "cand", *found))
    code, words = roll_back(stage, by)
    assert code == 0, words
    assert not process.alive(*found)


@BOTH
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_daemon_that_nobody_recorded_is_named_to_the_end(
    stage: Stage, daemon: Callable[..., tuple[int, int]], by: str, exclusive: bool
) -> None:
    """Its runner was killed before it could look. No licence covers it, so it is not ended; but
    nobody says that all is gone, and beside an exclusive candidate that is no success."""
    found = daemon(exclusive=exclusive)
    stage.record("process", "cand", stage.sleeper("no"))
    stage.seal(site_name="ws")
    code, words = roll_back(stage, by)
    assert process.alive(*found)
    assert code == (7 if exclusive else 0), words
    assert f"pid {found[0]}" in words
    assert "still runs beside" in words
    state = evidence.state(stage.plan)
    assert (state.word, state.proven) == (Word.SERVING, True), "and the baseline serves"
    assert "everything that was stopped is gone" not in words


def test_what_a_run_left_behind_is_named_until_it_is_gone(
    stage: Stage, daemon: Callable[..., tuple[int, int]]
) -> None:
    """A rollback after the end of that run has a plan without candidates."""
    found = daemon()
    stage.record("process", "cand", stage.sleeper("no"))
    stage.seal(site_name="ws")
    assert roll_back(stage, "procedure")[0] == 7
    stage.seal(candidates=(), exclusive=False)
    code, words = roll_back(stage, "procedure")
    assert code == 7, words
    assert f"pid {found[0]}" in words
    os.kill(found[0], signal.SIGKILL)
    until(lambda: not process.alive(*found), "it has ended")
    assert roll_back(stage, "procedure")[0] == 0
    assert left.kept(stage.plan) == []


def test_what_was_left_behind_and_adopted_since_is_no_survivor(
    stage: Stage, daemon: Callable[..., tuple[int, int]]
) -> None:
    found = daemon()
    stage.seal(site_name="ws", candidates=())
    survivor = left.Survivor(f"pid {found[0]}", *found)
    left.keep(stage.plan, [survivor])
    assert left.kept(stage.plan) == [survivor]
    process.write_record(stage.plan.records_dir, "baseline", process.ProcessSpec(("x",)), *found)
    assert left.kept(stage.plan) == []


@BOTH
def test_what_was_there_before_the_run_is_no_candidate(stage: Stage, by: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    stranger = stage.spawn([sys.executable, "-S", str(STANDIN), str(port)], cookie="theirs")
    until(lambda: ports.listener(url), "it listens")
    until(lambda: os.times().elapsed * os.sysconf("SC_CLK_TCK") > stranger[1] + 1, "time passes")
    stage.record("runner", "runner", stage.sleeper("no"))
    stage.seal(candidates=(Candidate("cand", "process", url=url),), exclusive=True)
    code, words = roll_back(stage, by)
    assert code == 0, words
    assert process.alive(*stranger)
    assert f"pid {stranger[0]}" not in words


@as_root
def test_a_plain_users_script_ends_the_users_own_daemon(
    stage: Stage, daemon: Callable[..., tuple[int, int]], tmp_path: Path
) -> None:
    """No control group was delegated to that user: the record alone leads to it."""
    found = daemon(user=NOBODY)
    append(stage.live, Live("process", "cand", *found))
    stage.start_baseline()
    stage.until_it_is(Health.SERVING)
    for path in [tmp_path, *tmp_path.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    open_up(tmp_path)
    code, words = roll_back(stage, "script", NOBODY)
    assert not process.alive(*found), words
    assert code == 0, words


def test_a_candidate_at_the_baselines_address_is_not_looked_for(stage: Stage) -> None:
    assert left.is_at("http://localhost:8000/v1", "http://127.0.0.1:8000")
    assert not left.is_at("http://127.0.0.1:8001", "http://127.0.0.1:8000")
