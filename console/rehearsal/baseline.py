"""The baseline of a rehearsal: a stand-in container under a CPU quota that is measured.

The quota is what gives a stand-in its speed. How much CPU a token takes is measured on this
machine with this very container, at the quota it then runs with, and remembered.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import ServiceError
from console.rehearsal import image, workspace
from console.rehearsal.inside.settings import HOLDS
from console.rehearsal.workspace import Mapping
from console.runtime.docker.client import ask, inspect
from console.runtime.probe import Health, complete, health

if TYPE_CHECKING:
    import docker

PERIOD_US = 100_000
INNER = 8000
TOKENS, ROUNDS = 32, 3
NEAR = 0.1
"""A quota whose speed is that near to its aim is taken."""
TRIES = 5
FIRST = 0.009
"""CPUs per tok/s to begin with, before anything was measured."""
READY_S = 120.0
LABEL = "omni.rehearsal.recipe"
Say = Callable[[str], None]


def container() -> str:
    return workspace.own_name("baseline")


def memory_file() -> Path:
    return paths.rehearsal_dir() / "speed.json"


def known(base: str) -> float | None:
    """CPUs per tok/s as measured for this image; None before the first time."""
    try:
        return float(json.loads(memory_file().read_text())[base])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def bring_up(
    client: docker.DockerClient, mapping: Mapping, port: int, tok_s: float, say: Say
) -> float:
    """Start it, measure it, set its quota; CPUs per tok/s. Raises ConsoleError."""
    per = known(mapping.base) or FIRST
    tag = image.stands_for("baseline:1")
    image.ensure_stand_in(client, mapping.base, tag, mapping.told)
    url = f"http://127.0.0.1:{port}"
    _start(client, tag, port)
    deadline = time.monotonic() + READY_S
    while health(url)[0] is not Health.SERVING:
        if time.monotonic() > deadline:
            raise ServiceError(
                "the stand-in baseline does not serve", url, f"docker logs {container()}"
            )
        time.sleep(0.1)
    found = calibrate(lambda: _measure(url), lambda cpus: _limit(client, cpus), per, tok_s, say)
    memory_file().write_text(json.dumps({mapping.base: found}) + "\n")
    return found


def calibrate(
    measure: Callable[[], float], limit: Callable[[float], None], per: float, tok_s: float, say: Say
) -> float:
    """CPUs per tok/s at which `measure` gives `tok_s`. Raises ServiceError when it stays away."""
    for _ in range(TRIES):
        limit(per * tok_s)
        seen = measure()
        say(f"stand-in baseline: {seen:.1f} tok/s at {per * tok_s:.3f} CPUs, wanted {tok_s:.1f}")
        if abs(seen / tok_s - 1) <= NEAR:
            return per
        per *= tok_s / seen
    raise ServiceError(
        "the stand-ins' speed cannot be set", f"{seen:.1f} tok/s where {tok_s:.1f} are wanted",
        "something else keeps the processors busy; try again when it is done",
    )  # fmt: skip


def _measure(url: str) -> float:
    """tok/s of whole requests, the median of a few."""
    speeds = []
    for _ in range(ROUNDS):
        done = complete(url, max_tokens=TOKENS)
        if not done.ok or not done.tokens:
            raise ServiceError("the stand-in baseline does not answer", done.detail)
        speeds.append(done.tokens / done.elapsed_s)
    return statistics.median(speeds)


def _start(client: docker.DockerClient, tag: str, port: int) -> None:
    """Without a limit at first: it is to be there soon."""
    from docker import types

    api: Any = client.api
    if inspect(client, container()) is not None:
        ask("Removing the last rehearsal's baseline",
            lambda: api.remove_container(container(), force=True, v=True))  # fmt: skip
    host = api.create_host_config(
        port_bindings={INNER: ("127.0.0.1", port)}, init=True, pids_limit=4096,
        cpu_period=PERIOD_US, cpu_quota=PERIOD_US, restart_policy={"Name": "no"},
        mounts=[types.Mount(HOLDS, str(workspace.holds()), type="bind")],
    )  # fmt: skip
    command = ["llama-server", "--host", "0.0.0.0", "--port", str(INNER), "--alias", "baseline",
               "--model", "baseline.gguf"]  # fmt: skip
    made = ask(
        "Creating the stand-in baseline",
        lambda: api.create_container(
            tag, command=command, name=container(), ports=[INNER], host_config=host,
            labels={image.LABEL: "baseline"},
        ),
    )  # fmt: skip
    ask("Starting the stand-in baseline", lambda: api.start(made["Id"]))


def _limit(client: docker.DockerClient, cpus: float) -> None:
    api: Any = client.api
    ask(
        "Setting the stand-in's quota",
        lambda: api.update_container(
            container(), cpu_period=PERIOD_US, cpu_quota=max(1000, int(cpus * PERIOD_US))
        ),
    )


def stop(client: docker.DockerClient) -> None:
    """Stop it; it is kept, as any container is. Raises EngineError."""
    api: Any = client.api
    if inspect(client, container()) is not None:
        ask("Stopping the stand-in baseline", lambda: api.stop(container(), timeout=5), 30.0)
