"""A service of a compose file as a candidate: in a project of its own, with limits, never deleted.

`up` recreates a container whose file changed and starts what a service depends on. So a candidate
lives in a project named after its resolved specification, is only ever started with --no-recreate
and --no-deps, and is stopped by its id through the engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import EngineError, EngineTimeout, ServiceError
from console.common.text import clean_lines, decode, one_line, one_of
from console.common.units import format_duration
from console.host import children
from console.host.cgroup import die_together
from console.host.process import COOKIE
from console.runtime.docker.client import ask, inspect, require_image
from console.runtime.docker.compose_override import Resolved, override_of, with_args
from console.runtime.docker.container import is_here, unix_host
from console.runtime.docker.engine_state import (
    EngineDriver,
    Say,
    refuse_of_another,
    refuse_running_older,
    settle_name,
    status_of,
)
from console.runtime.engine_api import COMPOSE_PROJECT as PROJECT
from console.runtime.engine_api import COMPOSE_SERVICE as SERVICE
from console.runtime.engine_api import compose_is_missing, is_of_compose
from console.runtime.spec import (
    OWNER_LABEL,
    ComposeSpec,
    Handle,
    Launch,
    ServiceSpec,
    is_of_another,
    memory_limit,
    owner_on,
)

if TYPE_CHECKING:
    import docker

UP = ("running", "paused", "restarting")
"""States of a container that holds memory, as the engine lists them."""


class ComposeDriver(EngineDriver):
    """A Driver for a ComposeSpec; `workdir` is where the generated override file is kept."""

    def __init__(
        self, spec: ServiceSpec, client: docker.DockerClient, workdir: Path, **more: Any
    ) -> None:
        """`more`: what every EngineDriver takes."""
        if not isinstance(spec.runs, ComposeSpec):
            raise ServiceError(f"{spec.name} is not a compose service")
        super().__init__(spec, client, **more)
        self.runs: ComposeSpec = spec.runs
        self.workdir = workdir

    def find(self) -> Handle | None:
        """The running candidate made from an equal resolved specification.

        Raises ServiceError if another site's or user's runs in its place.
        """
        resolved = self._placed(self.resolve())
        container = self._candidate(resolved)
        return self._handle(container) if container and status_of(container).alive else None

    def start(self, launch: Launch) -> Handle:
        """Create through compose, record, start; raises EngineError, ServiceError."""
        resolved = self._placed(self.resolve())
        if resolved.container_name:
            name = resolved.container_name
            settle_name(self.client, name, resolved.digest, self.site, self.say)
        refuse_running_older(self.client, self.spec.name, resolved.digest, self.site)
        if self._candidate(resolved):
            self.say(f"reusing the older container of project {resolved.project}")
        override = self._write_override(resolved, launch)
        # Created first and started second, so that it is recorded before it does anything.
        self._up(resolved, override, "--no-start", launch.run_id)
        container = self._candidate(resolved)
        if container is None:
            raise ServiceError(
                f"Compose made no container for {self.runs.service}",
                f"project {resolved.project}",
                f"docker compose -p {resolved.project} ps -a",
            )
        handle = self._handle(container)
        launch.record(handle)
        self._up(resolved, override, "-d", launch.run_id)
        die_together(handle.container)
        return handle

    def resolve(self) -> Resolved:
        """Resolve the files; raises ServiceError for a missing service or image."""
        config = configured(self.runs, unix_host(self.client), self.say)
        service = service_of(config, self.runs)
        image = str(service.get("image") or f"{config.get('name')}-{self.runs.service}")
        image_id = require_image(self.client, image).id
        memory = _memory(self.runs, service, is_here(self.client))
        digest = _digest(service, image_id, memory)
        safe = re.sub(r"[^a-z0-9_-]", "-", self.spec.name.lower())
        project = f"omni-{safe}-{digest[:8]}"
        return Resolved(config, service, image, image_id, digest, project, memory)

    def _placed(self, resolved: Resolved) -> Resolved:
        """The same in a project without containers of other sites or users, which compose would
        start. Raises ServiceError if such a container runs."""
        rows = self._rows(resolved.project)
        others = [row for row in rows if self._is_of_another(row)]
        for row in others:
            if row.get("State") in UP:
                refuse_of_another(str(row["Names"][0]).lstrip("/"), row["Labels"], self.site)
        own = f"{resolved.project}-{hashlib.sha256(owner_on(self.site).encode()).hexdigest()[:6]}"
        return replace(resolved, project=own) if others or self._rows(own) else resolved

    def _candidate(self, resolved: Resolved) -> dict[str, Any] | None:
        rows = [row for row in self._rows(resolved.project) if not self._is_of_another(row)]
        return inspect(self.client, str(rows[0]["Id"])) if rows else None

    def _rows(self, project: str) -> list[dict[str, Any]]:
        return _containers(self.client, f"{PROJECT}={project}", f"{SERVICE}={self.runs.service}")

    def _is_of_another(self, row: Mapping[str, Any]) -> bool:
        return is_of_another((row.get("Labels") or {}).get(OWNER_LABEL, ""), self.site)

    def _handle(self, container: Mapping[str, Any]) -> Handle:
        name = str(container.get("Name") or "").lstrip("/")
        return Handle(self.spec.name, "container", container=str(container["Id"]), name=name)

    def _up(self, resolved: Resolved, override: Path, mode: str, run_id: str) -> None:
        files = [*self.runs.files, override]
        argv = up_argv(files, self.runs.service, resolved.project, self.runs.profiles, mode)
        # The cookie lets the fence of a rollback find this very command.
        self._compose(argv, f"Compose, starting {self.runs.service},", UP_S, {COOKIE: run_id})

    def _compose(
        self, argv: Sequence[str], what: str, seconds: float, more: Mapping[str, str] | None = None
    ) -> str:
        env = {**dict(self.runs.env), **(more or {})}
        return compose(argv, unix_host(self.client), env, what, seconds, self.say)

    def _write_override(self, resolved: Resolved, launch: Launch) -> Path:
        labels, known = self.marked(launch, resolved.digest), _existing_names(self.client)
        content = override_of(resolved, labels, launch.run_id, self.runs, known)
        path = self.workdir / f"{resolved.project}.override.json"
        paths.make(path.parent)
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path


def configured(runs: ComposeSpec, host: str, say: Say) -> dict[str, Any]:
    """The files as `docker compose config` reads them, which asks no engine; raises EngineError
    without docker or its plugin, EngineTimeout, ServiceError for what compose refuses."""
    argv = [*base_argv(runs.files, runs.project, runs.profiles), "config", "--format", "json"]
    return _object(compose(argv, host, dict(runs.env), "Reading the compose file", 20.0, say))


def service_of(config: Mapping[str, Any], runs: ComposeSpec) -> dict[str, Any]:
    """The one service of a configuration, with the playbook's words; raises ServiceError."""
    services = config.get("services") or {}
    service = services.get(runs.service)
    if isinstance(service, dict):
        return with_args(service, runs)
    known = one_line(one_of(sorted(services))) if services else "nothing"
    raise ServiceError(
        f"There is no service {one_line(runs.service)} in the compose file",
        f"it has {known}",
        "a service with a profile is there only if `profile:` beside `service:` names it",
    )


