"""Services as an operator writes them, and as plain `ServiceSpec` values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.config.validation import Arg, ByteCount, Duration, OneOf, Strict, Text
from console.host.activation import Activation
from console.host.process import ProcessSpec
from console.host.units import UnitSpec
from console.runtime.spec import (
    GRACE_S,
    ComposeSpec,
    ContainerSpec,
    Mount,
    Ready,
    Runs,
    ServiceSpec,
)


def _port(value: Any) -> str:
    match = re.fullmatch(r"(\d{1,5}):(\d{1,5})", value) if isinstance(value, str) else None
    if not match or not all(0 < int(p) < 65536 for p in match.groups()):
        raise ValueError("HOST:CONTAINER, like 8001:8080")
    return str(value)


def _mount(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^:\0]+:/[^:\0]*(:(ro|rw))?", value):
        raise ValueError("SOURCE:/TARGET[:ro|:rw], like /nvme/models:/models:ro")
    return value


def _env_name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("an environment variable's name, like HF_HOME")
    if value.startswith("OMNI_"):
        raise ValueError("a name that does not begin with OMNI_ (the console's own)")
    return value


def _service_name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", value):
        raise ValueError("a service name of a-z, 0-9, - and _")
    if value == "baseline":
        raise ValueError("another name; the site's baseline has this one")
    if value == "cutover":
        raise ValueError("another name; the console's own relay has this one")
    return value


def _url(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"http://[\w.\-\[\]:]+(/[^\s?#]*)?", value):
        raise ValueError("http://HOST:PORT")
    try:
        port = urlsplit(value).port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("http://HOST:PORT with a port from 1 to 65535")
    return value.rstrip("/")


EnvName = Annotated[str, BeforeValidator(_env_name)]
ServiceName = Annotated[str, BeforeValidator(_service_name)]
"""The key of a service; it names the service's log file and container."""
Port = Annotated[str, BeforeValidator(_port), WithJsonSchema({"type": "string"})]
MountText = Annotated[str, BeforeValidator(_mount), WithJsonSchema({"type": "string"})]
Url = Annotated[str, BeforeValidator(_url), WithJsonSchema({"type": "string"})]


class ReadyModel(Strict):
    http: str = Field("/health", pattern="^/")
    timeout: Annotated[Duration, Field(gt=0)] = 900.0
    stable_for: Duration = 0.0

    def spec(self) -> Ready:
        return Ready(self.http, self.timeout, self.stable_for)


class ContainerModel(Strict):
    """A container the console creates; never privileged, published on loopback only."""

    image: Text
    command: list[Arg] = []
    entrypoint: list[Arg] = []
    name: str = Field("", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$|^$")
    ports: list[Port] = []
    mounts: list[MountText] = []
    env: dict[EnvName, Arg] = {}
    gpus: Literal["all"] | list[str] = []
    memory: ByteCount | None = None
    shm: ByteCount | None = None
    cpus: float | None = Field(None, gt=0)
    pids: int = Field(4096, gt=0)
    network: Text = ""
    workdir: Text = ""

    def spec(self, base: Path) -> ContainerSpec:
        return ContainerSpec(
            image=self.image,
            command=tuple(self.command),
            entrypoint=tuple(self.entrypoint),
            name=self.name,
            ports=tuple((int(h), int(c)) for h, c in (p.split(":") for p in self.ports)),
            mounts=tuple(mount(text, base) for text in self.mounts),
            env=tuple(sorted(self.env.items())),
            gpus=("all",) if self.gpus == "all" else tuple(self.gpus),
            memory_bytes=self.memory,
            shm_bytes=self.shm,
            cpus=self.cpus,
            pids=self.pids,
            network=self.network,
            workdir=self.workdir,
        )


class ComposeModel(Strict):
    """A service of a compose file. `args`: words after those of the service's own `command`."""

    file: Text
    service: Text
    args: list[Arg] = []
    profile: str | None = None
    project: str = ""
    env: dict[EnvName, Arg] = {}
    memory: ByteCount | None = None

    def spec(self, base: Path) -> ComposeSpec:
        return ComposeSpec(
            files=(base / self.file,),
            service=self.service,
            args=tuple(self.args),
            profiles=(self.profile,) if self.profile else (),
            project=self.project,
            env=tuple(sorted(self.env.items())),
            memory_bytes=self.memory,
        )


class EnvironmentModel(Strict):
    """What a command on this machine finds beside the usual: the programs of a conda environment or
    virtual environment (its prefix; PATH, CONDA_PREFIX, and CUDA_HOME where it has nvcc), and the
    variables of a file of NAME=VALUE lines, in which nothing is expanded. Both are read when the
    command starts. `env` comes on top."""

    conda: Text = ""
    file: Text = ""

    def activation(self, base: Path) -> Activation:
        return Activation(*(path and str(base / os.path.expanduser(path))
                            for path in (self.conda, self.file)))  # fmt: skip


class ProcessModel(Strict):
    argv: list[Arg] = Field(min_length=1)
    env: dict[EnvName, Arg] = {}
    cwd: Text = ""
    environment: EnvironmentModel = EnvironmentModel()

    @model_validator(mode="after")
    def _no_shell(self) -> ProcessModel:
        home = next((arg for arg in self.argv if arg.startswith("~/")), None)
        if home is not None:
            raise ValueError(f"!no shell reads an argv: write {home} out in full")
        return self

    def spec(self, base: Path) -> ProcessSpec:
        cwd = str(base / self.cwd) if self.cwd else str(base)
        env, within = tuple(sorted(self.env.items())), self.environment.activation(base)
        return ProcessSpec(tuple(self.argv), env, cwd, within)


class UnitModel(Strict):
    """A service that systemd runs: the machine's own, or with `user` this user's."""

    name: Annotated[Text, Field(pattern=r"^[A-Za-z0-9][\w:.@\\-]*\.service$")]
    user: bool = False

    def spec(self, base: Path) -> UnitSpec:
        return UnitSpec(self.name, self.user)


class ServiceModel(OneOf):
    """A candidate: exactly one of `container`, `compose`, `process`, and where it answers."""

    ONE_OF = ("container", "compose", "process")
    REFUSED = "a service is exactly one of container, compose or process"

    container: ContainerModel | None = None
    compose: ComposeModel | None = None
    process: ProcessModel | None = None
    url: Url
    ready: ReadyModel = ReadyModel()
    exclusive: bool = False
    keep: bool = False
    grace: Duration = GRACE_S

    @model_validator(mode="after")
    def _keep_or_exclusive(self) -> ServiceModel:
        if self.keep and self.exclusive:
            raise ValueError("!keep and exclusive: the baseline comes back at the end of the run")
        return self

    def spec(self, name: str, base: Path) -> ServiceSpec:
        """The value every driver takes; relative paths are resolved against `base`."""
        model = self.container or self.compose or self.process
        assert model is not None
        runs: Runs = model.spec(base)
        ready = self.ready.spec()
        return ServiceSpec(name, self.url, runs, ready, self.exclusive, self.keep, self.grace)


def mount(text: str, base: Path) -> Mount:
    """`SOURCE:/TARGET[:rw]` → Mount; a relative source is relative to `base`."""
    source, target, *mode = text.split(":")
    return Mount(str(base / os.path.expanduser(source)), target, mode != ["rw"])


def one_of_services(known: Iterable[str]) -> str:
    """What is expected when a named service is not declared."""
    names = ", ".join(sorted(known))
    return f"one of {names}" if names else "a service under services:"
