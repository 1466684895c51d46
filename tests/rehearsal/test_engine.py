"""Whole rehearsals in a real engine, beside a "real" baseline that must not notice."""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.runtime.spec import ROLE_VARIABLE
from tests.runner.e2e.world import COMMAND, free_port
from tests.testbed.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.full]
Ended = tuple[int, dict[str, Any], str]
"""Exit code, what is on stdout, what is on stderr."""
LIMIT_S = 300.0
REAL = f"rehearsal-test-{uuid.uuid4().hex[:12]}"
STACK = """\
services:
  server:
    image: ${IMAGE:-omni/kt:trial}
    container_name: kt-trial
    profiles: [trial]
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all,
      capabilities: [gpu]}]}}}
    environment: {CUDA_VISIBLE_DEVICES: "${OMNI_GPUS:?the cards}"}
    volumes: [/nvme/models:/models:ro]
    command: [python, -m, sglang.launch_server, --model-path, /models/x, --host, 0.0.0.0,
      --port, "8000"]
    ports: ["127.0.0.1:PORT:8000"]
"""
BOOK = """\
schema: omni.playbook/v1
name: trial
title: A trial
inputs:
  models: {type: path, default: /nvme/models, must_exist: true}
services:
  candidate:
    compose: {file: stack.yaml, profile: trial, service: server}
    url: http://127.0.0.1:PORT
    ready: {http: /health, timeout: 5m}
    exclusive: true
guards:
  - {metric: host.ram_available, below: 24GiB}
  - {log: candidate, matches: "CUDA error", count: 1}
phases:
  - title: Build
    steps:
      - {id: image, build: {context: ., tag: "omni/kt:trial", target: phase1}}
      - id: sm120
        run: [python3, -c, "import torch as t; raise SystemExit('sm_120' not in
          t.cuda.get_arch_list())"]
        where: {image: "omni/kt:trial", gpus: all}
        on_failure: rollback
      - {id: chain, imports: {image: "omni/kt:trial", modules: [kt_kernel, sglang.launch_server]}}
  - title: Trial
    steps:
      - {id: up, service: {start: candidate}, on_failure: rollback}
      - {id: bench, benchmark: {service: candidate, runs: 3, warmup: 0, prompts: [Hello]}}
      - id: decide
        gate:
          - {metric: bench.tok_s, go: "> 12 tok/s", no_go: "< 10 tok/s"}
          - {metric: gpu.peak_used, of: sum, no_go: "> 128GB"}
        on_no_go: rollback
"""


@dataclass
class Stage:
    """A directory with site, playbook and state; a real baseline's container runs in the engine."""

    root: Path
    env: dict[str, str]
    engine: Engine

    def console(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *args], env=self.env, cwd=self.root, timeout=LIMIT_S, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip

    def rehearse(self, *args: str) -> Ended:
        done = self.console("run", "trial.yaml", "--rehearse", "--json", *args)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    @property
    def role(self) -> str:
        """The label of whatever the rehearsals have started."""
        told = (self.root / "STATE/omni-console/rehearsal/environment.json").read_text()
        return str(json.loads(told)[ROLE_VARIABLE])

    @property
    def baseline(self) -> str:
        """The stand-in baseline's name, from the site that the rehearsal wrote."""
        site = self.root / "STATE/omni-console/rehearsal/site.yaml"
        return str(json.loads(site.read_text())["baseline"]["container"])

    def inspect(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.engine.run("inspect", name))[0]
        return found


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, engine: Engine, busy_image: str
) -> Iterator[Stage]:
    root, real, port = tmp_path_factory.mktemp("rehearsal"), free_port(), free_port()
    engine.run(
        "run", "-d", "--name", REAL, "--label", "omni.test=rehearsal",
        "-p", f"127.0.0.1:{real}:80", busy_image, "httpd", "-f",
    )  # fmt: skip
    (root / "site.yaml").write_text(
        "schema: omni.site/v1\nname: real\n"
        f'baseline: {{container: {REAL}, url: "http://127.0.0.1:{real}",\n'
        "  reference: {tok_s: 20}}\n"
    )
    (root / "stack.yaml").write_text(STACK.replace("PORT", str(port)))
    (root / "trial.yaml").write_text(BOOK.replace("PORT", str(port)))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMNI_", "PYTHONPATH"))}
    own = {f"XDG_{part}_HOME": str(root / part) for part in ("STATE", "CONFIG", "CACHE")}
    host = root / "host"
    host.mkdir()
    more = {"OMNI_HOST_DIR": str(host), "OMNI_SITE": str(root / "site.yaml")}
    made = Stage(root, {**kept, **own, **more, **engine.env()}, engine)
    yield made
    started = engine.run("ps", "-aq", "--filter", f"label={made.role}").split()
    engine.run("rm", "-f", "-v", REAL, made.baseline, *started)


