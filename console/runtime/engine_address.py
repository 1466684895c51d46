"""Which container engine is meant: by the site file, the environment, or the docker command's own
choice of a context.

`docker context use NAME` is how people who run Docker Desktop, a rootless engine or several engines
say where theirs is. The library for Python does not read it (docker-py#2616, #3146), so a console
that asked the library alone would look at another engine than `docker ps` beside it. The order is
the docker command's: DOCKER_HOST, DOCKER_CONTEXT, then `currentContext` of its configuration.

Standard library only, because the emergency side uses it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common.errors import EngineError
from console.common.text import one_line

DEFAULT_SOCKET = "/var/run/docker.sock"
DEFAULT_HOST = f"unix://{DEFAULT_SOCKET}"
DEFAULT_CONTEXT = "default"
MAX_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where the engine listens, as DOCKER_HOST would have it, and who says so, in clean words;
    `source` is "" for the usual socket, which nobody had to name."""

    host: str
    source: str = ""


def address(given: str = "", environ: Mapping[str, str] | None = None) -> Address:
    """The engine's address; `given` is the site file's. Raises EngineError for a context that is
    not there or cannot be read: the usual socket would then be another engine's."""
    environ = os.environ if environ is None else environ
    if given:
        return Address(given, "the site file's `engine.host`")
    if host := environ.get("DOCKER_HOST", ""):
        return Address(host, "DOCKER_HOST")
    directory = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or "/", ".docker"))
    name, source = environ.get("DOCKER_CONTEXT", ""), "DOCKER_CONTEXT"
    if not name:
        configuration = _read(directory / "config.json")
        name, source = (
            str((configuration or {}).get("currentContext") or ""),
            "`docker context use`",
        )
    if not name or name == DEFAULT_CONTEXT:
        return Address(DEFAULT_HOST)
    import hashlib  # only where it is wanted: the watch has a budget of memory

    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    metadata = _read(directory / "contexts" / "meta" / digest / "meta.json")
    endpoint = ((metadata or {}).get("Endpoints") or {}).get("docker")
    host = str(endpoint.get("Host") or "") if isinstance(endpoint, dict) else ""
    if not host:
        raise EngineError(
            f"The docker context {one_line(name, 60)} cannot be read",
            f"{source} names it", "docker context ls; or set DOCKER_HOST",
        )  # fmt: skip
    return Address(host, f"{source}, context {one_line(name, 60)}")


def socket_of(engine_address: Address) -> str:
    """The path of the engine's socket. Raises EngineError if the engine is reached otherwise."""
    path = engine_address.host.removeprefix("unix://")
    if path.startswith("/"):
        return path
    by = f", by {engine_address.source}" if engine_address.source else ""
    raise EngineError(
        "The engine is not on this machine",
        f"{one_line(engine_address.host)} is not a unix socket{by}",
        "set DOCKER_HOST to unix:///path/to/docker.sock",
    )


def _read(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of the docker command; None if there is none."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(MAX_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
