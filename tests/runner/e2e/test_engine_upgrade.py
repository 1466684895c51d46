"""The shipped playbook engine-upgrade on real engines: a build that is as good, one that got slower
and one that refuses the weights."""

import json
import os
import sys
from pathlib import Path

import pytest

from console.config.locate import shipped
from tests.runner.e2e.boxes import LABEL, Boxes
from tests.runner.e2e.throttle import throttled
from tests.runner.e2e.world import World
from tests.runner.world import Outcome

PLAYBOOK = shipped() / "engine-upgrade.yaml"
ENGINE = f'exec "{sys.executable}" -m console.rehearsal.demo.engine "$@" --cache-ram 0'
REFUSES = "echo \"error loading model: unknown model architecture: 'llama'\" >&2; exit 1"


def build(world: World, name: str, body: str = ENGINE) -> Path:
    """A program that is started like a llama-server."""
    path = world.write(name, f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def slow_build(world: World, name: str) -> Path:
    """The same engine, slow when it is the one on trial."""
    port = world.cand_port
    slow = throttled(ENGINE.removeprefix("exec "), port, 20)
    return build(world, name, f'case "$*" in *{port}*) {slow};; esac\n{ENGINE}')


def given(world: World, program: object, **more: object) -> list[str]:
    """Inputs of a short trial. What else the machine does must not decide its gate."""
    inputs = {
        "program": program, "models": world.model.parent, "model": world.model.name,
        "trial_port": world.cand_port, "runs": 3, "soak": "25s", "watch": "10s",
        "go": "> 0.001 x baseline", "no_go": "< 0.001 x baseline", "prompt_go": "> 0 tok/s",
        "ram_floor": "64MiB", "reports": world.root / "reports", **more,
    }  # fmt: skip
    return [word for name, value in inputs.items() for word in ("--input", f"{name}={value}")]


def upgrade(world: World, program: Path, **more: object) -> Outcome:
    return world.go(PLAYBOOK, "--yes", *given(world, program, **more))


def test_a_build_as_good_gets_the_clients_and_the_old_one_is_kept(world: World) -> None:
    done = upgrade(world, build(world, "next"))
    assert (done.code, done.json["decision"], done.json["outcome"]) == (0, "go", "upgrade"), done
    assert done.json["cutover"]["what"] == "stays"
    assert world.serves(), "clients reach the new build at the old address"
    assert world.baseline() is None
    assert "engine-upgrade" in os.listdir(world.root / "reports")[0]
    back = world.console("rollback")
    assert back.code == 0, back
    assert world.serves()
    assert world.baseline() is not None, "the old build is what a rollback restores"


def test_a_slower_build_is_not_switched_to(world: World) -> None:
    usual = {"go": ">= 0.98 x baseline", "no_go": "< 0.95 x baseline", "contract": "false"}
    done = upgrade(world, slow_build(world, "next"), **usual)
    assert (done.code, done.json["decision"], done.json["outcome"]) == (6, "no_go", "retain"), done
    assert [one["step"] for one in done.json["verdicts"] if one["verdict"] == "NO-GO"] == [
        "as-good"
    ]
    assert not done.json["cutover"]
    assert world.serves()
    assert world.baseline() is not None


def test_a_build_that_drops_tools_is_named_before_anything_is_measured(world: World) -> None:
    done = upgrade(world, build(world, "next", f"{ENGINE} --no-jinja"))
    assert (done.code, done.json["decision"], done.json["outcome"]) == (6, "no_go", "retain"), done
    assert [one["step"] for one in done.json["verdicts"]][-1] == "same"
    assert "bench" not in done.json["metrics"]
    assert world.serves()
    assert world.baseline() is not None


def test_a_build_that_refuses_the_weights_costs_no_outage(world: World) -> None:
    before = world.baseline()
    done = upgrade(world, build(world, "next", REFUSES))
    assert done.code in (3, 5), done
    assert [one["step"] for one in done.json["verdicts"] if one["verdict"] == "NO-GO"] == [
        "architecture"
    ]
    assert world.baseline() == before
    assert world.serves()


def test_beside_the_baseline_there_is_no_outage_and_nothing_is_left(world: World) -> None:
    before = world.baseline()
    done = upgrade(world, build(world, "next"), exclusive="false", serve="false")
    assert (done.code, done.json["decision"], done.json["outage_s"]) == (0, "go", None), done
    assert world.baseline() == before
    assert not world.listens(world.cand_url)


@pytest.mark.full
def test_a_new_image_has_the_same_words_and_gets_the_clients(
    boxed: Boxes, extra_image: str
) -> None:
    """Real containers of one llama.cpp, the new one by another tag: contract and quality too."""
    world, boxed.image = boxed.world, extra_image
    made = boxed.docker("create", "--label", f"{LABEL}={boxed.scope}", extra_image, "true")
    entry = 'ENTRYPOINT ["llama-server"]'
    boxed.docker("commit", "--change", entry, made, f"omni-test/next:{boxed.base_name}")
    site = json.loads(boxed.site(container=boxed.base_name))
    site["baseline"]["models"] = [str(boxed.models / "deepseek2.gguf")]
    world.site.write_text(json.dumps(site))
    boxed.baseline()
    given = {
        "build": "image", "image": f"omni-test/next:{boxed.base_name}", "model": "deepseek2.gguf",
        "models": boxed.models, "args": "-t 1 -c 1024 --slots --metrics", "cards": "",
        "trial_port": world.cand_port, "runs": 3, "soak": "25s", "watch": "10s",
        "go": "> 0.001 x baseline", "no_go": "< 0.001 x baseline", "prompt_go": "> 0 tok/s",
        "ram_floor": "64MiB", "reports": world.root / "reports", "quality": "true",
    }  # fmt: skip
    words = [word for name, value in given.items() for word in ("--input", f"{name}={value}")]
    done = world.go(PLAYBOOK, "--yes", *words)
    assert (done.code, done.json["decision"], done.json["outcome"]) == (0, "go", "upgrade"), done
    assert world.view().metrics["quality"]["mean_kld"]["value"] < 0.005
    assert done.json["cutover"]["what"] == "stays"
    assert world.serves()
    assert not boxed.running(boxed.base_name)
    assert world.console("rollback").code == 0
    assert boxed.running(boxed.base_name)
