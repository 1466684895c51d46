"""A container as a service: created by the console, or made by somebody else and only started.

Nothing here removes a container, pulls an image or gives a container more than its specification
asks for: no capabilities, no privileged mode, no ports beyond loopback, no engine socket.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common.errors import EngineError, ServiceError
from console.common.text import one_line
from console.host.cgroup import die_together
from console.host.process import COOKIE
from console.runtime.docker.client import (
    NameTaken,
    ask,
    engine_socket,
    inspect,
    is_podman,
    require_image,
)
from console.runtime.docker.engine_state import (
    EngineDriver,
    Say,
    labels_of,
    move_aside,
    name_is_foreign,
    refuse_of_another,
    refuse_running_older,
    settle_name,
    silent,
    status_of,
)
from console.runtime.spec import (
    OOM_SCORE,
    SPEC_LABEL,
    ContainerSpec,
    ExistingContainer,
    Handle,
    Launch,
    Mount,
    limited,
    role_label,
)

if TYPE_CHECKING:
    import docker

CREATE_S = 30.0
START_S = 60.0
"""Seconds to start, including the hooks that bring GPUs into the container."""
LOGGING = {"mode": "non-blocking", "max-buffer-size": "4m", "max-size": "50m", "max-file": "2"}
"""Log options: a slow log sink must not block the server's stdout; files on disk are capped."""


class ContainerDriver(EngineDriver):
    """A Driver for a ContainerSpec (labels and limits added) or an ExistingContainer."""

    @property
    def container_name(self) -> str:
        runs = self.spec.runs
        if not isinstance(runs, ContainerSpec | ExistingContainer):
            raise ServiceError(f"{self.spec.name} is not a container")
        return runs.name or f"omni-{self.spec.name}"

    def find(self) -> Handle | None:
        """The running container; for a ContainerSpec only one from an equal specification.

        Raises ServiceError if another site's or user's runs in its place.
        """
        container = inspect(self.client, self.container_name)
        if container is None or not status_of(container).alive:
            return None
        runs = self.spec.runs
        if isinstance(runs, ContainerSpec):
            labels = labels_of(container)
            if role_label() not in labels:
                return None
            refuse_of_another(self.container_name, labels, self.site)
            image = str(container.get("Image", ""))
            if labels.get(SPEC_LABEL) != spec_hash(bounded(self.client, runs), image):
                return None
        return self._handle(str(container["Id"]))

    def start(self, launch: Launch) -> Handle:
        """Create (or find an equal older one), record, start; raises EngineError, ServiceError."""
        runs = self.spec.runs
        if isinstance(runs, ExistingContainer):
            return self._start_existing(launch)
        assert isinstance(runs, ContainerSpec)
        runs = bounded(self.client, runs)
        image = require_image(self.client, runs.image)
        check_mounts(self.client, runs.mounts)
        digest = spec_hash(runs, image.id)
        older = settle_name(self.client, self.container_name, digest, self.site, self.say)
        if older is not None:
            return self._begin(self._handle(older), launch)
        refuse_running_older(self.client, self.spec.name, digest, self.site)
        try:
            return self._begin(self._create(runs, digest, launch, OOM_SCORE), launch)
        except EngineError as error:
            if "oom score adj" not in error.detail.lower().replace("_", " "):
                raise
        self.say("the engine refuses oom_score_adj: the kernel may not take the candidate first")
        name = self.container_name
        refused = inspect(self.client, name)
        if refused is not None:
            move_aside(self.client, name, str(refused["Id"]), self.say)
        return self._begin(self._create(runs, digest, launch, None), launch)

    def _handle(self, container: str) -> Handle:
        return Handle(self.spec.name, "container", container=container, name=self.container_name)

    def _begin(self, handle: Handle, launch: Launch) -> Handle:
        """Record the container before starting it: an unrecorded one is not rolled back."""
        launch.record(handle)
        ask(f"Starting {handle.name}", lambda: self.client.api.start(handle.container), START_S)
        if isinstance(self.spec.runs, ContainerSpec):
            die_together(handle.container)
        return handle

    def _start_existing(self, launch: Launch) -> Handle:
        name = self.container_name
        container = inspect(self.client, name)
        if container is None:
            raise ServiceError(
                f"There is no container named {one_line(name)}",
                "it is only started and stopped here, never created",
                "`docker ps -a` lists the names",
            )
        return self._begin(self._handle(str(container["Id"])), launch)

    def _create(
        self, runs: ContainerSpec, digest: str, launch: Launch, oom_score: int | None
    ) -> Handle:
        runs, labels = with_cookie(runs, launch), self.marked(launch, digest)
        made = create(self.client, runs, self.container_name, labels, oom_score, self.say)
        return self._handle(made)


def bounded(client: docker.DockerClient, spec: ContainerSpec) -> ContainerSpec:
    """The specification with this machine's default limit if it names none; unchanged for another
    machine, whose RAM is unknown here."""
    return limited(spec) if is_here(client) else spec


