"""The same runs on a real engine: a deepseek2 baseline and its candidates in containers."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.run.e2e.boxes import Boxes
from tests.run.e2e.sites import REPORT, UP, book
from tests.run.e2e.test_emergency import broken
from tests.testbed.kinds import OTHERS, USUAL
from tests.testbed.plugin import on_every_engine

pytestmark = pytest.mark.engine

BENCH = "id: bench, benchmark: {service: cand, max_tokens: 8, runs: 2, against: baseline}"
GO = 'id: go, gate: [{metric: bench.tok_s, go: "> 0.001 x baseline", min_samples: 2}], '
GO += "outcomes: {go: migrate}"
LONG = "id: long, run: [sleep, '600']"


def restored(box: Boxes, baseline: str) -> None:
    """The same baseline container serves, the candidate stands still, nothing was removed."""
    assert box.world.serves()
    assert box.inspect(box.base_name)["Id"] == baseline
    assert not box.world.listens(box.world.cand_url)
    assert box.ids("--filter", "status=running") == [baseline]


@pytest.fixture
def outage(box: Boxes) -> Boxes:
    """The candidate serves, the baseline's container is stopped, a step runs."""
    box.world.detach(box.world.write("b.yaml", book(UP, LONG)))
    box.world.until(lambda: box.world.at("long").state == "running", "the outage")
    assert not box.running(box.base_name)
    assert box.running(box.cand_name)
    return box


