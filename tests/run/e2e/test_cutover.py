"""Blue/green on real llama.cpp servers: clients on the production port reach the candidate, and
whatever dies on the way, a rollback gives them the baseline."""

from __future__ import annotations

import subprocess

from console.runtime import proxy
from tests.run.e2e.sites import SIDE, book
from tests.run.e2e.world import World
from tests.run.scenes import WATCH, is_back, stay


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
    assert proxy.at(world.base_url) is None
    assert world.serves()
