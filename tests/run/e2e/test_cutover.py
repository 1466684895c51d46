"""Blue/green on real llama.cpp servers: clients on the production port reach the candidate, and
whatever dies on the way, a rollback gives them the baseline."""

from __future__ import annotations

import subprocess

from console.services import relay
from tests.run.e2e.sites import SIDE, UP, book
from tests.run.e2e.world import World

WATCH = "watch: 100ms, every: 100ms"
BACK = "id: cut, cutover: {to: cand, watch: 2s, every: 1s}"
STAY = f"id: cut, cutover: {{to: cand, {WATCH}, then: stay}}"
LONG = "id: cut, cutover: {to: cand, watch: 10m, every: 1s, then: stay}"
FAULTS = (
    "after_intent@cut", "effect_recorded@cutover", "cut_over", "service_ready@cutover", "in_watch",
    "after_effect@cut", "after_result@cut",
)  # fmt: skip


def is_back(world: World) -> None:
    """The baseline itself answers on the production port, and nothing else is up."""
    assert relay.at(world.base_url) is None
    assert world.serves()
    assert world.baseline() is not None
    assert not world.listens(world.cand_url)


def is_cut_over(world: World) -> relay.Relay:
    """Clients on the production port are served, and not by the baseline."""
    found = relay.at(world.base_url)
    assert found is not None
    assert (found.service, found.run) == ("cand", world.run.id)
    assert world.serves()
    assert world.baseline() is None
    return found


def stay(world: World) -> relay.Relay:
    """A run that ended with its candidate on the production port."""
    done = world.go(world.write("stay.yaml", book(UP, STAY)))
    assert (done.code, done.json["state"]) == (0, "succeeded"), done
    world.over()
    return is_cut_over(world)


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


def test_the_sealed_script_ends_a_cutover(world: World) -> None:
    stay(world)
    world.run.live.write_text("")  # whatever record is lost
    script = subprocess.run(
        ["sh", str(world.run.script)], env=world.env, timeout=90, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert script.returncode == 0, script.stdout + script.stderr
    assert relay.at(world.base_url) is None
    assert world.serves()
