"""A tuning step on real engines: the baseline's own flags, a runner that dies in the middle, and a
batch that the kernel does not grant."""

import json
from typing import Any

import pytest

from console.rehearsal.demo.model import ModelSpec, write_llama
from tests.runner.e2e.boxes import Boxes, server
from tests.runner.e2e.sites import book
from tests.runner.e2e.world import World
from tests.runner.whole.test_tune import found, once, stored

SWEEP = (
    "id: tune, tune: {service: baseline, prefer: request, prompt: 256, max_tokens: 16, runs: 2, "
    'points: 12, flags: {"-ub": [32, 512], "-fa": ["on", "off"], "-ctk -ctv": [f16, q8_0], '
    '"-c": [1000000000]}}'
)


def measured(world: World) -> list[dict[str, Any]]:
    return [row for row in found(world)["points"] if row["fate"] == "measured"]


def test_a_sweep_of_the_baseline_survives_its_runner(world: World) -> None:
    world.detach(world.write("b.yaml", book(SWEEP)))
    world.until(lambda: len(stored(world)) >= 3, "three points are kept")
    assert world.baseline() is None
    world.kill("runner")
    world.until(lambda: not world.pids("runner"), "the runner is gone")
    kept = once(world)
    assert world.console("resume").code == 0
    assert world.serves()
    assert once(world)[: len(kept)] == kept
    assert len(once(world)) == len(set(map(tuple, once(world))))
    rows = measured(world)
    assert len(rows) >= 4
    assert all(row["decode"] > 0 and row["prompt"] > 0 and row["ram"] > 1 << 20 for row in rows)
    huge = [row for row in found(world)["points"] if "-c 1000000000" in row["changes"]]
    assert [row["fate"] for row in huge] == ["unfit"] * len(huge) != []
    assert "1000000000" not in world.run.log("baseline-tuned").read_text()
    assert str(world.base_port) in found(world)["argv"]
    assert (world.run.path / "report/tune-tune.svg").exists()


@pytest.mark.engine
def test_a_batch_that_the_kernel_does_not_grant_is_bisected(boxed: Boxes) -> None:
    # scores of attention take batch x context x heads x 4 bytes, and are written with each prompt
    spec = ModelSpec("wide", blocks=1, seed=2, width=256, heads=64, context=4096)
    write_llama(boxed.models / "wide.gguf", spec)
    argv = [*server("wide.gguf"), "-fa", "off", "-np", "1"]
    argv[argv.index("-c") + 1] = "2048"
    candidate = {**boxed.candidate("wide.gguf"), "exclusive": False}
    candidate["container"] = {**candidate["container"], "command": argv, "memory": "384MiB"}
    site = json.loads(boxed.site(container=boxed.base_name))
    site["services"] = {"cand": candidate}
    boxed.world.site.write_text(json.dumps(site))
    boxed.baseline()
    flags = '{"-ub": "128..1024 by 128"}'
    asked = f"service: cand, flags: {flags}, depth: 1200, max_tokens: 2, runs: 1, gain: 0"
    done = boxed.world.go(boxed.world.write("b.yaml", book(f"id: tune, tune: {{{asked}}}")))
    assert done.code == 0, done
    rows = {batch(row): row for row in found(boxed.world)["points"]}
    killed = [size for size, row in rows.items() if row["fate"] == "host"]
    fitted = [size for size, row in rows.items() if row["fate"] == "measured"]
    assert killed
    assert max(fitted) < min(killed)
    assert len(killed) <= 4
    assert all(row["ram"] <= 384 << 20 for row in rows.values() if row["ram"])
    assert boxed.docker("ps", "-aq", "--filter", f"name={boxed.cand_name}") == ""
    assert boxed.world.serves()


def batch(row: dict[str, Any]) -> int:
    changes: str = row["changes"]
    return 512 if changes == "as it is" else int(changes.split()[1])


@pytest.mark.engine
def test_a_container_as_the_baseline_is_made_again_beside_itself(boxed: Boxes) -> None:
    boxed.world.site.write_text(boxed.site(container=boxed.base_name))
    before = boxed.baseline()
    asked = 'service: baseline, flags: {"-ub": [64]}, prompt: 256, max_tokens: 64, runs: 2'
    done = boxed.world.go(boxed.world.write("b.yaml", book(f"id: tune, tune: {{{asked}}}")))
    assert done.code == 0, done
    points = found(boxed.world)["points"]
    assert [row["why"] for row in points if row["fate"] != "measured"] == []
    assert {row["changes"] for row in points} == {"as it is", "-ub 64"}
    assert all(row["decode"] > 0 and row["prompt"] > 0 and row["ram"] > 1 << 20 for row in points)
    # the baseline's own container is back, untouched, and nothing else is left
    assert boxed.world.serves()
    assert boxed.inspect(boxed.base_name)["Id"] == before
    assert "-ub" not in boxed.inspect(boxed.base_name)["Config"]["Cmd"]
    left = boxed.docker("ps", "-aq", "--no-trunc", "--filter", "name=baseline-tuned")
    assert left == ""