@on_every_engine
def test_a_whole_run_in_containers(box: Boxes) -> None:
    before = box.inspect(box.base_name)["Id"]
    inside = "id: inside, script: \"tr '\\\\0' ' ' </proc/1/cmdline; echo; echo layers 61\", "
    inside += "where: {service: cand}, outputs: {layers: {pattern: 'layers ([0-9]+)'}}"
    steps = (
        f"id: image, check: {{image: '{box.image}', platform: linux/amd64}}",
        f"id: version, run: [llama-server, --version], where: {{image: '{box.image}', "
        "memory: 512MiB}",
        "id: argv, run: [sh, -c, 'printf \"%s|\" \"$@\"; echo', x, \"a b\", \"$(id)\", --, "
        f"\"l1\\nl2\"], where: {{image: '{box.image}', memory: 512MiB}}",
        UP, inside, BENCH, GO,
    )  # fmt: skip
    done = box.world.go(box.world.write("b.yaml", book(*steps, final=REPORT)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    argv = box.world.run.attempt_log("argv", 1).read_text()
    assert argv == "a b|$(id)|--|l1\nl2|\n"
    assert "tiny.gguf" in box.world.run.attempt_log("inside", 1).read_text()
    restored(box, before)
    candidate = box.inspect(box.cand_name)
    labels = candidate["Config"]["Labels"]
    assert labels["omni.role"] == "candidate"
    assert labels["omni.run"] == box.world.run.id
    assert candidate["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
    assert candidate["HostConfig"]["Memory"] == 1 << 30
    assert candidate["HostConfig"]["PortBindings"]["8080/tcp"][0]["HostIp"] == "127.0.0.1"
    assert "tiny" in box.world.console("logs", "cand", "--lines", "5000").out
    assert candidate["Id"] in box.ids(), "a candidate is stopped, never removed"


def test_an_equal_candidate_is_used_again_and_another_one_is_set_aside(box: Boxes) -> None:
    path = box.world.write("b.yaml", book(UP))
    assert box.world.go(path).code == 0
    first = box.inspect(box.cand_name)["Id"]
    assert box.world.go(path).code == 0
    assert box.inspect(box.cand_name)["Id"] == first
    site = json.loads(box.world.site.read_text())
    site["services"]["cand"]["container"]["memory"] = "900MiB"
    box.world.site.write_text(json.dumps(site))
    assert box.world.go(path).code == 0
    assert box.inspect(box.cand_name)["Id"] != first
    assert first in box.ids(), "the older one was renamed aside, not removed"


def test_a_model_that_llama_cpp_refuses_in_a_container(box: Boxes) -> None:
    before = box.inspect(box.base_name)["Id"]
    up = "id: up, service: {start: broken}, on_failure: rollback"
    done = box.world.go(box.world.write("b.yaml", book(up)))
    assert (done.code, done.json["state"]) == (6, "rolled_back"), done
    step = next(s for s in done.json["steps"] if s["id"] == "up")
    assert "unknown model architecture: 'deepseek3_2'" in "\n".join(step["lines"]), step
    restored(box, before)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (USUAL, "baseline_stopped"), (USUAL, "effect_recorded@cand"), (USUAL, "before_restore"),
        *((kind, "service_ready@cand") for kind in (USUAL, *OTHERS)),
    ],
    indirect=["kind"], scope="session",
)  # fmt: skip
def test_the_runner_dies_and_a_rollback_restores(box: Boxes, fault: str) -> None:
    world, before = box.world, box.inspect(box.base_name)["Id"]
    world.detach(world.write("b.yaml", book(UP, "id: z, note: x")), OMNI_FAULT=fault)
    world.dead()
    done = world.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    restored(box, before)
    assert str(world.over().state) == "rolled_back"


@pytest.mark.parametrize("fault", ["baseline_stopped", "service_ready@cand"])
def test_the_runner_dies_and_a_resume_goes_on_with_the_same_candidate(
    box: Boxes, fault: str
) -> None:
    world, before = box.world, box.inspect(box.base_name)["Id"]
    world.detach(world.write("b.yaml", book(UP, "id: z, note: x")), OMNI_FAULT=fault)
    world.dead()
    there = box.inspect(box.cand_name)["State"] if "cand" in fault else None
    resumed = world.console("resume", "--json")
    assert (resumed.code, resumed.json["state"]) == (0, "succeeded"), resumed
    if there is not None:
        started = box.inspect(box.cand_name)["State"]["StartedAt"]
        assert started == there["StartedAt"], "the candidate that ran was taken over"
    restored(box, before)


@pytest.mark.parametrize("warm", [True, False])
def test_rollback_with_the_docker_package_broken(outage: Boxes, warm: bool) -> None:
    world, before = outage.world, outage.inspect(outage.base_name)["Id"]
    if not warm:
        world.kill("ladder")
    path = broken(world.root, "docker", "pydantic", "ruamel", "httpx", "psutil")
    done = world.console("rollback", "--json", PYTHONPATH=path)
    assert (done.code, done.json["serving"]) == (0, True), done
    restored(outage, before)


@on_every_engine
def test_the_sealed_script_alone_under_dash(outage: Boxes) -> None:
    world, before = outage.world, outage.inspect(outage.base_name)["Id"]
    world.kill("runner")
    world.kill("ladder")
    folder = outage.engine.env()["PATH"].split(":")[0]
    script = [shutil.which("dash") or "/bin/sh", str(world.run.script)]
    done = subprocess.run(
        script, env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True,
        timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    restored(outage, before)
    closing = world.console("rollback", "--json")
    assert (closing.code, closing.json["nothing_to_do"]) == (0, True), closing
    assert str(world.over().state) == "rolled_back"


def test_a_candidate_killed_from_outside_fails_the_benchmark(box: Boxes) -> None:
    world, before = box.world, box.inspect(box.base_name)["Id"]
    bench = "id: bench, benchmark: {service: cand, max_tokens: 900, runs: 200}, "
    bench += "on_failure: rollback"
    world.detach(world.write("b.yaml", book(UP, bench)))
    world.until(lambda: world.at("bench").said, "the benchmark runs")
    box.docker("kill", box.cand_name)
    assert str(world.over().state) == "rolled_back", world.words
    # not with a few good runs from before it died: a gate could call them GO
    assert world.at("bench").cause in ("signal", "output_invalid")
    restored(box, before)
