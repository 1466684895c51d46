"""The same runs on a real engine: a deepseek2 baseline and its candidates in containers, out of one
compose file, and with clients of the baseline at the candidate."""

import json
import shutil
import subprocess

import pytest

from console.runtime import proxy
from console.runtime.probe import fetch
from tests.runner.e2e.boxes import LABEL, Boxes, server
from tests.runner.e2e.sites import REPORT, UP, book
from tests.runner.e2e.test_emergency import broken
from tests.runner.scenes import LONG, STAY
from tests.testbed.kinds import OTHERS, USUAL
from tests.testbed.plugin import on_every_engine

pytestmark = pytest.mark.engine

BENCH = "id: bench, benchmark: {service: cand, max_tokens: 8, runs: 2, against: baseline}"
GO = 'id: go, gate: [{metric: bench.tok_s, go: "> 0.001 x baseline", min_samples: 2}], '
GO += "outcomes: {go: migrate}"


def restored(box: Boxes, baseline: str) -> None:
    """The same baseline container serves, the candidate stands still, nothing was removed."""
    assert box.world.serves()
    assert proxy.at(box.world.base_url) is None
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
    assert (labels["omni.role"], labels["omni.run"]) == ("candidate", box.world.run.id)
    assert candidate["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
    assert candidate["HostConfig"]["Memory"] == 1 << 30
    assert candidate["HostConfig"]["PortBindings"]["8080/tcp"][0]["HostIp"] == "127.0.0.1"
    assert "tiny" in box.world.console("logs", "cand", "--lines", "5000").out
    assert candidate["Id"] in box.ids(), "a candidate is stopped, never removed"


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
@pytest.mark.parametrize("name", ["rollback.sh", "without-python.sh"])
def test_the_sealed_script_alone_under_dash(outage: Boxes, name: str) -> None:
    world, before = outage.world, outage.inspect(outage.base_name)["Id"]
    world.kill("runner")
    world.kill("ladder")
    folder = outage.engine.env()["PATH"].split(":")[0]
    script = [shutil.which("dash") or "/bin/sh", str(world.run.rollback / name)]
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
    world.until(lambda: world.at("bench").message, "the benchmark runs")
    box.docker("kill", box.cand_name)
    assert str(world.over().state) == "rolled_back", world.words
    # not with a few good runs from before it died: a gate could call them GO
    assert world.at("bench").cause in ("signal", "output_invalid")
    restored(box, before)


# -- one compose file, of which `up` never touches the baseline ------------------------------------


def stack(boxed: Boxes) -> str:
    """A compose file as operators have them: restart always, depends_on, an environment."""

    def service(model: str, port: int, **more: object) -> dict[str, object]:
        return {
            "image": boxed.image, "command": server(model), "ports": [f"127.0.0.1:{port}:8080"],
            "volumes": [f"{boxed.models}:/models:ro"], "labels": {LABEL: boxed.scope}, **more,
        }  # fmt: skip

    candidate = service(
        "tiny.gguf", boxed.world.cand_port, restart="always", profiles=["sandbox"],
        depends_on=["deepseek"], environment={"LITERAL": "a$$b"},
    )  # fmt: skip
    baseline = service("deepseek2.gguf", boxed.world.base_port)
    services = {"deepseek": baseline, "candidate": candidate}
    return json.dumps({"name": f"e2e-{boxed.scope}", "services": services})


@pytest.fixture
def composed(boxed: Boxes) -> Boxes:
    """The baseline was brought up with `docker compose up -d`; the site names the service."""
    world = boxed.world
    file = world.write("stack.yaml", stack(boxed))
    boxed.docker("compose", "-f", str(file), "up", "-d", "deepseek")
    site = json.loads(boxed.site(compose={"file": "stack.yaml", "service": "deepseek"}))
    site["services"] = {
        "cand": {
            "compose": {"file": "stack.yaml", "service": "candidate", "profile": "sandbox",
                        "memory": "1GiB"},
            "url": world.cand_url, "exclusive": True, "ready": {"timeout": "60s"},
        }
    }  # fmt: skip
    world.site.write_text(json.dumps(site))
    boxed.world.until(boxed.world.serves, "the compose baseline serves")
    return boxed


def container(boxed: Boxes, service: str) -> str:
    [found] = boxed.ids("--filter", f"label=com.docker.compose.service={service}")
    return found


def test_a_candidate_of_the_same_file_leaves_the_baseline_its_container(composed: Boxes) -> None:
    world, before = composed.world, container(composed, "deepseek")
    bench = "id: bench, benchmark: {service: cand, max_tokens: 8, runs: 2}"
    done = world.go(world.write("b.yaml", book(UP, bench)))
    assert (done.code, done.json["state"]) == (0, "succeeded"), done
    assert container(composed, "deepseek") == before
    assert composed.running(before)
    assert world.serves()
    candidate = composed.inspect(container(composed, "candidate"))
    assert not candidate["State"]["Running"], "stopped at the end"
    labels = candidate["Config"]["Labels"]
    told = [labels[f"omni.{name}"] for name in ("role", "run", "service")]
    assert told == ["candidate", world.run.id, "cand"]
    assert candidate["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert candidate["HostConfig"]["Memory"] == 1 << 30
    assert "LITERAL=a$b" in candidate["Config"]["Env"]


def test_rollback_with_the_compose_file_changed_and_then_gone(composed: Boxes) -> None:
    world, before = composed.world, container(composed, "deepseek")
    world.detach(world.write("b.yaml", book(UP, LONG)))
    world.until(lambda: world.at("long").state == "running", "the outage")
    file = world.root / "stack.yaml"
    file.write_text(file.read_text().replace("-c", "--ctx-size"))
    done = world.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    assert container(composed, "deepseek") == before, "a changed file recreates nothing"
    assert str(world.over().state) == "rolled_back"
    file.unlink()
    composed.docker("stop", "-t", "1", before)
    done = world.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    assert container(composed, "deepseek") == before


# -- blue/green ------------------------------------------------------------------------------------


def model(url: str) -> str:
    """The file that the server behind a URL has loaded."""
    return str(json.loads(fetch(f"{url}/props", timeout_s=60.0).body)["model_path"])


@pytest.mark.parametrize("way", ["command", "rollback.sh", "without-python.sh"])
def test_clients_stay_at_a_container_until_a_rollback(box: Boxes, way: str) -> None:
    world, before = box.world, box.inspect(box.base_name)["Id"]
    done = world.go(world.write("b.yaml", book(UP, STAY)))
    assert (done.code, done.json["state"]) == (0, "succeeded"), done
    world.over()
    assert model(world.base_url).endswith("tiny.gguf"), "the same address, another server"
    assert not box.running(box.base_name)
    if way != "command":
        ran = subprocess.run(
            ["sh", str(world.run.rollback / way)], env=world.env, timeout=90, capture_output=True,
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
    world.until(lambda: world.view().cutover.what == "proven", "the watch has begun")
    box.docker("kill", box.cand_name)
    assert str(world.over().state) == "rolled_back", world.words
    assert "cand died" in world.at("cut").detail
    restored(box, before)


def test_promote_says_how_its_own_container_is_made(box: Boxes) -> None:
    world = box.world
    assert world.go(world.write("b.yaml", book(UP, STAY))).code == 0
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