def base_argv(files: Sequence[Path], project: str, profiles: Sequence[str]) -> list[str]:
    """`docker compose` with files, profiles and project; the verb comes after."""
    argv = ["docker", "compose"]
    for file in files:
        argv += ["-f", str(file)]
    for profile in profiles:
        argv += ["--profile", profile]
    return [*argv, "-p", project] if project else argv


def up_argv(
    files: Sequence[Path], service: str, project: str, profiles: Sequence[str], mode: str = "-d"
) -> list[str]:
    """The one form of `up` the console uses: no builds, pulls, recreation or dependencies."""
    argv = [*base_argv(files, project, profiles), "up", mode, "--no-deps", "--no-build"]
    return [*argv, "--pull", "never", "--no-recreate", service]


def resolve_container(
    client: docker.DockerClient, files: Sequence[Path], service: str, project: str = ""
) -> str | None:
    """The id of somebody else's container of a compose service, by its labels; None for none.

    Without `project`, containers made from any of `files` count. Raises ServiceError when
    containers of several projects fit.
    """
    wanted = [f"{SERVICE}={service}", *([f"{PROJECT}={project}"] if project else [])]
    containers = _containers(client, *wanted)
    rows = [row for row in containers if is_of_compose(row.get("Labels") or {}, files, project)]
    projects = sorted({str(row["Labels"].get(PROJECT)) for row in rows})
    if len(projects) > 1:
        raise ServiceError(
            f"{one_line(service)} exists in several compose projects",
            one_line(", ".join(projects)),
            "name one with `project:`",
        )
    rows.sort(key=lambda row: (row.get("State") == "running", row.get("Created") or 0))
    return str(rows[-1]["Id"]) if rows else None


