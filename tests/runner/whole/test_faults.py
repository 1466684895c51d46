"""The runner dies at a named point; a rollback or a resume sets everything right.

The candidate is exclusive: at most of these points the baseline is down. Each step that is not
idempotent appends its name to a file each time it really acts.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from console.host import process
from console.journal.run_dir import RunDir
from console.runner import main
from console.runner.fault import POINTS
from tests.runner.e2e.sites import UP, book, gate
from tests.runner.scenes import restored, roll_back
from tests.runner.world import WorldBase as World

ROLLS = ("rolling_back",)
"""Points that only a run that rolls back reaches."""
FAULTS = (
    "run_started",
    "before_intent@mark", "after_intent@mark", "effect_recorded@mark", "after_effect@mark",
    "after_result@mark",
    "in_benchmark@baseline:measure", "after_intent@baseline:stop", "baseline_stopped",
    "after_intent@up", "effect_begun@cand", "effect_recorded@cand", "service_ready@cand",
    "after_result@up", "after_intent@inside", "after_effect@inside",
    "in_benchmark@bench", "in_approval@ask", "after_effect@go", "before_restore",
    "after_effect@restore", "rolling_back",
)  # fmt: skip
DOUBTFUL = {
    "after_intent@mark": "mark", "effect_recorded@mark": "mark", "after_effect@mark": "mark",
    "after_intent@inside": "inside", "after_effect@inside": "inside",
}  # fmt: skip
"""Where the intent of a step that is not idempotent has no result."""


def trial(world: World, fault: str) -> str:
    go = 'go: ">= 20 tok/s"'
    return book(
        f'id: mark, script: "echo mark >> {world.effects}"',
        UP,
        f'id: inside, script: "echo inside >> {world.effects}"',
        "id: bench, benchmark: {service: cand, max_tokens: 4, runs: 1, warmup: 0, "
        "against: baseline}",
        "id: ask, approval: {prompt: Go on?}",
        *gate("5" if fault in ROLLS else "25", go, ", on_no_go: rollback"),
        final=f'id: last, script: "echo last >> {world.effects}"',
    )


def approve(world: World) -> None:
    world.until(lambda: world.status().get("state") == "waiting_approval", "the approval waits")
    told = world.tell("approve")
    assert told.code == 0, told


def asked(fault: str) -> bool:
    """Whether the approval comes before the fault."""
    return fault in ("after_effect@go", "before_restore", "after_effect@restore", *ROLLS)


def crash(world: World, fault: str) -> None:
    """A run up to its fault; returns when its runner is gone."""
    world.detach(world.write("b.yaml", trial(world, fault)), OMNI_FAULT=fault)
    if asked(fault):
        approve(world)
    world.dead()


def test_every_point_that_a_playbook_reaches_is_here() -> None:
    elsewhere = {"sealed", "before_finally", "cut_over", "in_watch"}  # test_cutover has the last
    assert {fault.partition("@")[0] for fault in FAULTS} | elsewhere == set(POINTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rollback_from_a_second_shell_restores(world: World, fault: str) -> None:
    crash(world, fault)
    before = world.done()
    roll_back(world)
    view = world.over()
    assert str(view.state) == "rolled_back", world.words
    assert not view.outage
    world.until(lambda: not world.pids("ladder"), "the warm ladder went with the run")
    finished = ["last"] if "last" not in before else []
    assert [*before, *finished] == world.done(), "a rollback runs finally, and nothing else"
    assert len(set(world.done())) == len(world.done())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_resume_goes_on_and_repeats_nothing(world: World, fault: str) -> None:
    crash(world, fault)
    resumed = world.console("resume", world.run.id, "--detach")
    assert resumed.code == 0, resumed
    doubtful = DOUBTFUL.get(fault)
    if doubtful:
        view = world.state("paused:in_doubt")
        assert [s.id for s in view.steps if s.state == "in_doubt"] == [doubtful]
        told = world.tell("skip", "--reason", "seen by hand")
        assert told.code == 0, told
    if not asked(fault):
        approve(world)
    view = world.over()
    assert str(view.state) == ("rolled_back" if fault in ROLLS else "succeeded"), world.words
    wanted = ["mark", "inside", "last"]
    assert sorted(set(world.done())) == sorted(world.done()), "no effect happened twice"
    assert set(wanted) - {doubtful} <= set(world.done())
    restored(world)


def test_a_runner_that_dies_before_it_began_leaves_no_run(world: World) -> None:
    done = world.go(world.write("b.yaml", trial(world, "")), OMNI_FAULT="sealed")
    assert done.code == 1, done
    assert "died before it began" in done.json["error"]
    assert not world.runs
    assert not world.done()
    assert world.console("rollback", "--json").json["nothing_to_do"]


@pytest.mark.parametrize("way", ["rollback", "resume"])
def test_a_runner_that_dies_after_the_end_still_gets_its_finally(world: World, way: str) -> None:
    world.detach(world.write("b.yaml", trial(world, "")), OMNI_FAULT="before_finally")
    approve(world)
    world.dead()
    assert world.done() == ["mark", "inside"]
    [(pid, start)] = world.pids("ladder")
    if way == "rollback":  # its closer would inherit the fault from the warm ladder
        process.stop_group(pid, start, grace_s=0.0)
    done = world.console(way, "--json")
    assert done.code == 0, done
    world.until(lambda: world.done() == ["mark", "inside", "last"], "the last step ran once")
    assert str(world.over().state) == "succeeded"
    assert world.run.report.exists()
    world.until(lambda: not world.pids("ladder"), "the warm ladder went with the run")


def test_a_command_that_outlives_its_runner_is_ended_by_the_rollback(world: World) -> None:
    long = 'id: long, script: "sleep 600 & sleep 600"'
    world.detach(world.write("b.yaml", book(UP, long)))
    world.step("long", "running")
    world.until(lambda: world.pids("step"), "the command runs")
    world.interrupt()
    assert world.pids("step"), "the command outlived its runner"
    assert world.show()["state"] == "interrupted"
    assert world.console("rollback").code == 0
    assert not world.pids("step")
    assert str(world.over().state) == "rolled_back"
    assert world.console("show").code == 6
    again = world.console("rollback", "--json")
    assert (again.code, again.json["nothing_to_do"]) == (0, True), again


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def spoil(path: Path) -> None:
    """A journal whose pages after the first are garbage."""
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink()
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


BREAKS: dict[str, Callable[[RunDir], object]] = {
    "its playbook is gone": lambda run: run.playbook.unlink(),
    "its site file is gone": lambda run: run.site.unlink(),
    "its journal is garbage": lambda run: spoil(run.journal),
    "its journal is gone": lambda run: run.journal.unlink(),
    "its playbook and plan are gone": lambda run: [p.unlink() for p in (run.playbook, run.sealed)],
    "no thread is left": lambda run: None,
}


@pytest.mark.parametrize("what", [*BREAKS])
def test_a_resume_that_is_refused_leaves_nothing_unguarded(
    outage: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    outage.interrupt()
    outage.kill("ladder")
    BREAKS[what](outage.run)
    if what == "no thread is left":
        monkeypatch.setattr(main, "adopt_services", no_thread)
    done = outage.console("resume", "--detach")
    assert done.code != 0
    assert main.UNGUARDED in done.err
    outage.until(outage.serves, "the baseline is back")
    assert not outage.listens(outage.cand_url)
