"""Preflight steps and downloads in real runs, against a hub of true shapes over loopback."""

from __future__ import annotations

import json

import pytest

from console.checks.preflight.architecture.names import probe
from tests.run.e2e.sites import book
from tests.run.e2e.world import World
from tests.run.scenes import output
from tests.testbed.engine import Engine
from tests.testbed.hub import LocalHub


def test_an_architecture_that_the_build_refuses_cites_the_lesson(
    world: World, hub: LocalHub
) -> None:
    for name in ("deepseek2", "deepseek3_2"):
        (world.root / f"{name}.gguf").write_bytes(probe(name))
    known = "id: known, gguf: {file: deepseek2.gguf}"
    refused = "id: refused, gguf: {file: deepseek3_2.gguf}"
    done = world.go(world.write("b.yaml", book(known, refused)))
    assert done.code == 3, done
    assert done.json["decision"] == "no_go"
    verdicts = {v["step"]: v["verdict"] for v in done.json["verdicts"]}
    assert verdicts == {"known": "GO", "refused": "NO-GO"}
    assert "F-008" in output(world, "refused")
    assert "unknown model architecture" in output(world, "refused")


@pytest.mark.engine
def test_a_missing_image_of_a_build_step_is_not_to_be_pulled(world: World, engine: Engine) -> None:
    """The look, the check and the one-off container say the same: which step builds it."""
    build = "id: make, when: false, build: {context: ., tag: 'omni-test/unbuilt:1'}"
    wants = "on_failure: continue"
    path = world.write("b.yaml", book(
        build,
        f"id: check, check: {{image: 'omni-test/unbuilt:1'}}, {wants}",
        f"id: one-off, run: [x], where: {{image: 'omni-test/unbuilt:1'}}, {wants}",
        "id: chain, imports: {image: 'omni-test/unbuilt:1', modules: [x]}, on_no_go: continue",
    ))  # fmt: skip
    done = world.console("run", str(path), "--json", **engine.env())
    assert output(world, "chain").count("step make of this playbook builds it") == 1
    steps = {step["id"]: json.dumps(step) for step in done.json["steps"]}
    assert "step make of this playbook builds it" in steps["check"]
    shown = world.console("show", world.run.id).out
    assert shown.count("step make of this playbook builds it; by hand: cd ") >= 1
    assert "docker pull" not in shown + "".join(steps.values())
