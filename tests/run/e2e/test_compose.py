"""Baseline and candidate out of one compose file; the baseline is never touched by `up`."""

from __future__ import annotations

import json

import pytest

from tests.run.e2e.boxes import LABEL, Boxes, server
from tests.run.e2e.sites import UP, book

pytestmark = pytest.mark.engine


def stack(boxed: Boxes) -> str:
    """A compose file as operators have them: restart always, depends_on, an environment."""

    def service(model: str, port: int, **more: object) -> dict[str, object]:
        return {
            "image": boxed.image,
            "command": server(model),
            "ports": [f"127.0.0.1:{port}:8080"],
            "volumes": [f"{boxed.models}:/models:ro"],
            "labels": {LABEL: boxed.scope},
            **more,
        }

    candidate = service(
        "tiny.gguf", boxed.world.cand_port, restart="always", profiles=["sandbox"],
        depends_on=["deepseek"], environment={"LITERAL": "a$$b"},
    )  # fmt: skip
    services = {
        "deepseek": service("deepseek2.gguf", boxed.world.base_port),
        "candidate": candidate,
    }
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
    assert labels["omni.role"] == "candidate"
    assert labels["omni.run"] == world.run.id
    assert labels["omni.service"] == "cand"
    assert candidate["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert candidate["HostConfig"]["Memory"] == 1 << 30
    assert "LITERAL=a$b" in candidate["Config"]["Env"]


def test_rollback_with_the_compose_file_changed_and_then_gone(composed: Boxes) -> None:
    world, before = composed.world, container(composed, "deepseek")
    world.detach(world.write("b.yaml", book(UP, "id: long, run: [sleep, '600']")))
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