def is_here(client: docker.DockerClient) -> bool:
    """Whether the engine runs on this machine."""
    return client.api.base_url == "http+docker://localhost"


def with_cookie(spec: ContainerSpec, launch: Launch) -> ContainerSpec:
    """The specification with the run's cookie in its environment, which identifies strays."""
    return replace(spec, env=(*spec.env, (COOKIE, launch.run_id)))


def spec_hash(spec: ContainerSpec, image_id: str) -> str:
    """sha256 (hex) of a resolved specification; a tag that moved to another image changes it."""
    text = json.dumps([asdict(spec), image_id], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def create(
    client: docker.DockerClient,
    spec: ContainerSpec,
    name: str,
    labels: Mapping[str, str],
    oom_score: int | None = OOM_SCORE,
    say: Say = silent,
) -> str:
    """Create a container without starting it; return its full id. Raises EngineError, ServiceError.

    Warnings of the engine are reported: one without control groups discards every limit.
    """
    config = _host_config(client, spec, oom_score)

    def call() -> dict[str, Any]:
        made: dict[str, Any] = client.api.create_container(
            spec.image,
            command=list(spec.command) or None,
            entrypoint=list(spec.entrypoint) or None,
            name=name,
            environment=dict(spec.env),
            ports=[inner for _, inner in spec.ports] or None,
            working_dir=spec.workdir or None,
            labels=dict(labels),
            host_config=config,
        )
        return made

    try:
        made = ask(f"Creating {name}", call, CREATE_S)
    except NameTaken:
        raise name_is_foreign(name) from None
    for words in made.get("Warnings") or ():
        say(f"the engine warns of {name}: {one_line(str(words))}")
    return str(made["Id"])


def _host_config(client: docker.DockerClient, spec: ContainerSpec, oom_score: int | None) -> Any:
    from docker import types

    options: dict[str, Any] = {
        "restart_policy": {"Name": "no"},
        "log_config": types.LogConfig(type="json-file", config=LOGGING),
        "pids_limit": spec.pids,
        "init": True,
        "port_bindings": {inner: ("127.0.0.1", outer) for outer, inner in spec.ports},
        "mounts": [
            types.Mount(mount.target, mount.source, type="bind", read_only=mount.read_only)
            for mount in spec.mounts
        ],
    }
    if oom_score is not None:
        options["oom_score_adj"] = oom_score
    if spec.memory_bytes:
        # Equal limits mean no swap: thrashing would take the whole machine along.
        options |= {"mem_limit": spec.memory_bytes, "memswap_limit": spec.memory_bytes}
    if spec.shm_bytes:
        options["shm_size"] = spec.shm_bytes
    if spec.cpus:
        options["nano_cpus"] = int(spec.cpus * 1e9)
    if spec.network:
        options["network_mode"] = spec.network
    if spec.gpus:
        options["device_requests"] = [types.DeviceRequest(**_cards(spec.gpus, is_podman(client)))]
    return client.api.create_host_config(**options)


def _cards(gpus: tuple[str, ...], by_cdi: bool) -> dict[str, Any]:
    """The device request for these cards. Podman silently ignores Docker's form: it needs the names
    of the Container Device Interface, and refuses one that is not described."""
    if by_cdi:
        return {"driver": "cdi", "device_ids": [f"nvidia.com/gpu={gpu}" for gpu in gpus]}
    which = {"count": -1} if gpus == ("all",) else {"device_ids": list(gpus)}
    return {"capabilities": [["gpu"]], **which}


def check_mounts(client: docker.DockerClient, mounts: tuple[Mount, ...]) -> None:
    """Raise ServiceError for a source that is missing or would hand over the engine."""
    if not is_here(client):
        return  # the paths are those of another machine
    for mount in mounts:
        source = Path(mount.source)
        if not source.is_absolute() or _is_missing(source):
            raise ServiceError(
                f"There is nothing to mount at {one_line(mount.source)}",
                f"for {one_line(mount.target)} in the container",
                "create it, or correct `mounts:` in the playbook",
            )
        socket = Path(engine_socket(unix_host(client))).resolve()
        if socket.is_relative_to(source.resolve()):
            raise ServiceError(
                f"Mounting {one_line(mount.source)} would hand the engine to the container",
                f"the engine's socket {socket} is inside",
                "mount a directory below it instead",
            )


def _is_missing(source: Path) -> bool:
    """Whether a path is missing; one this user may not see might still be mountable."""
    try:
        return not source.exists()
    except PermissionError:
        return False


def unix_host(client: docker.DockerClient) -> str:
    """The address of a client that uses a socket; the library keeps only the path."""
    adapter = client.api.get_adapter("http+docker://localhost")
    return f"unix://{adapter.socket_path}"  # type: ignore[attr-defined]
