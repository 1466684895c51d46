"""What a follower is told when its run ends by somebody else's hand, and how a resume is told."""

from __future__ import annotations

import json

import pytest

from console.host.systemd import Detachment
from console.runner import launch
from tests.run.e2e.sites import UP, book
from tests.run.world import LONGEST_S
from tests.run.world import WorldBase as World

LONG = "id: long, run: [sleep, '600']"


def test_a_follower_learns_of_a_rollback_from_another_shell(world: World) -> None:
    follower = world.start("run", str(world.write("b.yaml", book(UP, LONG))), "--json")
    world.until(lambda: world.runs, "the run begins")
    world.step("long", "running")
    assert world.console("rollback").code == 0
    out, err = follower.communicate(timeout=LONGEST_S)
    assert follower.returncode == 6, (out, err)
    told = json.loads(out)
    assert (told["state"], told["decision"], told["exit_code"]) == ("rolled_back", None, 6)
    assert next(s for s in told["steps"] if s["id"] == "long")["state"] == "cancelled"
    assert "serving" in err


def test_a_run_without_a_runner_is_interrupted_and_a_headless_resume_does_not_guess(
    world: World,
) -> None:
    act = f'id: act, script: "echo act >> {world.effects}"'
    path = world.write("b.yaml", book(UP, act, "id: z, note: reached"))
    done = world.go(path, OMNI_FAULT="after_effect@act")
    assert (done.code, done.json["state"], done.json["exit_code"]) == (4, "interrupted", None), done
    assert "omni-console resume" in done.err
    assert "omni-console rollback" in done.err
    assert world.console("runs", "--json").json["runs"][0]["state"] == "interrupted"
    for verb in ("pause", "approve"):
        told = world.tell(verb)
        assert told.code == 5
        assert "interrupted" in told.err
    resumed = world.console("resume", "--json")
    assert (resumed.code, resumed.json["state"]) == (5, "failed"), resumed
    states = {s["id"]: s["state"] for s in resumed.json["steps"]}
    assert (states["act"], states["z"]) == ("in_doubt", "pending")
    assert world.done() == ["act"]
    assert world.serves(), "a run that ends leaves the baseline serving"
    assert not world.listens(world.cand_url)
    assert resumed.json["verbs"][-1]["verb"] == "resume"
    again = world.console("resume")
    assert again.code == 2
    assert "has ended" in again.err


def test_a_declared_idempotent_step_runs_again_and_a_proven_one_does_not(world: World) -> None:
    again = f'id: again, script: "echo again >> {world.effects}", idempotent: true'
    made = world.root / "made"
    once = f'id: once, script: "echo once >> {world.effects}; touch {made}", '
    once += f"unless: {{file: {made}}}"
    path = world.write("b.yaml", book(again, once))
    for fault in ("after_effect@again", "after_effect@once"):
        world.detach(path, OMNI_FAULT=fault)
        world.dead()
        assert world.console("resume", "--json").code == 0
        assert str(world.over().state) == "succeeded"
        wanted = {"again": ["again", "again", "once"], "once": ["again", "once"]}
        assert world.done() == wanted[fault.partition("@")[2]]
        world.effects.unlink()
        made.unlink()


def test_resume_from_a_step_repeats_what_the_operator_asks_for_and_records_it(
    world: World,
) -> None:
    steps = [f'id: {name}, script: "echo {name} >> {world.effects}"' for name in "abc"]
    world.detach(world.write("b.yaml", book(*steps)), OMNI_FAULT="after_result@b")
    world.dead()
    assert world.console("resume", "--from", "nowhere").code == 2
    assert world.done() == ["a", "b"]
    resumed = world.console("resume", "--from", "b", "--json")
    assert resumed.code == 0, resumed
    assert world.done() == ["a", "b", "b", "c"]
    verb = resumed.json["verbs"][-1]
    assert (verb["verb"], verb["step"]) == ("resume", "b")
    assert verb["who"]
    assert "from b" in verb["why"]


def test_a_resume_says_where_logind_would_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = f'id: act, script: "echo act >> {world.effects}", idempotent: true'
    world.detach(world.write("b.yaml", book(act)), OMNI_FAULT="after_effect@act")
    world.dead()
    monkeypatch.setattr(launch, "detachment", lambda: Detachment(False, "logind ends it"))
    resumed = world.console("resume", "--json")
    assert (resumed.code, "WARNING: logind ends it" in resumed.err) == (0, True), resumed


def test_a_second_resume_of_a_live_run_is_refused(world: World) -> None:
    world.detach(world.write("b.yaml", book(LONG)))
    done = world.console("resume")
    assert done.code == 2, done
    assert "omni-console attach" in done.err
