"""The container engine: there, open to this login, new enough, with compose and GPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

from console.checks.doctor.facts import ASK_S, Facts, kinds
from console.checks.doctor.model import Check, Finding, Level
from console.common.errors import ConsoleError, EngineError, EngineTimeout
from console.common.text import decode, one_line
from console.host import bounded
from console.runtime.engine_api import podman, too_old

OLDEST_API = (1, 41)
OLDEST_COMPOSE = (2, 6)
"""The first whose `up` knows `--pull never`."""
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")
_NO_PLUGIN = ("is not a docker command", "unknown command", "unknown flag")
DOCKER_GROUP = "sudo usermod -aG docker $USER, then log in again (the group is as good as root)"
NO_LIMIT = (
    "only the sentinel stops a load; a rootless engine needs cgroup v2 and a systemd user unit"
)
RUNTIME = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"


def answers(facts: Facts, check: Check) -> Iterator[Finding]:
    """Its socket, the right to use it, its version."""
    try:
        found = facts.version()
    except EngineTimeout as error:
        yield check.failed(str(error), "is dockerd frozen? `docker ps` shows whether it answers")
        return
    except EngineError as error:
        yield _missing(facts, check, error)
        return
    version, api = str(found.get("Version", "?")), str(found.get("ApiVersion", ""))
    name = "Podman " if podman(found) else ""
    words = f"{name}version {version}, API {api or '?'}, at {facts.engine().path}"
    if why := too_old(found):
        yield check.failed(words, why)
    elif _older(api, OLDEST_API):
        yield check.failed(words, "Docker 20.10 (API 1.41) or newer is needed")
    else:
        yield check.ok(words)


def compose(facts: Facts, check: Check) -> Iterator[Finding]:
    """The compose plugin of the docker command."""
    level = Level.FAILED if _uses_compose(facts) else Level.NOTE
    if shutil.which("docker") is None:
        yield check.found(
            level,
            "there is no docker command",
            "compose services need docker-ce-cli and its plugin",
        )
        return
    argv = ["docker", "compose", "version", "--short"]
    try:
        code, out, error = bounded.run(argv, ASK_S, env=os.environ)
    except subprocess.TimeoutExpired:
        words = f"`docker compose version` gave no answer within {ASK_S:g} s"
        yield check.found(max(level, Level.WARNING, key=_ORDER.index), words)
        return
    said = one_line(decode(out) or decode(error))
    if code and any(sign in said for sign in _NO_PLUGIN):
        yield check.found(
            level, "the docker command has no compose plugin", "install docker-compose-plugin (v2)"
        )
    elif code or not _NUMBERS.match(said):
        yield check.found(level, f"`docker compose version`: {said or f'exit code {code}'}")
    elif _older(said, OLDEST_COMPOSE):
        yield check.found(level, f"version {said}", "2.6 or newer knows `up --pull never`")
    else:
        yield check.ok(f"version {said}")


def nvidia(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether containers can have the cards; asked only where the site has cards and containers."""
    site = facts.site()
    if site is None or not site.model.gpus or facts.engine_need() is not Level.FAILED:
        return
    try:
        facts.version()
    except ConsoleError:
        return  # said above
    try:
        found = facts.info()
    except ConsoleError as error:
        yield check.warning(f"not known: {error}")
        return
    runtimes = found.get("Runtimes")
    names = sorted(map(str, runtimes)) if isinstance(runtimes, dict) else []
    if "nvidia" in names or _by_cdi(found):
        yield check.ok("containers can have the cards" + ("" if "nvidia" in names else " (CDI)"))
    else:
        yield check.warning(f"the engine knows no NVIDIA runtime, only {', '.join(names)}", RUNTIME)


def limits(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the kernel ends a container that takes too much memory."""
    if facts.engine_need() is Level.NOTE:
        return
    try:
        found = facts.info()
    except ConsoleError:
        return  # what is wrong with it is said above
    if found.get("MemoryLimit") is False:
        driver, version = (
            one_line(str(found.get(f"Cgroup{x}", "?"))) for x in ("Driver", "Version")
        )
        words = f"the engine limits nobody's memory (control groups: {driver}, version {version})"
        yield check.warning(words, NO_LIMIT)
    elif "MemoryLimit" in found:
        yield check.ok("each gets a limit of memory")


def _missing(facts: Facts, check: Check, error: EngineError) -> Finding:
    need = facts.engine_need()
    closed = "not open to this user" in error.title
    if closed:
        # It is there: whoever logs in here expects to use it.
        return check.found(max(need, Level.WARNING, key=_ORDER.index), str(error), DOCKER_GROUP)
    hint = error.hint or "sudo systemctl start docker; DOCKER_HOST names another socket"
    if need is Level.NOTE:
        return check.note(f"{error}; only playbooks with containers need it", hint)
    return check.found(need, str(error), hint)


def _by_cdi(info: dict[str, object]) -> bool:
    devices = info.get("DiscoveredDevices")
    return isinstance(devices, list) and any("nvidia.com/gpu" in str(one) for one in devices)


def _uses_compose(facts: Facts) -> bool:
    site = facts.site()
    return site is not None and "compose" in kinds(site)


def _older(version: str, oldest: tuple[int, int]) -> bool:
    """Whether a version is known to be older; one that cannot be read is not."""
    found = _NUMBERS.match(version)
    return found is not None and (int(found[1]), int(found[2])) < oldest


_ORDER = [Level.OK, Level.NOTE, Level.WARNING, Level.FAILED]

CHECKS = (
    Check("engine.answers", "engine", answers),
    Check("engine.compose", "compose", compose, Level.WARNING),
    Check("engine.nvidia", "NVIDIA", nvidia, Level.WARNING),
    Check("engine.limits", "containers", limits, Level.WARNING),
)