@pytest.fixture(scope="module")
def before(stage: Stage) -> dict[str, Any]:
    """The real baseline, before anything was rehearsed."""
    return stage.inspect(REAL)


@pytest.fixture(scope="module")
def good(stage: Stage, before: dict[str, Any]) -> Ended:
    """The first rehearsal, of a trial that goes well."""
    return stage.rehearse()


def untouched(stage: Stage, before: dict[str, Any]) -> None:
    """The real baseline has not been stopped, and nothing says that a run was on its host."""
    now = stage.inspect(REAL)
    assert (now["Id"], now["State"]) == (before["Id"], before["State"])
    assert list((stage.root / "host").iterdir()) == []
    tags = stage.engine.run("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    assert "omni/kt:trial" not in tags


def test_a_trial_to_go_and_back(stage: Stage, before: dict[str, Any], good: Ended) -> None:
    code, found, _ = good
    assert (code, found["state"], found["decision"]) == (0, "succeeded", "go"), found
    assert (found["rehearsal"], found["fault"]) == (True, None)
    assert found["title"] == "REHEARSAL: A trial"
    assert found["site"] == "REHEARSAL-real"
    assert found["metrics"]["bench"]["tok_s"]["value"] > 12
    decide = next(one for one in found["verdicts"] if one["step"] == "decide")
    assert [one["verdict"] for one in decide["criteria"]] == ["GO", "GO"]
    assert found["restore_s"] is not None
    untouched(stage, before)
    assert not stage.inspect(stage.baseline)["State"]["Running"]
    assert "REHEARSAL" in stage.console("runs").stdout
    assert "omni-rehearsal/omni-kt:trial-" in stage.console("report").stdout


def test_a_load_that_eats_ram_is_killed_and_the_stand_in_comes_back(
    stage: Stage, before: dict[str, Any], good: Ended, busy_image: str
) -> None:
    left = left_up(stage, busy_image)
    code, found, _ = stage.rehearse("--fault", "ram", "--keep")
    assert not stage.inspect(left)["State"]["Running"]
    assert (code, found["state"], found["fault"]) == (6, "rolled_back", "ram"), found
    [breach] = [one for one in found["guards"] if one["kind"] == "breach"]
    assert breach["limit"]["metric"] == "host.ram_available"
    assert stage.inspect(stage.baseline)["State"]["Running"], "--keep"
    back = stage.console("rollback", "--rehearse", "--json")
    assert (back.returncode, json.loads(back.stdout)["serving"]) == (0, True), back
    untouched(stage, before)


def left_up(stage: Stage, busy_image: str) -> str:
    """`then: stay` leaves its candidate: on the scripted cards it is in the way of the next one."""
    return stage.engine.run(
        "run", "-d", "--init", "--label", f"{stage.role}=candidate",
        "--label", "omni.test=rehearsal", busy_image, "httpd", "-f",
    ).strip()  # fmt: skip
