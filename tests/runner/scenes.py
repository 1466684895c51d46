"""What tests of scripted runs and of real ones begin with, and what both look for at the end."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.checks.preflight.architecture.names import probe
from console.common import paths
from console.config.locate import shipped
from console.config.yaml import parse
from console.runtime import proxy
from tests.runner.e2e.sites import UP, book
from tests.runner.world import WorldBase as World
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub, Repo, files

R1 = "deepseek-ai/DeepSeek-R1"
GGUF = "unsloth/DeepSeek-R1-GGUF"
DECLARED = ("machine", "gpus", "aliases")
KNOWN = ("--override", "known-blocker=to see where it ends today")
MACHINE = {
    "machine": {
        "ram": "377GiB", "ram_used": "23GiB", "swap": "207GiB", "disk_free": "1800GB",
        "disk_read": "10GB/s", "line": "500Mbit/s", "cpu": "a Threadripper",
        "cpu_flags": ["avx2", "avx512f"],
    },
    "gpus": [
        {"uuid": "GPU-a", "name": "RTX PRO 6000", "memory": "96GiB", "compute": "12.0"},
        {"uuid": "GPU-b", "name": "RTX 5090", "memory": "32GiB", "compute": "12.0"},
    ],
}  # fmt: skip
BIG = "meituan/DeepSeek-R1-Block-INT8"
SMALL = "example/small"
LONG = "id: long, run: [sleep, '600']"
WATCH = "watch: 100ms, every: 100ms"
STAY = f"id: cut, cutover: {{to: cand, {WATCH}, then: stay}}"


@pytest.fixture
def outage(world: World) -> World:
    """A run in the middle of its outage: the candidate serves, a step runs."""
    world.detach(world.write("b.yaml", book(UP, LONG)))
    world.until(lambda: world.at("long").state == "running" and world.pids("step"), "the outage")
    assert world.baseline() is None
    return world


def restored(world: World) -> None:
    """Everything as a rollback leaves it."""
    assert world.serves()
    assert not world.listens(world.cand_url)
    assert not world.pids("step")
    world.until(lambda: not world.pids("runner"), "no runner is left")
    world.until(lambda: not world.pids("closer"), "nor the one that closed")


def points(world: World) -> bool:
    """Whether this user's pointer still names the run, which is over."""
    path = Path(world.env["OMNI_HOST_DIR"]) / paths.pointer(os.getuid()).name
    found = json.loads(path.read_bytes()) if path.exists() else {}
    return bool(found) and found["over"] and found["run_id"] == world.run.id


def roll_back(world: World, **env: str) -> dict[str, object]:
    done = world.console("rollback", "--json", **env)
    assert (done.code, done.json["serving"]) == (0, True), done
    restored(world)
    return done.json


def closed(world: World) -> None:
    assert str(world.over().state) == "rolled_back", world.words
    assert world.run.report.exists()


def is_back(world: World) -> None:
    """The baseline itself answers on the production port, and nothing else is up."""
    assert proxy.at(world.base_url) is None
    assert world.serves()
    assert world.baseline() is not None
    assert not world.listens(world.cand_url)


def is_cut_over(world: World) -> proxy.Relay:
    """Clients on the production port are served, and not by the baseline."""
    found = proxy.at(world.base_url)
    assert found is not None
    assert (found.service, found.run) == ("cand", world.run.id)
    assert world.serves()
    assert world.baseline() is None
    return found


def stay(world: World) -> proxy.Relay:
    """A run that ended with its candidate on the production port."""
    done = world.go(world.write("stay.yaml", book(UP, STAY)))
    assert (done.code, done.json["state"]) == (0, "succeeded"), done
    world.over()
    return is_cut_over(world)


@pytest.fixture
def hub(world: World) -> Iterator[LocalHub]:
    """The world's hub; the example's machine stands in its site file."""
    world.site.write_text(json.dumps(json.loads(world.site.read_text()) | MACHINE))
    with LocalHub() as made:
        made.add(*(hub_shapes.repo(name) for name in (BIG, "example/gated", "example/empty")))
        made.add(Repo(SMALL, files({"model.gguf": probe("llama").ljust(300_000, b"x")})))
        world.env |= {
            "HF_ENDPOINT": made.url, "HF_HOME": str(world.root / "hf"), "HF_HUB_DISABLE_XET": "1",
        }  # fmt: skip
        yield made


def output(world: World, step: str) -> str:
    return " ".join(world.run.attempt_log(step, 1).read_text().split())


@pytest.fixture
def omni(world: World) -> Iterator[World]:
    """The world's own baseline on the machine that the example site declares, and its hub."""
    text = (shipped() / "sites/omni.yaml").read_text()
    example = parse(text, "omni.yaml", "").data
    mine = json.loads(world.site.read_text())
    world.site.write_text(json.dumps(mine | {key: example[key] for key in DECLARED}))
    with LocalHub() as hub:
        hub.add(*(hub_shapes.repo(name) for name in (R1, GGUF)))
        world.env |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(world.root / "hf")}
        yield world
