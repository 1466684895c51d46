"""A tuning step on real engines: the baseline's own flags, a runner that dies in the middle, and a
context that the kernel does not grant."""

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
    'points: 12, flags: {"-ub": [32, 512], "-fa": ["on", "off"], "-ctk -ctv": [f16, q8_0]}}'
)
LIMIT = 384 << 20


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
    # a quantized cache of values needs flash attention
    argv = found(world)["argv"]
    assert argv[: len(world.engine(world.model, world.base_port))][-1]
    assert str(world.base_port) in argv
    assert (world.run.path / "report/tune-tune.svg").exists()


@pytest.mark.engine
def test_a_context_that_the_kernel_does_not_grant_is_bisected(boxed: Boxes) -> None:
    spec = ModelSpec("long", blocks=10, seed=2, width=512, heads=8, context=65536)
    write_llama(boxed.models / "visible.gguf", spec)
    argv = [*server("visible.gguf"), "--no-warmup"]
    argv[argv.index("-c") + 1] = "2048"
    candidate = {**boxed.candidate("visible.gguf"), "exclusive": False}
    candidate["container"] = {**candidate["container"], "command": argv, "memory": "384MiB"}
    site = json.loads(boxed.site(container=boxed.base_name))
    site["services"] = {"cand": candidate}
    boxed.world.site.write_text(json.dumps(site))
    boxed.baseline()
    flags = '{"-c": "2048..32768 by 2048"}'
    asked = f"service: cand, flags: {flags}, max_tokens: 4, runs: 2, gain: 0"
    done = boxed.world.go(boxed.world.write("b.yaml", book(f"id: tune, tune: {{{asked}}}")))
    assert done.code == 0, done
    rows = {context(row): row for row in found(boxed.world)["points"]}
    killed = [size for size, row in rows.items() if row["fate"] == "host"]
    fitted = [size for size, row in rows.items() if row["fate"] == "measured"]
    assert killed
    assert max(fitted) < min(killed)
    assert len(killed) <= 5
    assert all(row["ram"] <= LIMIT for row in rows.values() if row["ram"])
    assert boxed.world.serves()


def context(row: dict[str, Any]) -> int:
    changes: str = row["changes"]
    return 2048 if changes == "as it is" else int(changes.split()[1])
