"""What is laid over a compose service is taken by the real compose, whatever the file limits."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.runtime.docker.compose_override import Resolved, override_of
from console.runtime.spec import PIDS, ComposeSpec
from tests.testbed import compose
from tests.testbed.engine import _clients
from tests.testbed.plugin import need

GIB = 1024**3
LIMITS = [
    "mem_limit: 2g",
    "memswap_limit: 3g",
    "mem_limit: 2g, memswap_limit: -1",
    "mem_reservation: 3g",
    "cpus: 2",
    "pids_limit: 5",
    "scale: 3",
    "scale: 0",
    "deploy: {}",
    "deploy: {replicas: 2}",
    "deploy: {replicas: 0}, scale: 0",
    "deploy: {mode: global}",
    "deploy: {resources: {limits: {}}}",
    "deploy: {resources: {limits: {memory: 1g}}}",
    "deploy: {resources: {limits: {cpus: '2'}}}",
    "deploy: {resources: {limits: {pids: 9}}}",
    "deploy: {resources: {limits: {memory: 1g, cpus: '2'}}}, cpus: 2",
    "deploy: {resources: {limits: {pids: 9}}}, pids_limit: 9",
    "deploy: {resources: {reservations: {memory: 3g}}}",
    "deploy: {resources: {reservations: {memory: 3g}}}, mem_reservation: 3g",
    "deploy: {resources: {limits: {memory: 4g}, reservations: {cpus: '1'}}}",
    "deploy: {resources: {reservations: {devices: [{count: all, capabilities: [gpu]}]}}}",
    "deploy: {restart_policy: {condition: any}}",
]


@dataclass
class Plugin:
    """The real compose, without an engine."""

    folder: Path
    client: str = ""

    def config(self, *files: Path) -> dict[str, Any]:
        argv = [self.client, "compose", *(word for file in files for word in ("-f", str(file)))]
        env = {**os.environ, "DOCKER_CONFIG": str(compose.docker_config())}
        done = subprocess.run(
            [*argv, "config", "--format", "json"], env=env, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr.decode()
        return dict(json.loads(done.stdout)["services"]["lab"])


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path, need(lambda: compose.ensure_compose(_clients()))[0])


def over(service: dict[str, Any], memory: int | None) -> dict[str, Any]:
    config = {"services": {"lab": service}}
    resolved = Resolved(config, service, "busybox", "sha256:1", "d", "p", memory)
    spec = ComposeSpec((Path("compose.yaml"),), "lab")
    return override_of(resolved, {}, "run-1", spec, lambda kind, name: False)


@pytest.mark.parametrize("memory", [GIB, None])
@pytest.mark.parametrize("limits", LIMITS)
def test_no_limit_of_the_file_contradicts_the_consoles(
    plugin: Plugin, limits: str, memory: int | None
) -> None:
    """Compose refuses two values for what two of its keys mean, and only when it starts one."""
    file, laid = plugin.folder / "compose.yaml", plugin.folder / "over.json"
    file.write_text(f"name: x\nservices:\n  lab: {{image: busybox, {limits}}}\n")
    service = plugin.config(file)
    laid.write_text(json.dumps(over(service, memory)))
    merged = plugin.config(file, laid)
    deploy = merged.get("deploy") or {}
    assert merged["pids_limit"] == PIDS
    assert merged.get("scale", 1) == deploy.get("replicas", 1) == 1
    if memory:
        assert (merged["mem_limit"], merged["memswap_limit"]) == (str(GIB), str(GIB))
        kept = (deploy.get("resources") or {}).get("reservations") or {}
        reserved = (merged.get("mem_reservation"), kept.get("memory"))
        assert all(int(one) <= GIB for one in reserved if one), "the engine refuses more"
    if "cpus: 2" in limits:
        assert merged["cpus"] == 2


def test_what_the_file_does_not_limit_is_not_invented() -> None:
    service = over({"image": "busybox"}, GIB)["services"]["lab"]
    assert not {"mem_reservation", "cpus", "deploy"} & set(service)
