"""What the console lays over a compose service: limits, labels, no restart, more arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from console.common.errors import ServiceError
from console.common.text import one_line
from console.host.process import COOKIE
from console.runtime.docker.container import LOGGING
from console.runtime.spec import OOM_SCORE, PIDS, ComposeSpec


@dataclass(frozen=True, slots=True)
class Resolved:
    """A compose service after `docker compose config`: what would run, and under which names."""

    config: dict[str, Any]
    service: dict[str, Any]
    image: str
    image_id: str
    digest: str
    project: str
    memory: int | None = None
    """Limits of RAM and of RAM plus swap, bytes."""

    @property
    def container_name(self) -> str:
        return str(self.service.get("container_name") or "")


def with_args(service: dict[str, Any], runs: ComposeSpec) -> dict[str, Any]:
    """The service with the playbook's words after its own. Raises ServiceError if it has none."""
    command = service.get("command")
    if not runs.args:
        return service
    if not isinstance(command, list):
        raise ServiceError(
            f"{one_line(runs.service)} has no command to which arguments can be added",
            "the image's own would be replaced by them",
            "write the service's `command:` into the compose file",
        )
    # Compose reads its own output again, and would put a variable in the place of `$NAME`.
    return {**service, "command": [*command, *(word.replace("$", "$$") for word in runs.args)]}


def override_of(
    resolved: Resolved,
    labels: Mapping[str, str],
    run_id: str,
    runs: ComposeSpec,
    known: Callable[[str, str], bool],
) -> dict[str, Any]:
    """The generated second compose file: limits, labels, no restart, the operator's own volumes.

    `known(kind, name)` tells whether the engine has a volume or network of that name.
    """
    service: dict[str, Any] = {
        "image": resolved.image,
        "pull_policy": "never",
        "restart": "no",
        "labels": dict(labels),
        "environment": {COOKIE: run_id},
        "oom_score_adj": OOM_SCORE,
        "logging": {"driver": "json-file", "options": dict(LOGGING)},
        **_limits(resolved),
    }
    if runs.args:
        service["command"] = resolved.service["command"]
    return _sharing(resolved, {"services": {runs.service: service}}, runs.service, known)


def _limits(resolved: Resolved) -> dict[str, Any]:
    """The console's limits and one container, under every key that means the same.

    Compose refuses a service whose `deploy` has another value than the older key beside it, and
    counts a limit that is missing in `deploy.resources.limits` as another value. The engine refuses
    a reservation above the limit.
    """
    deploy = resolved.service.get("deploy") or {}
    resources = deploy.get("resources") or {}
    memory = resolved.memory
    limits: dict[str, Any] = {"pids": PIDS}
    service: dict[str, Any] = {"scale": 1, "pids_limit": PIDS}
    again: dict[str, Any] = {"replicas": 1} if "replicas" in deploy else {}
    if memory:
        service |= {"mem_limit": memory, "memswap_limit": memory}
        limits["memory"] = str(memory)
        if _bytes(resolved.service.get("mem_reservation")) > memory:
            service["mem_reservation"] = memory
        if _bytes((resources.get("reservations") or {}).get("memory")) > memory:
            again["resources"] = {"reservations": {"memory": str(memory)}}
    if "limits" in resources:
        again.setdefault("resources", {})["limits"] = limits
    if deploy.get("restart_policy"):  # it goes before `restart`
        again["restart_policy"] = {"condition": "none"}
    return {**service, "deploy": again} if again else service


def _bytes(value: object) -> int:
    """A size as `docker compose config` prints it; 0 for none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0


def _sharing(
    resolved: Resolved, content: dict[str, Any], service: str, known: Callable[[str, str], bool]
) -> dict[str, Any]:
    """The override with the operator's volumes and networks instead of the project's own.

    A new project would get empty volumes and not see its neighbours. Volumes come in under a new
    key, because `external` excludes the other attributes of a volume.
    """

    def shared(kind: str) -> dict[str, dict[str, Any]]:
        entries = (resolved.config.get(kind) or {}).items()
        return {key: at for key, at in entries if at and known(kind, str(at.get("name")))}

    volumes = shared("volumes")
    mounts = [
        {**mount, "source": f"omni-shared-{mount['source']}"}
        for mount in resolved.service.get("volumes") or ()
        if mount.get("type") == "volume" and mount.get("source") in volumes
    ]
    if mounts:
        content["services"][service]["volumes"] = mounts
        content["volumes"] = {
            f"omni-shared-{key}": {"name": at["name"], "external": True}
            for key, at in volumes.items()
        }
    networks = shared("networks")
    if networks:  # external: compose would make anew one whose attributes differ from the file's
        content["networks"] = {
            key: {"name": at["name"], "external": True} for key, at in networks.items()
        }
    return content
