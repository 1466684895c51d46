"""Who is measured, and who should be quiet meanwhile: a run's servers as processes of this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.bench.interference import Engine, Surroundings
from console.common import redact
from console.common.errors import ConsoleError
from console.common.text import clean, decode, one_line
from console.runner.context import Context
from console.runtime.spec import Handle

MOST_WORDS = 400


def surroundings(context: Context, service: str) -> Surroundings:
    """For one benchmark of a service: itself, and every other server that is up."""
    others = sorted(({"baseline"} | set(context.fleet.handles)) - {service})
    return Surroundings(engine(context, service), [engine(context, name) for name in others])


def engine(context: Context, name: str) -> Engine:
    """A service of the run as far as it can be known; never raises for what cannot."""
    try:
        # not `find`: that forgets a service that has died, and with it why
        handle = context.fleet.handles.get(name) or context.fleet.driver(name).find()
        if handle is None:
            return Engine(name)
        if handle.container:
            return _of_container(context, name, handle)
    except ConsoleError:
        return Engine(name)
    line = _read(Path(f"/proc/{handle.pid}/cmdline")).rstrip("\0")
    return Engine(name, handle.pid, {"argv": public(line.split("\0"))} if line else {})


def _of_container(context: Context, name: str, handle: Handle) -> Engine:
    from console.runtime.docker.client import inspect
    from console.runtime.docker.images import image_info

    client = context.fleet.client
    found = inspect(client, handle.container) or {}
    image = str(found.get("Image") or "")
    facts: dict[str, Any] = {
        "argv": public([str(found.get("Path") or ""), *map(str, found.get("Args") or [])]),
        "image": one_line(str((found.get("Config") or {}).get("Image") or "")),
        "image_id": one_line(image),
    }
    local = image_info(client, image) if image else None
    if local is not None:
        facts["repo_digests"] = list(local.repo_digests)
    pid = int((found.get("State") or {}).get("Pid") or 0)
    return Engine(name, pid if _is_here(pid, handle.container) else 0, facts)


def _is_here(pid: int, container: str) -> bool:
    """Whether the engine's pid means that container here too: an engine in a virtual machine, or
    behind another pid namespace, counts its own."""
    return pid > 0 and container[:12] in _read(Path(f"/proc/{pid}/cgroup"))


def public(argv: list[str]) -> list[str]:
    """An argv to keep: clean, and without what follows a flag that names a secret."""
    return [clean(word) for word in redact.argv(argv[:MOST_WORDS])]


def _read(path: Path) -> str:
    try:
        return decode(path.read_bytes())
    except OSError:
        return ""