def _existing_names(client: docker.DockerClient) -> Callable[[str, str], bool]:
    api: Any = client.api
    rows = {
        "volumes": ask("Listing volumes", lambda: api.volumes().get("Volumes") or []),
        "networks": ask("Listing networks", lambda: api.networks()),
    }
    return lambda kind, name: any(row["Name"] == name for row in rows[kind])


def _containers(client: docker.DockerClient, *labels: str) -> list[dict[str, Any]]:
    wanted = {"label": list(labels)}
    return list(ask("Listing containers", lambda: client.api.containers(all=True, filters=wanted)))


def _memory(runs: ComposeSpec, service: Mapping[str, Any], here: bool) -> int | None:
    """The playbook's limit, else the compose file's, but at most the default."""
    if runs.memory_bytes:
        return runs.memory_bytes
    deploy = ((service.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    own = [str(value) for value in (service.get("mem_limit"), deploy.get("memory")) if value]
    known = [int(value) for value in own if value.isdigit()]
    default = memory_limit(None) if here else None
    return min([*known, *([default] if default else [])], default=None)


def _digest(service: Mapping[str, Any], image_id: str, memory_bytes: int | None) -> str:
    text = json.dumps([service, image_id, memory_bytes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _object(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return value
    raise ServiceError("Compose gave no usable configuration", one_line(text))


UP_S = 90.0
"""Seconds to create and start one container from a local image."""
ALLOWED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "XDG_CONFIG_HOME")
"""What compose needs from the environment, besides DOCKER_*; variables of the compose file come
from its `.env` or from the playbook's `env:`."""
_UNSET = re.compile(r'The \\?"(\w+)\\?" variable is not set')


def compose(
    argv: Sequence[str], host: str, env: Mapping[str, str], what: str, seconds: float, say: Say
) -> str:
    """The stdout of a compose command; foreign, not clean.

    Raises EngineError without docker or its plugin, EngineTimeout, ServiceError with stderr's end.
    """
    code, out, error = _run(argv, _environment(host, env), what, seconds)
    text = decode(error)
    if code != 0:
        if (missing := compose_is_missing(text)) is not None:
            raise missing
        lines = [line.strip() for line in clean_lines(text, 500) if line.strip()]
        raise ServiceError(f"{what} failed", "\n".join(lines[-6:]) or f"exit code {code}")
    for name in sorted(set(_UNSET.findall(text))):
        say(f"the compose file uses ${one_line(name)}, which is empty: set it under `env:`")
    return decode(out)


def _environment(host: str, env: Mapping[str, str]) -> dict[str, str]:
    # The command must speak to the very engine the library speaks to, whatever context is set.
    kept = {
        key: value for key, value in os.environ.items()
        if key in ALLOWED or (key.startswith("DOCKER_") and key != "DOCKER_CONTEXT")
    }  # fmt: skip
    return {**kept, **env, "DOCKER_HOST": host}


def _run(
    argv: Sequence[str], env: Mapping[str, str], what: str, seconds: float
) -> tuple[int, bytes, bytes]:
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise EngineError(
            "There is no docker command", "compose services need it", "install docker-ce-cli"
        )
    try:
        return children.run([program, *argv[1:]], seconds, env=env)
    except subprocess.TimeoutExpired:
        raise EngineTimeout(
            f"{what} did not finish within {format_duration(seconds)}",
            "the compose command was killed; the engine may still carry it out",
            "`docker ps -a` shows what it made",
        ) from None
    except OSError as error:
        raise EngineError("The docker command cannot be run", error.strerror or "") from None
