"""Blue/green between real containers: the baseline is a deepseek2, the candidate a llama."""

from __future__ import annotations

import json
import subprocess

import pytest

from console.runtime import proxy
from console.runtime.probe import fetch
from tests.run.e2e.boxes import Boxes
from tests.run.e2e.sites import UP, book

pytestmark = pytest.mark.engine

WATCH = "watch: 100ms, every: 100ms"


def model(url: str) -> str:
    """The file that the server behind a URL has loaded."""
    return str(json.loads(fetch(f"{url}/props", timeout_s=5.0).body)["model_path"])


def restored(box: Boxes, baseline: str) -> None:
    assert proxy.at(box.world.base_url) is None
    assert model(box.world.base_url).endswith("deepseek2.gguf")
    assert box.world.serves()
    assert box.ids("--filter", "status=running") == [baseline]


@pytest.mark.parametrize("way", ["command", "script"])
def test_clients_stay_at_a_container_until_a_rollback(box: Boxes, way: str) -> None:
    world, before = box.world, box.inspect(box.base_name)["Id"]
    cut = f"id: cut, cutover: {{to: cand, {WATCH}, then: stay}}"
    done = world.go(world.write("b.yaml", book(UP, cut)))
    assert (done.code, done.json["state"]) == (0, "succeeded"), done
    world.over()
    assert model(world.base_url).endswith("tiny.gguf"), "the same address, another server"
    assert not box.running(box.base_name)
    if way == "script":
        ran = subprocess.run(
            ["sh", str(world.run.script)], env=world.env, timeout=90, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
    else:
        back = world.console("rollback", "--json")
        assert (back.code, back.json["serving"]) == (0, True), back
    restored(box, before)


def test_a_container_killed_in_the_watch_brings_the_baseline_back(box: Boxes) -> None:
    world, before = box.world, box.inspect(box.base_name)["Id"]
    world.detach(world.write("b.yaml", book(UP, "id: cut, cutover: {to: cand, watch: 10m}")))
    world.until(lambda: world.view().cutover.get("what") == "proven", "the watch has begun")
    box.docker("kill", box.cand_name)
    assert str(world.over().state) == "rolled_back", world.words
    assert "cand died" in world.at("cut").detail
    restored(box, before)


def test_promote_says_how_its_own_container_is_made(box: Boxes) -> None:
    world = box.world
    cut = f"id: cut, cutover: {{to: cand, {WATCH}, then: stay}}"
    assert world.go(world.write("b.yaml", book(UP, cut))).code == 0
    world.over()
    said = world.console("promote", "--why", "faster", "--yes", "--json").json
    [create] = said["before"]
    assert f"-p 127.0.0.1:{world.base_port}:8080" in create
    mine = create.replace("create", f"create --label omni.test={box.scope}", 1)
    made = subprocess.run(  # as a person types it; the label is this test's
        ["sh", "-c", mine], env={**world.env, "DOCKER_HOST": box.host}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    head = f"schema: omni.site/v1\nname: box\nengine: {{host: '{box.host}'}}\n"
    world.site.write_text(head + "\n".join(said["site_lines"]) + "\n")
    back = world.console("rollback", "--json")
    assert (back.code, back.json["serving"]) == (0, True), back
    assert proxy.at(world.base_url) is None
    assert model(world.base_url).endswith("tiny.gguf")
    assert box.ids("--filter", "status=running") == [made.stdout.strip()]
