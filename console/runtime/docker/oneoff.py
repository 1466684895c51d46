"""A short-lived container: no GPU, no network, only /tmp writable, bounded, removed at the end.

It has the labels of the project's other one-offs, so an emergency ends it too, and the run
`preflight`, by which one left by a killed console is found and removed later.
"""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from console.common.clock import SystemClock
from console.common.errors import EngineError
from console.common.text import clean_lines, decode
from console.host import process
from console.host.children import Cancelled
from console.runtime.docker.client import ask, inspect
from console.runtime.docker.engine_state import marks, status_of

if TYPE_CHECKING:
    import docker

RUN = "preflight"
"""In place of a run's name in the labels."""
FILES = "/omni-preflight"
"""A volume of the container's own, to put files in although the image is read-only."""
POLL_S = 0.05
START_S = 60.0
LINES = 5000
"""Lines of output kept, so many that a chatty module does not hide what came before."""
LEFT_S = 900.0
"""Age in seconds from which our container counts as left behind, unless its console still runs."""
CONSOLE_LABEL = "omni.console"
TMP_OPTIONS = "rw,size=256m,mode=1777"
NO_GPU = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "GGML_VK_VISIBLE_DEVICES": "",
    "NVIDIA_VISIBLE_DEVICES": "void",
}
"""Hides the machine's cards, whatever the image's own environment asks for."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What to run. `files` lie in FILES; `runtime` is the engine's, empty for its default. `memory`
    in bytes (no swap on top), `cpus` in cores."""

    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    runtime: str = ""
    memory: int = 2 << 30
    cpus: float = 2.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: `code` is None if it had to be killed; `lines` are clean, the last LINES."""

    code: int | None
    lines: tuple[str, ...]
    oom: bool = False


def run(
    client: docker.DockerClient,
    moment: Moment,
    seconds: float,
    *,
    cancelled: threading.Event | None = None,
) -> Outcome:
    """Run it to its end, or kill it after `seconds`; it is removed either way.

    Raises EngineError (no such image, no such program …), EngineTimeout and Cancelled.
    """
    clock = SystemClock()
    with created(client, moment) as container:
        ask("Starting a preflight container", lambda: client.api.start(container), START_S)
        until = clock.monotonic() + seconds
        while (seen := _state(client, container)).alive:
            if clock.wait(cancelled or threading.Event(), POLL_S):
                raise Cancelled("the preflight check")
            if clock.monotonic() >= until:
                return Outcome(None, _lines(client, container))
        return Outcome(seen.exit_code, _lines(client, container), seen.oom_killed)


@contextlib.contextmanager
def created(client: docker.DockerClient, moment: Moment) -> Iterator[str]:
    """Yield the id of a container that is not started; remove it at the end in any case."""
    sweep(client)
    container = ask("Creating a preflight container", lambda: _create(client, moment), START_S)
    try:
        if moment.files:
            data = _archive(moment.files)
            ask("Filling it", lambda: client.api.put_archive(container, FILES, data))
        yield container
    finally:
        remove(client, container)


def remove(client: docker.DockerClient, container: str) -> None:
    """Kill and remove a container of ours with its volume; one that is gone already is fine."""
    with contextlib.suppress(EngineError):  # it is found by its label the next time
        api, what = client.api, "Removing a container of a moment"
        ask(what, lambda: api.remove_container(container, v=True, force=True))


def sweep(client: docker.DockerClient, now: float | None = None) -> int:
    """Remove what dead consoles left behind; return the number. `now` in Unix seconds."""
    wanted = [f"{name}={value}" for name, value in _marks().items()]
    api, now = client.api, time.time() if now is None else now
    what = "Listing preflight containers"
    rows = ask(what, lambda: api.containers(all=True, filters={"label": wanted}))
    old = [
        row["Id"]
        for row in rows
        if now - float(row.get("Created") or now) > LEFT_S and not _has_console(row)
    ]
    for container in old:
        remove(client, container)
    return len(old)


def _has_console(row: Mapping[str, Any]) -> bool:
    """Whether the console that made a listed container still runs and so still uses it, whatever
    its age by a wall clock that may have been set."""
    words = str((row.get("Labels") or {}).get(CONSOLE_LABEL, "")).split()
    if len(words) != 3 or words[2] != process.boot_id():
        return False
    return words[0].isdigit() and words[1].isdigit() and process.alive(int(words[0]), int(words[1]))


def console_mark() -> dict[str, str]:
    """The label that names this process: its pid, its start time and their boot."""
    pid = os.getpid()
    return {CONSOLE_LABEL: f"{pid} {process.start_time(pid)} {process.boot_id()}"}


def _marks() -> dict[str, str]:
    return {key: value for key, value in marks("oneoff", RUN, RUN, "").items() if value}


def _create(client: docker.DockerClient, moment: Moment) -> str:
    from docker import types

    api: Any = client.api
    config = api.create_host_config(
        restart_policy={"Name": "no"},
        log_config=types.LogConfig(type="json-file", config={"max-size": "4m", "max-file": "1"}),
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": TMP_OPTIONS},
        mounts=[types.Mount(FILES, None, type="volume")],
        mem_limit=moment.memory,
        memswap_limit=moment.memory,
        nano_cpus=int(min(moment.cpus, os.cpu_count() or 1) * 1e9),
        pids_limit=2048,
        security_opt=["no-new-privileges"],
        **({"runtime": moment.runtime} if moment.runtime else {}),
    )
    made = api.create_container(
        moment.image,
        entrypoint=list(moment.argv[:1]),
        command=list(moment.argv[1:]) or None,
        environment={**NO_GPU, "HOME": "/tmp", **moment.env},
        labels={**moment.labels, **_marks(), **console_mark()},
        host_config=config,
    )
    return str(made["Id"])


def _archive(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _state(client: docker.DockerClient, container: str) -> Any:
    inspection = inspect(client, container)
    if inspection is None:
        raise EngineError("The preflight container is gone", "somebody removed it")
    return status_of(inspection)


def _lines(client: docker.DockerClient, container: str) -> tuple[str, ...]:
    data = ask(
        "Reading what it wrote",
        lambda: client.api.logs(container, stdout=True, stderr=True, tail=LINES),
    )
    return tuple(clean_lines(decode(data), most=LINES * 2)[-LINES:])
