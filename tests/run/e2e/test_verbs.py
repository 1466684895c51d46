"""What an operator can do to a run from another terminal, each verb acknowledged and recorded."""

from __future__ import annotations

import shlex
import signal
import subprocess

from tests.run.e2e.sites import UP, book, gate
from tests.run.e2e.world import COMMAND, LIMIT_S, World

GREY = 'go: ">= 20 tok/s", no_go: "< 10 tok/s"'


def test_ctrl_c_detaches_and_attach_takes_over(world: World) -> None:
    stop = world.root / "stop"
    wait = f'id: long, script: "echo waiting; until test -e {stop}; do sleep 0.02; done"'
    path = world.write("b.yaml", book(UP, wait, *gate("25", GREY)))
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
