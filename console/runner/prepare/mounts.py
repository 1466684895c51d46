"""What a container mounts of this machine and this machine lacks. It is looked for before step 1:
a container that cannot be started, or is started without its model, would cost an outage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from console.common.text import one_line
from console.runtime.loading import of_container
from console.runtime.spec import ContainerSpec, weights

FILES = frozenset({
    ".gguf", ".safetensors", ".json", ".jinja", ".jinja2", ".yaml", ".yml", ".toml", ".ini",
    ".conf", ".env", ".txt", ".sh", ".py", ".pem", ".crt", ".key",
})  # fmt: skip
"""Ends of names that no directory has."""
WRITTEN = frozenset({"log", "logs", "tmp", "run"})
"""Names of directories in a container in which nothing is looked for that was there before."""


def is_missing(source: Path) -> bool:
    """Whether a path is seen to be missing; one that this user may not see may be there."""
    try:
        return not source.exists()
    except OSError:
        return False


def gone(spec: ContainerSpec) -> Iterator[Path]:
    """The sources of a declared container's mounts that are not there. The console asks the engine
    for a mount of what exists, and makes no directory in its place."""
    for mount in spec.mounts:
        if is_missing(source := Path(mount.source)):
            yield source


def lost(inspected: Mapping[str, Any]) -> str:
    """Why an inspected container of this machine would not come back as it is, because what it
    mounts has gone since it was made, in clean words; "" if it would.

    For `-v` the engine makes an empty directory of root's, which is no harm where a server writes
    its logs, and costs it a cache or its settings elsewhere; for `--mount` it refuses to start the
    container.
    """
    requested_mounts = (inspected.get("HostConfig") or {}).get("Mounts") or ()
    strict = {
        str(request.get("Source"))
        for request in requested_mounts
        if not (request.get("BindOptions") or {}).get("CreateMountpoint")
    }
    model = {str(path) for path in weights(of_container(inspected))}
    for mount in inspected.get("Mounts") or ():
        source = Path(str(mount.get("Source") or ""))
        if mount.get("Type") != "bind" or not source.is_absolute() or not is_missing(source):
            continue
        where = f"it mounts {one_line(str(source), 200)}, which is not there any more"
        if str(source) in strict:
            return f"{where}: the engine refuses to start it"
        if source.suffix.lower() in FILES or str(source) in model:
            return f"{where}: the engine would make a directory of it"
        if mount.get("RW") is False or any(Path(path).is_relative_to(source) for path in model):
            return f"{where}: the engine would mount an empty directory"
        if not WRITTEN & set(Path(str(mount.get("Destination") or "")).parts):
            return f"{where}: the engine would make an empty directory of root's in its place"
    return ""
