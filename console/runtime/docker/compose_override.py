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
    deploy = resolved.service.get("deploy") or {}
    limits = (deploy.get("resources") or {}).get("limits") or {}
    service: dict[str, Any] = {
        "image": resolved.image,
        "pull_policy": "never",
        "restart": "no",
        "labels": dict(labels),
        "environment": {COOKIE: run_id},
        "oom_score_adj": OOM_SCORE,
        "pids_limit": PIDS,
        "logging": {"driver": "json-file", "options": dict(LOGGING)},
    }
    if runs.args:
        service["command"] = resolved.service["command"]
    again: dict[str, Any] = {}
    if "pids" in limits:  # compose refuses two different limits in its two places
        again["pids"] = PIDS
    if resolved.memory:
        service |= {"mem_limit": resolved.memory, "memswap_limit": resolved.memory}
        if "memory" in limits:
            again["memory"] = str(resolved.memory)
    if again:
        service["deploy"] = {"resources": {"limits": again}}
    if deploy.get("restart_policy"):  # it goes before `restart`
        service.setdefault("deploy", {})["restart_policy"] = {"condition": "none"}
    return _sharing(resolved, {"services": {runs.service: service}}, runs.service, known)


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
