"""What all container drivers share: state in words, stopping, the last lines, free names."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from console.common.clock import Clock, SystemClock
from console.common.errors import EngineError, ServiceError
from console.common.text import clean, clean_lines, decode, one_line
from console.common.units import format_bytes
from console.host import memory, process
from console.host.licence import Licence, require_container
from console.runtime.docker.client import NameTaken, NotFound, ask, inspect
from console.runtime.spec import (
    OWNER_LABEL,
    RUN_LABEL,
    SERVICE_LABEL,
    SPEC_LABEL,
    Handle,
    Launch,
    ServiceSpec,
    Status,
    is_of_another,
    owner_on,
    role_label,
    role_of,
)

if TYPE_CHECKING:
    import docker


Say = Callable[[str], None]
"""Where a driver tells the operator what it decided, in one clean line."""

KILL_S = 5.0
_SIGNALS = {129: "SIGHUP", 130: "SIGINT", 134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV"}
_SIGNALS |= {132: "SIGILL", 135: "SIGBUS", 143: "SIGTERM"}


def silent(text: str) -> None:
    """A Say that discards its text."""


def status_of(container: Mapping[str, Any]) -> Status:
    """The state of an inspected container.

    `exit_code` is None while it runs or when it never ran; between two attempts of a restart policy
    the container counts as alive and has the exit code of the last one.
    """
    state = container.get("State") or {}
    restarts = int(container.get("RestartCount") or 0)
    if state.get("Restarting"):
        code = int(state.get("ExitCode") or 0)
        words = f"restarting after exit code {code}"
        return Status(True, code, bool(state.get("OOMKilled")), restarts, words)
    if state.get("Running"):
        return Status(True, None, False, restarts, "paused" if state.get("Paused") else "running")
    if state.get("Status") == "created":
        why = one_line(str(state.get("Error") or ""))
        return Status(False, None, False, restarts, f"not started: {why}" if why else "not started")
    code, oom = int(state.get("ExitCode") or 0), bool(state.get("OOMKilled"))
    return Status(False, code, oom, restarts, _ended(container, code, oom))


def _ended(container: Mapping[str, Any], code: int, oom: bool) -> str:
    if oom:
        limit = int((container.get("HostConfig") or {}).get("Memory") or 0)
        bound = f" at its limit of {format_bytes(limit)}" if limit else ""
        return f"killed by the kernel: out of memory{bound} (exit code {code})"
    words = f"exited with code {code}"
    if code in _SIGNALS:
        words += f" ({_SIGNALS[code]})"
    why = one_line(str((container.get("State") or {}).get("Error") or ""))
    return f"{words}: {why}" if why else words


def stop_container(
    client: docker.DockerClient, licence: Licence, handle: Handle, grace_s: float, clock: Clock
) -> None:
    """Stop within `grace_s`, then kill; returns when it is gone, removing nothing. The more memory
    it held, the longer that may take.

    A container that is stopped already, or gone, is fine. Raises EngineTimeout when the engine is
    frozen and ServiceError when the process outlives SIGKILL.
    """
    require_container(licence, handle.container)
    container, name = handle.container, handle.name or handle.container[:12]
    seconds = max(0, math.ceil(grace_s))
    # known only while it runs
    gone_s = memory.kill_wait_s(memory.resident(memory.pids_of_container(container)))
    try:
        ask(f"Stopping {name}", lambda: client.api.stop(container, timeout=seconds), seconds + 8.0)
    except NotFound:
        return
    except EngineError:
        _kill(client, container, name)
    deadline = clock.monotonic() + gone_s
    while True:
        inspection = inspect(client, container)
        if inspection is None or not (inspection.get("State") or {}).get("Running"):
            return
        if clock.monotonic() >= deadline:
            raise _stuck(name, int(inspection["State"].get("Pid") or 0))
        clock.sleep(0.1)


def _kill(client: docker.DockerClient, container: str, name: str) -> None:
    # "is not running" is what we want, and a frozen engine sends the signal before it waits:
    # whether it lives is looked at next
    with contextlib.suppress(EngineError):
        ask(f"Killing {name}", lambda: client.api.kill(container), KILL_S)


def _stuck(name: str, pid: int) -> ServiceError:
    """The error for a process that outlived SIGKILL, with what it waits for."""
    seen = process.stat(pid)
    if seen is not None and seen.state == "D":
        detail = f"process {pid} is in uninterruptible sleep (D state): it waits inside the kernel"
        hint = (
            "`dmesg` names the driver or disk it waits for; nothing but that, or a reboot, ends it"
        )
    else:
        detail = f"process {pid} outlived SIGKILL (state {seen.state if seen else 'unknown'})"
        hint = f"`docker kill {name}`, then `docker inspect {name}`"
    return ServiceError(f"{name} could not be stopped", detail, hint)


class EngineDriver:
    """What every driver of a container shares; `labels` are added to the console's own."""

    def __init__(
        self, spec: ServiceSpec, client: docker.DockerClient, *, labels: Mapping[str, str] = {},
        site: str = "", say: Say = silent, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.spec = spec
        self.client = client
        self.labels = labels
        self.site = site
        self.say = say
        self.clock = clock or SystemClock()

    def status(self, handle: Handle) -> Status:
        """What the engine says about it now; raises EngineError when it does not answer."""
        container = inspect(self.client, handle.container)
        return (
            status_of(container)
            if container
            else Status(alive=False, detail="the container is gone")
        )

    def stop(self, licence: Licence, handle: Handle, grace_s: float) -> None:
        """Stop by id, then kill, within `grace_s` and some 30 s. Raises ServiceError if it lives;
        removes nothing."""
        stop_container(self.client, licence, handle, grace_s, self.clock)

    def last_lines(self, handle: Handle, count: int) -> list[str]:
        """The last `count` lines the engine kept, clean; or one line why there are none."""
        if count <= 0:
            return []
        try:
            data = ask(
                "Reading the log",
                lambda: self.client.api.logs(
                    handle.container, stdout=True, stderr=True, tail=count
                ),
            )
        except EngineError as error:
            return [f"(no log: {one_line(error.detail or error.title)})"]
        return clean_lines(decode(data).rstrip("\n"), most=count * 4)[-count:] if data else []

    def marked(self, launch: Launch, digest: str) -> dict[str, str]:
        """The labels of a candidate made from a specification of this digest."""
        own = marks("candidate", launch.run_id, self.spec.name, digest, self.site)
        return {**self.labels, **own}


def marks(role: str, run_id: str, service: str, digest: str, site: str = "") -> dict[str, str]:
    """The labels that identify strays, equal older containers and one-off commands."""
    owner = {OWNER_LABEL: owner_on(site)} if site else {}
    return {
        role_label(): role, RUN_LABEL: run_id, SERVICE_LABEL: service, SPEC_LABEL: digest, **owner,
    }  # fmt: skip


def labels_of(container: Mapping[str, Any]) -> dict[str, str]:
    return dict((container.get("Config") or {}).get("Labels") or {})


def settle_name(
    client: docker.DockerClient, name: str, digest: str, site: str, say: Say = silent
) -> str | None:
    """Free a name that a container already has, or return the id of an older container that can be
    reused under it.

    Raises ServiceError when the name belongs to somebody else or to a running older one. Another
    site's or user's is never reused, because its own rollback would end it.
    """
    inspection = inspect(client, name)
    if inspection is None:
        return None
    labels, container = labels_of(inspection), str(inspection["Id"])
    if role_label() not in labels:
        raise name_is_foreign(name)
    alive = status_of(inspection).alive
    if alive:
        refuse_of_another(name, labels, site)
    ours = not is_of_another(labels.get(OWNER_LABEL, ""), site)
    if ours and labels.get(SPEC_LABEL) == digest:
        run = clean(labels.get(RUN_LABEL, "an unknown run"))
        say(f"reusing {name}, made by {run} from the same specification; its labels name that run")
        return container
    if alive:
        raise _older_runs(name)
    move_aside(client, name, container, say)
    return None


def refuse_of_another(name: str, labels: Mapping[str, str], site: str) -> None:
    """Raise ServiceError for a running container whose labels name another site or user."""
    owner = labels.get(OWNER_LABEL, "")
    if not is_of_another(owner, site):
        return
    uid, _, named = owner.partition(":")
    whose = f"uid {one_line(uid, 20)} on the site {one_line(named, 60) or 'without a name'}"
    raise ServiceError(
        f"The container {one_line(name)} runs for {whose}",
        "it is neither taken over nor stopped here, and it would compete for memory and ports",
        "wait until it has ended, or ask that user for `omni-console rollback` on that site",
    )


def is_made_here(client: docker.DockerClient, row: Mapping[str, Any]) -> bool:
    """Whether a listed container has its role from the console that made it. Where its image has
    one, too, as after `docker commit` of a candidate, nobody can tell."""
    image, api = str(row.get("ImageID") or ""), cast(Any, client.api)
    if not image:
        return True
    try:
        config = ask("Looking at an image", lambda: api.inspect_image(image)).get("Config")
    except NotFound:
        return True
    return not role_of((config or {}).get("Labels") or {})


def refuse_running_older(client: docker.DockerClient, service: str, digest: str, site: str) -> None:
    """Raise ServiceError if another specification of the same service still runs, or the same one
    for another site or user."""
    wanted = [f"{role_label()}=candidate", f"{SERVICE_LABEL}={service}"]
    rows = ask("Listing containers", lambda: client.api.containers(filters={"label": wanted}))
    for row in rows:
        labels = row.get("Labels") or {}
        if not is_made_here(client, row):
            continue
        name = one_line((row.get("Names") or [row["Id"][:12]])[0].lstrip("/"))
        refuse_of_another(name, labels, site)
        if labels.get(SPEC_LABEL) != digest:
            raise _older_runs(name)


def move_aside(client: docker.DockerClient, name: str, container: str, say: Say = silent) -> str:
    """Rename an older container of a console to `<name>.<6 of its id>-<n>`; return the new name."""
    for number in range(1, 1000):
        aside = f"{name}.{container[:6]}-{number}"
        try:
            ask(f"Renaming {name}", lambda aside=aside: client.api.rename(container, aside))  # type: ignore[misc]
        except NameTaken:
            continue
        except NotFound:
            return ""
        say(f"the older {name} is now {aside}")
        return aside
    raise ServiceError(
        f"No free name for the older {name}", "", "`docker ps -a` lists them; remove some by hand"
    )


def name_is_foreign(name: str) -> ServiceError:
    """The error for a name taken by a container that the console did not make."""
    return ServiceError(
        f"The name {one_line(name)} is taken by a container that is not ours",
        "it was not made by this console, so it is neither stopped nor renamed",
        f"`docker rename {name} {name}.old` frees the name; `docker inspect {name}` shows whose",
    )


def _older_runs(name: str) -> ServiceError:
    return ServiceError(
        f"{name} still runs with an older specification",
        "it would compete for memory and ports with the new one",
        "omni-console rollback ends candidates of this site, and spares the baseline",
    )
