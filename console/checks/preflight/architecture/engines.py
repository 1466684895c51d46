"""The build behind a service: what the oracle asks, and the arguments it is run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.checks.preflight.architecture.in_image import ImageBuild
from console.checks.preflight.architecture.on_host import HostProgram, demo_engine
from console.checks.preflight.architecture.support import Engine
from console.common.errors import ServiceError
from console.common.text import one_line
from console.host.process_spec import ProcessSpec
from console.runtime.docker.client import inspect
from console.runtime.spec import ContainerSpec, ExistingContainer, ServiceSpec

if TYPE_CHECKING:
    import docker

DEMO = {"console.rehearsal.demo.engine", "console.demo.engine"}
"""Its name, and the one that site files of earlier versions have."""
"""The embedded demo's server: its name table lies in a Python package."""

Connect = Callable[[], "docker.DockerClient"]


@dataclass(frozen=True, slots=True)
class Command:
    """How a service is run: program and arguments, environment, and its image where it has one."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    image: str = ""
    entrypoint: tuple[str, ...] = ()


def command_of(spec: ServiceSpec, connect: Connect) -> Command:
    """The service's own command line; an existing container is asked for its own.

    Raises ServiceError, EngineError.
    """
    runs = spec.runs
    if isinstance(runs, ContainerSpec):
        return Command(spec.name, runs.command, dict(runs.env), runs.image, runs.entrypoint)
    if isinstance(runs, ProcessSpec):
        return Command(spec.name, runs.argv, dict(runs.env))
    if isinstance(runs, ExistingContainer):
        return _existing(spec.name, runs.name, connect)
    return _compose(spec, connect)


def engine_of(command: Command, connect: Connect) -> Engine:
    """The build to ask. Raises EngineError."""
    if command.image:
        return ImageBuild(
            connect(), command.image, entrypoint=command.entrypoint, command=command.argv,
            env=command.env,
        )  # fmt: skip
    if DEMO & set(command.argv) and (found := demo_engine(command.argv)) is not None:
        return found
    return HostProgram(command.argv, command.env)


def _existing(service: str, name: str, connect: Connect) -> Command:
    found = inspect(connect(), name)
    if found is None:
        hint = "docker ps -a; or give --image or --binary"
        raise ServiceError(f"the container {one_line(name)} of {service} is not there", "", hint)
    return _inspected(service, found)


def _inspected(service: str, found: Mapping[str, Any]) -> Command:
    config = found.get("Config") or {}
    pairs = [str(one).partition("=") for one in config.get("Env") or ()]
    return Command(
        service, tuple(str(one) for one in config.get("Cmd") or ()),
        {name: value for name, _, value in pairs}, str(found.get("Image", "")),
        tuple(str(one) for one in config.get("Entrypoint") or ()),
    )  # fmt: skip


def _compose(spec: ServiceSpec, connect: Connect) -> Command:
    """What the compose file comes to; nothing is created."""
    from console.runtime.docker.compose import ComposeDriver

    found = ComposeDriver(spec, connect(), Path("/nonexistent")).resolve()
    service = found.service
    env = {str(k): str(v) for k, v in (service.get("environment") or {}).items() if v is not None}
    return Command(
        spec.name, _words(service.get("command")), env, found.image_id,
        _words(service.get("entrypoint")),
    )  # fmt: skip


def _words(value: object) -> tuple[str, ...]:
    """A command of a resolved compose file: a list, or nothing."""
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
