"""The running containers that serve a model, as their engine describes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.common.errors import EngineError
from console.common.files import read_text
from console.common.options.engines import Engine, engine_of, engine_of_image, port_of
from console.common.text import one_line
from console.host import process
from console.host.memory import pids_of_container
from console.host.ports import ENGINE_CLIENTS
from console.host.units import UnitSpec
from console.runtime.discovery import processes
from console.runtime.engine_api import (
    COMPOSE_PROJECT,
    COMPOSE_SERVICE,
    CONFIG_FILES,
    RawEngine,
    is_one_off,
    unfit_as_baseline,
)
from console.runtime.spec import REHEARSAL_LABEL, role_of


@dataclass(frozen=True, slots=True)
class Compose:
    """From which file compose made a container."""

    file: str
    service: str
    project: str


@dataclass(frozen=True, slots=True)
class Box:
    """A running container that serves a model; its texts are foreign, `unfit` and `hint` clean.

    `models` are the files that its command names, by their paths on this machine."""

    id: str
    name: str
    image: str
    engine: Engine
    url: str
    argv: tuple[str, ...] = ()
    compose: Compose | None = None
    models: tuple[str, ...] = ()
    unfit: str = ""
    hint: str = ""
    of_run: bool = False
    """A run or a rehearsal of this console made it."""
    unit: UnitSpec | None = None
    """The systemd unit whose client of the engine runs it."""

    @property
    def words(self) -> str:
        made = self.compose
        of = f" (compose {one_line(made.project, 40)}/{one_line(made.service, 40)})" if made else ""
        return f"container {one_line(self.name, 60)}{of}"


def boxes(engine: RawEngine) -> list[Box]:
    """The containers that serve a model. Raises EngineError if the engine gives no list."""
    model_boxes = []
    for row in engine.list_containers():
        try:
            made = _box(engine.inspect(row.id))
        except EngineError:
            continue  # it ended meanwhile, or hangs
        if made is not None:
            model_boxes.append(made)
    return model_boxes


def _box(container: dict[str, Any]) -> Box | None:
    config, identity = _table(container, "Config"), str(container.get("Id", ""))
    argv = (str(container.get("Path", "")), *map(str, container.get("Args") or ()))
    image = str(config.get("Image", ""))
    engine = engine_of(argv) or engine_of_image(image)
    if engine is None:  # a start script, perhaps: what it has started says more
        for pid in pids_of_container(identity):
            inside = processes.argv_of(pid)
            if engine := engine_of(inside):
                argv = inside
                break
    if engine is None:
        return None
    labels = {str(key): str(value) for key, value in _table(config, "Labels").items()}
    url, why = _url(container, engine, argv)
    hint = "make it again with a published port (-p 127.0.0.1:HOST:CONTAINER)" if why else ""
    of_run = bool(role_of(labels)) or REHEARSAL_LABEL in labels
    if of_run:
        why, hint = "a run or a rehearsal of this console made it, and ends it", ""
    name = str(container.get("Name", "")).lstrip("/")
    if not why and _table(container, "State").get("Paused") is True:
        why, hint = "it is paused and answers nobody", f"docker unpause {one_line(name, 60)}"
    models = tuple(_models(container, argv))
    unit = None if of_run else _unit_of_client(name, identity)
    if not why and unit is None:  # a unit makes its container again
        why, hint = unfit_as_baseline(container, url)
    return Box(
        identity, name, image, engine, url, argv, _compose(labels), models, why, hint, of_run, unit
    )  # fmt: skip


def _unit_of_client(name: str, identity: str) -> UnitSpec | None:
    """The unit in which a client of the engine (`docker run --name NAME`) runs this container:
    systemd would start it again when its container is stopped."""
    words = {name, f"--name={name}", identity, identity[:12]}
    for pid in process.pids():
        argv = processes.argv_of(pid)
        if argv and os.path.basename(argv[0]) in ENGINE_CLIENTS and words & set(argv):
            return processes.unit_of(read_text(f"/proc/{pid}/cgroup"))
    return None


def _url(container: Mapping[str, Any], engine: Engine, argv: tuple[str, ...]) -> tuple[str, str]:
    """Where this machine reaches it; and why it does not, in clean words."""
    given = (
        str(variable).partition("=") for variable in _table(container, "Config").get("Env") or ()
    )
    port = port_of(engine, argv, {name: value for name, _, value in given})
    if _table(container, "HostConfig").get("NetworkMode") == "host":
        return f"http://127.0.0.1:{port}", ""
    published = _table(_table(container, "NetworkSettings"), "Ports")
    doors = [
        (inner, str(binding.get("HostIp") or ""), str(binding.get("HostPort") or ""))
        for inner, rows in published.items() if inner.endswith("/tcp")
        for binding in rows or () if isinstance(binding, dict)
    ]  # fmt: skip
    doors.sort(key=lambda door: (door[0] != f"{port}/tcp", ":" in door[1]))
    for _, address, outer in doors:
        host = "127.0.0.1" if address in ("", "0.0.0.0", "::") else address
        return f"http://{f'[{host}]' if ':' in host else host}:{outer}", ""
    return f"http://127.0.0.1:{port}", "none of its ports is published on this machine"


def _compose(labels: Mapping[str, str]) -> Compose | None:
    """The one file that compose made it from; None for several files, or one that is gone, and for
    a container of `docker compose run`, which is not the service's."""
    if is_one_off(labels):
        return None
    made_from = labels.get(CONFIG_FILES, "").split(",")
    service, project = labels.get(COMPOSE_SERVICE, ""), labels.get(COMPOSE_PROJECT, "")
    if len(made_from) != 1 or not service or not os.path.isfile(made_from[0]):
        return None
    return Compose(made_from[0], service, project)


def _models(container: Mapping[str, Any], argv: tuple[str, ...]) -> list[str]:
    """The files with weights that a command names, where they are outside of the container."""
    model_files = []
    for word in argv:
        path = word.rpartition("=")[2] if word.startswith("-") else word
        for mount in container.get("Mounts") or ():
            inside, outside = str(mount.get("Destination", "")), str(mount.get("Source", ""))
            if path == inside or path.startswith(f"{inside.rstrip('/')}/"):
                at = os.path.normpath(outside.rstrip("/") + path[len(inside.rstrip("/")) :])
                # the root directory of this machine (`-v /:/host`) is nobody's weights
                if inside and outside and at not in (".", "/") and os.path.exists(at):
                    model_files.append(at)
    return list(dict.fromkeys(model_files))


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = value.get(key)
    return table if isinstance(table, dict) else {}
