"""A run that nobody looks at, or whose follower or runner is gone: the lease, `show`, `attach`."""

import json
import shlex
import signal
import subprocess
import time

import pytest

from console.host import process
from console.journal.breach import ready
from tests.runner.e2e.sites import UP, book, gate
from tests.runner.e2e.test_guard import at_a_terminal, outage, restored, waiting
from tests.runner.e2e.world import COMMAND, LIMIT_S, World


def shows(world: World, words: str) -> None:
    """Wait until `show` says so: the sentinel looks at the lease once in a while."""
    world.until(lambda: words in world.console("show", world.run.id).out, words)


def test_a_console_renews_the_lease_by_being_there_with_a_runner_and_without(world: World) -> None:
    begin = waiting(world, "--lease", "6s")
    with at_a_terminal(world, "RUNNING wait") as terminal:
        begin.touch()
        world.step("long", "running")
        shows(world, "renewed: somebody is attached")
        terminal.until("lease 0:0", 60)
        time.sleep(7.0)
        assert not world.view().over, "it is renewed for longer than it lasts"
        world.interrupt()
        terminal.until("its runner is gone", 60)
        shows(world, "renewed: somebody is attached")
        time.sleep(7.0)
        assert not world.view().over, "nobody is asked to watch a countdown"
    world.until(lambda: world.view().over and world.view().finished, "nobody is there any more")
    restored(world, "lease")


def test_a_console_that_only_looks_renews_nothing(world: World) -> None:
    begin = waiting(world, "--lease", "9s")
    with at_a_terminal(world, "RUNNING wait", "--readonly") as terminal:
        begin.touch()
        terminal.until("DOWN for this run", 60)
        shows(world, "baseline returns in 0:0")
        told = world.console("show", world.run.id, "--json").json["guard"]
        assert 0 < told["lease_s"] <= 9, told
        assert told["attended"] is False
        restored(world, "lease")
    shown = world.console("show", world.run.id)
    assert "LEASE RAN OUT: nobody was attached for 9 s" in shown.out, shown
    assert "GUARD BREACH" not in shown.out, shown
    assert "stopped by the lease: nobody" in shown.out, shown


def test_a_baseline_that_came_back_later_is_not_down(world: World) -> None:
    """Everything of the run died; another run found a baseline that somebody had started."""
    outage(world)
    assert ready(world.run)
    # the runner first: it would have the sentinel back at once
    for kind in ("runner", "sentinel", "ladder", "step", "process"):
        for pid, start in world.pids(kind):
            process.send(pid, start, signal.SIGKILL)
    world.dead()
    dead = world.run
    assert "BASELINE DOWN" in world.console("show", dead.id).out
    world.bring_up()
    done = world.go(world.write("other.yaml", book("id: a, note: x", name="other")))
    assert done.code == 0, done
    shown = world.console("show", dead.id)
    assert "BASELINE DOWN" not in shown.out, shown
    assert "served again at" in shown.out, shown
    assert shown.code == 4, "interrupted it is still"
    assert json.loads(world.console("show", dead.id, "--json").out)["state"] == "interrupted"


@pytest.mark.parametrize("name", ["rollback.sh", "without-python.sh"])
def test_the_sealed_script_sends_ladder_and_sentinel_home(world: World, name: str) -> None:
    outage(world, "--lease", "10m")
    sentinel, ladder = ready(world.run), world.pids("ladder")
    assert sentinel is not None
    argv = ["sh", str(world.run.rollback / name)]
    done = subprocess.run(argv, env=world.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    world.until(lambda: not process.alive(*sentinel), "the sentinel has ended")
    world.until(lambda: not process.alive(*ladder[0]), "the ladder has left")
    assert world.serves()
    assert done.stderr == ""
    assert world.console("rollback").code == 0
    assert str(world.over().state) == "rolled_back", world.words


def test_ctrl_c_detaches_and_attach_takes_over(world: World) -> None:
    stop = world.root / "stop"
    wait = f'id: long, script: "echo waiting; until test -e {stop}; do sleep 0.02; done"'
    path = world.write("b.yaml", book(UP, wait, *gate("25", 'go: ">= 20 tok/s"')))
    follower = world.start("run", str(path))
    assert follower.stdout is not None
    assert any(" long: " in line for line in follower.stdout), "it follows"
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=LIMIT_S)
    assert follower.returncode == 130, (out, err)
    assert "detached" in out
    assert f"omni-console attach {world.run.id[-4:]}" in out
    assert "Traceback" not in err
    assert world.pids("runner"), "the run goes on"
    listed = world.console("runs", "--json").json["runs"]
    assert [(r["run"], r["state"]) for r in listed] == [(world.run.id, "running")]
    assert world.console("show").code == 4
    attached = world.start("attach", world.run.id[-4:], "--json")
    stop.touch()
    out, err = attached.communicate(timeout=LIMIT_S)
    assert attached.returncode == 0, (out, err)
    assert '"state": "succeeded"' in out
    assert "GATE GO" in err
    assert world.console("attach", world.run.id).code == 0, "an ended run is told again"


def test_a_run_outlives_the_kill_of_its_follower(world: World) -> None:
    stop = world.root / "stop"
    wait = f'id: long, script: "until test -e {stop}; do sleep 0.02; done"'
    follower = world.start("run", str(world.write("b.yaml", book(wait))), "--json")
    world.until(lambda: world.runs, "the run begins")
    world.step("long", "running")
    follower.kill()
    follower.wait(timeout=LIMIT_S)
    stop.touch()
    assert str(world.over().state) == "succeeded"


def test_a_closed_pipe_is_no_error(world: World) -> None:
    assert world.go(world.write("b.yaml", book("id: a, note: reached"))).code == 0
    done = subprocess.run(
        ["sh", "-c", f"{shlex.quote(COMMAND)} runs | true"], env=world.env, capture_output=True,
        text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.stderr == ""
