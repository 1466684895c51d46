"""`rollback` from a second shell, and the script, while everything they might lean on is broken."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from console.runtime import proxy
from tests.runner.e2e.sites import SIDE, UP, book, host_site
from tests.runner.e2e.world import World
from tests.runner.scenes import WATCH, closed, is_back, restored, roll_back, stay


def broken(root: Path, *names: str) -> str:
    """A PYTHONPATH on which these packages cannot be imported."""
    for name in names:
        package = root / "broken" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"raise ImportError('{name} is broken')\n")
    return str(root / "broken")


def test_with_the_journal_locked_by_somebody(outage: World) -> None:
    writer = sqlite3.connect(outage.run.journal, isolation_level=None, timeout=60)
    writer.execute("BEGIN IMMEDIATE")
    roll_back(outage)
    writer.execute("ROLLBACK")
    writer.close()
    done = outage.console("rollback", "--json")  # closes the journal at the latest
    assert (done.code, done.json["nothing_to_do"]) == (0, True), done
    closed(outage)


@pytest.mark.parametrize("warm", [True, False])
def test_with_every_third_party_package_broken(outage: World, warm: bool) -> None:
    if not warm:
        outage.kill("ladder")
    names = ("docker", "pydantic", "ruamel", "httpx", "psutil", "pynvml", "textual", "rich")
    path = broken(outage.root, *names)
    assert outage.console("runs", PYTHONPATH=path).code in (0, 1)
    roll_back(outage, PYTHONPATH=path)
    if not warm:  # the closer could not be imported either; the next ladder's can
        assert outage.console("rollback").code == 0
    closed(outage)


def test_a_run_right_after_a_rollback_in_one_line_begins(world: World) -> None:
    """A shell becomes its last command, which is then as old as the shell itself."""
    python, path = f"{sys.executable} -P -m console.cli", world.write("b.yaml", book(UP))
    line = f"sleep 0.1; {python} rollback >&2 && exec {python} run {path} --json --detach"
    done = subprocess.run(
        ["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=240, env=world.env, cwd=world.root, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert world.over().state == "succeeded"


@pytest.mark.parametrize("names", [("pynvml",), ("docker",)])
def test_a_whole_run_without_a_package_it_can_do_without(
    world: World, names: tuple[str, ...]
) -> None:
    site = json.loads(host_site(world))
    world.site.write_text(json.dumps({**site, "gpus": [{"uuid": "GPU-no-such"}]}))
    path = broken(world.root, *names)
    done = world.go(world.write("b.yaml", book(UP)), PYTHONPATH=path)
    assert done.code == 0, done
    step = next(s for s in done.json["steps"] if s["id"] == "baseline:stop")
    assert "GPU memory unknown" in step["detail"]
    restored(world)


@pytest.mark.parametrize("name", ["rollback.sh", "without-python.sh"])
@pytest.mark.parametrize("alive", [True, False])
def test_the_sealed_script_alone_under_dash(outage: World, alive: bool, name: str) -> None:
    if not alive:
        outage.kill("runner")
        outage.kill("ladder")
    env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": outage.env["XDG_STATE_HOME"]}
    shell = shutil.which("dash") or "/bin/sh"
    script = [shell, str(outage.run.rollback / name)]
    for _ in range(2):
        done = subprocess.run(
            script, env=env, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        restored(outage)
    before = outage.baseline()
    roll_back(outage)
    assert outage.baseline() == before, "the script's baseline is the ladder's baseline"
    closed(outage)


@pytest.mark.parametrize("stuck", ["runner", "ladder"])
def test_with_the_runner_or_the_warm_ladder_stuck(outage: World, stuck: str) -> None:
    outage.kill(stuck, signal.SIGSTOP)
    roll_back(outage)
    closed(outage)


@pytest.mark.parametrize("warm", [True, False])
def test_a_runner_that_gets_sigterm_brings_the_baseline_back(outage: World, warm: bool) -> None:
    """From systemd, or from somebody's `kill`."""
    if not warm:
        outage.kill("ladder")
    outage.kill("runner", signal.SIGTERM)
    closed(outage)
    restored(outage)


def test_a_run_restores_with_its_warm_ladder_stuck(outage: World) -> None:
    outage.kill("ladder", signal.SIGSTOP)
    done = outage.console("abort", outage.run.id)
    assert done.code == 6, done
    restored(outage)


def test_a_candidate_that_has_died_costs_no_outage(world: World) -> None:
    record = world.records / "side.json"
    kill = f"side=$(tr -dc '0-9,' < {record} | cut -d , -f 1); kill -9 $side; "
    kill += "while grep -q 'State:.[^ZX]' /proc/$side/status; do sleep 0.02; done"
    before = world.baseline()
    cut = f"id: cut, cutover: {{to: side, {WATCH}}}"
    steps = (SIDE, f'id: end, script: "{kill}"', cut)
    done = world.go(world.write("b.yaml", book(*steps)))
    assert done.code == 5, done
    assert world.at("baseline:stop").detail == "side does not run: nothing to cut over to"
    assert world.baseline() == before, "it was never stopped"
    is_back(world)


def test_a_candidate_that_dies_while_a_question_is_open_is_told(world: World) -> None:
    """Whoever approves believes that it serves."""
    ask = "id: ask, approval: {prompt: Go on?, expires: 60s}"
    world.detach(world.write("b.yaml", book(SIDE, ask)))
    world.state("waiting_approval")
    record = json.loads((world.records / "side.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    world.until(lambda: world.at("ask").message, "it is told")
    shown = world.console("show", world.run.id).out
    assert "meanwhile side died: ended by signal 9 (SIGKILL)" in shown, shown
    assert world.tell("abort").code == 0
    assert str(world.over().state) == "rolled_back"


@pytest.mark.parametrize("name", ["rollback.sh", "without-python.sh"])
def test_the_sealed_script_ends_a_cutover(world: World, name: str) -> None:
    stay(world)
    world.run.live.write_text("")  # whatever record is lost
    script = subprocess.run(
        ["sh", str(world.run.rollback / name)], env=world.env, timeout=90, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert script.returncode == 0, script.stdout + script.stderr
    assert proxy.at(world.base_url) is None
    assert world.serves()
