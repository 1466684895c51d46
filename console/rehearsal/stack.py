"""One service of a compose file as a rehearsal runs it: a file of its own, resolved and rewritten.

The stand-in's image, moved ports, no GPU reservation, its own network, a CPU quota, and a place to
say what it holds of the scripted cards. The operator's file is only read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping as Table
from pathlib import Path
from typing import Any

from console.common.errors import UsageError
from console.common.text import one_line
from console.rehearsal import workspace
from console.rehearsal.inside.settings import HOLDS
from console.rehearsal.workspace import Mapping
from console.runtime.docker.client import engine_host
from console.runtime.docker.compose import base_argv
from console.runtime.docker.compose_cli import compose
from console.runtime.docker.engine_state import silent

KEPT = ("command", "entrypoint", "environment", "working_dir", "shm_size", "ipc", "ulimits", "user",
        "init", "stop_grace_period")  # fmt: skip
RESOLVE_S = 30.0


def resolve(file: Path, service: str, profile: str, env: Table[str, str], host: str) -> Any:
    """The service as `docker compose config` gives it. Raises ConsoleError."""
    argv = base_argv((file,), "", (profile,) if profile else ())
    text = compose(
        [*argv, "config", "--format", "json"], engine_host(host or None), env,
        "Reading the compose file", RESOLVE_S, silent,
    )  # fmt: skip
    found = (json.loads(text).get("services") or {}).get(service)
    if not isinstance(found, dict):
        raise UsageError(f"there is no service {one_line(service)} in {file}")
    return found


def stand_in(service: str, found: Table[str, Any], tag: str, mapping: Mapping) -> dict[str, Any]:
    """A compose file with this one service."""
    kept = {key: found[key] for key in KEPT if found.get(key)}
    mounts = [_mount(one) for one in found.get("volumes") or () if one.get("type") == "bind"]
    holds = {"type": "bind", "source": str(workspace.holds()), "target": HOLDS}
    limits = ((found.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    memory = found.get("mem_limit") or limits.get("memory")
    made: dict[str, Any] = {
        **kept, "image": tag, "volumes": [*mounts, holds], "cpus": round(mapping.cpus, 4),
        "ports": [_port(one, mapping) for one in found.get("ports") or ()], "restart": "no",
    }  # fmt: skip
    if memory:
        made["mem_limit"] = memory
    if found.get("container_name"):
        made["container_name"] = workspace.own_name(found["container_name"])
    return {"name": "omni-rehearsal", "services": {service: made}}


def write(content: Table[str, Any]) -> Path:
    """The file, named after its content. Raises OSError."""
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = workspace.directory() / "stacks" / f"{digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def moved(source: str) -> str:
    """A path of the playbook's machine in the rehearsal's work directory; made if need be."""
    if source.startswith(str(workspace.directory())):
        return source
    path = workspace.work() / source.lstrip("/")
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def aside(path: str) -> str:
    """Where a report goes that would be filed as a real trial's."""
    if path.startswith(str(workspace.directory())):
        return path
    return str(workspace.directory() / "reports" / Path(path).name)


def _mount(one: Table[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in one.items() if key in ("type", "target", "read_only")}
    return {**kept, "source": moved(str(one["source"]))}


def _port(one: Table[str, Any], mapping: Mapping) -> dict[str, Any]:
    published = str(mapping.port(str(one.get("published") or one["target"])))
    return {**one, "host_ip": "127.0.0.1", "published": published}
