"""The doctor's checks of the container engine, the cards, and the facts that `check` relies on.

Cards are queried through NVML in a process of its own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from console.checks.doctor.facts import ASK_S, Check, Facts, Finding, Level, kinds
from console.common.errors import ConsoleError, EngineError, EngineTimeout
from console.common.text import decode, one_line
from console.common.units import format_bytes
from console.host import children
from console.host.gpu.nvml import GPU_LOST
from console.runtime.engine_api import podman, too_old

if TYPE_CHECKING:
    from console.checks import preflight
    from console.host.gpu.nvml import Vram


OLDEST_API = (1, 41)
OLDEST_COMPOSE = (2, 6)
"""The first version whose `up` knows `--pull never`."""
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")
_NO_PLUGIN = ("is not a docker command", "unknown command", "unknown flag")
DOCKER_GROUP = "sudo usermod -aG docker $USER, then log in again (the group is as good as root)"
NO_LIMIT = (
    "only the sentinel stops a load; a rootless engine needs cgroup v2 and a systemd user unit"
)
RUNTIME = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"

_HINTS = (
    ("library not found", "is the NVIDIA driver installed? `nvidia-smi` comes with it"),
    ("mismatch", "the driver was updated under a running kernel: reboot, then `nvidia-smi`"),
    ("lost", "`dmesg | grep -i xid` tells why; a reboot brings the card back"),
    ("no answer", "`nvidia-smi` hangs too? `dmesg | grep -i -e xid -e nvrm`, then a reboot"),
    ("permission", "this login may not use the driver: `ls -l /dev/nvidia*`"),
    (
        "not loaded",
        "sudo modprobe nvidia; `dkms status` shows whether it was built for this kernel",
    ),
    ("unknown error", "inside a container? start it again; else `nvidia-smi`, then a reboot"),
)
_UNSURE = ("mig mode", "not supported", "unified memory")
"""Errors for figures that do not exist by design: MIG instances, unified memory."""

SCARCE = 0.05
LEVELS = {"ok": Level.OK, "warn": Level.WARNING, "fail": Level.FAILED, "unknown": Level.NOTE}


def answers(facts: Facts, check: Check) -> Iterator[Finding]:
    """The engine's socket, the right to use it, and its version."""
    try:
        reply = facts.version()
    except EngineTimeout as error:
        yield check.failed(str(error), "is dockerd frozen? `docker ps` shows whether it answers")
        return
    except EngineError as error:
        yield _missing(facts, check, error)
        return
    version, api = str(reply.get("Version", "?")), str(reply.get("ApiVersion", ""))
    name = "Podman " if podman(reply) else ""
    words = f"{name}version {version}, API {api or '?'}, at {facts.engine().path}"
    if why := too_old(reply):
        yield check.failed(words, why)
    elif _older(api, OLDEST_API):
        yield check.failed(words, "Docker 20.10 (API 1.41) or newer is needed")
    else:
        yield check.ok(words)


def compose(facts: Facts, check: Check) -> Iterator[Finding]:
    site = facts.site()
    level = Level.FAILED if site is not None and "compose" in kinds(site) else Level.NOTE
    if shutil.which("docker") is None:
        yield check.finding(
            level,
            "the docker command is missing",
            "compose services need docker-ce-cli and its plugin",
        )
        return
    argv = ["docker", "compose", "version", "--short"]
    try:
        code, out, error = children.run(argv, ASK_S, env=os.environ)
    except subprocess.TimeoutExpired:
        words = f"`docker compose version` gave no answer within {ASK_S:g} s"
        yield check.finding(max(level, Level.WARNING, key=_ORDER.index), words)
        return
    output = one_line(decode(out) or decode(error))
    if code and any(sign in output for sign in _NO_PLUGIN):
        yield check.finding(
            level, "the docker command has no compose plugin", "install docker-compose-plugin (v2)"
        )
    elif code or not _NUMBERS.match(output):
        yield check.finding(level, f"`docker compose version`: {output or f'exit code {code}'}")
    elif _older(output, OLDEST_COMPOSE):
        yield check.finding(level, f"version {output}", "2.6 or newer knows `up --pull never`")
    else:
        yield check.ok(f"version {output}")


def nvidia(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether containers can use the cards; asked only if the site has cards and containers."""
    site = facts.site()
    if site is None or not site.model.gpus or facts.engine_need() is not Level.FAILED:
        return
    try:
        facts.version()
    except ConsoleError:
        return  # said above
    try:
        info = facts.info()
    except ConsoleError as error:
        yield check.warning(f"not known: {error}")
        return
    runtimes = info.get("Runtimes")
    names = sorted(map(str, runtimes)) if isinstance(runtimes, dict) else []
    if "nvidia" in names or _by_cdi(info):
        yield check.ok("containers can use the cards" + ("" if "nvidia" in names else " (CDI)"))
    else:
        yield check.warning(f"the engine has no NVIDIA runtime, only {', '.join(names)}", RUNTIME)


def limits(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the kernel ends a container that exceeds its memory limit."""
    if facts.engine_need() is Level.NOTE:
        return
    try:
        info = facts.info()
    except ConsoleError:
        return  # what is wrong with it is said above
    if info.get("MemoryLimit") is False:
        driver, version = (
            one_line(str(info.get(f"Cgroup{x}", "?"))) for x in ("Driver", "Version")
        )
        words = f"the engine enforces no limits (control groups: {driver}, version {version})"
        yield check.warning(words, NO_LIMIT)
    elif "MemoryLimit" in info:
        yield check.ok("every container gets a memory limit")


def _missing(facts: Facts, check: Check, error: EngineError) -> Finding:
    need = facts.engine_need()
    closed = "not open to this user" in error.title
    if closed:
        # It is there: whoever logs in here expects to use it.
        return check.finding(max(need, Level.WARNING, key=_ORDER.index), str(error), DOCKER_GROUP)
    hint = error.hint or "sudo systemctl start docker; DOCKER_HOST names another socket"
    if need is Level.NOTE:
        return check.note(f"{error}; only playbooks with containers need it", hint)
    return check.finding(need, str(error), hint)


def _by_cdi(info: dict[str, object]) -> bool:
    devices = info.get("DiscoveredDevices")
    return isinstance(devices, list) and any("nvidia.com/gpu" in str(device) for device in devices)


def _older(version: str, oldest: tuple[int, int]) -> bool:
    """Whether a version is known to be older; an unreadable one is not."""
    match = _NUMBERS.match(version)
    return match is not None and (int(match[1]), int(match[2])) < oldest


_ORDER = [Level.OK, Level.NOTE, Level.WARNING, Level.FAILED]


def cards(facts: Facts, check: Check) -> Iterator[Finding]:
    """Each card with its memory, or the driver's error."""
    answer = facts.cards()
    site = facts.site()
    names = {gpu.uuid: gpu.name for gpu in site.model.gpus} if site else {}
    for uuid, memory in answer.cards.items():
        yield _card(check, uuid, names.get(uuid, ""), memory)
    if answer.words and not answer.cards:
        if names or answer.there:
            yield check.failed(answer.words, _hint(answer.words))
        else:
            yield check.note(f"no NVIDIA driver here ({answer.words}): GPU gauges stay empty")
    elif not answer.cards:
        yield check.note("the driver answers, but finds no card")


def named(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether every card in the site file exists: after a stop their memory is awaited."""
    site = facts.site()
    if site is None:
        return
    answer = facts.cards()
    there = answer.cards
    if not site.model.gpus:
        # a card that does not tell its UUID is known by its place, which names nothing for good
        known = [uuid for uuid in there if not uuid.startswith("index:")]
        if known:
            uuids = ", ".join(f"{{uuid: {uuid}}}" for uuid in known)
            yield check.note(
                "the site names no card: nothing waits for their memory between two models",
                f"gpus: [{uuids}]   in the site file",
            )
        return
    if answer.words and not there:
        yield check.note(f"{len(site.model.gpus)} named; not known while no driver answers")
        return
    missing = [gpu for gpu in site.model.gpus if gpu.uuid not in there]
    for gpu in missing:
        names = ", ".join(there) or "none"
        label = f"{gpu.uuid} ({gpu.name})" if gpu.name else gpu.uuid
        yield check.failed(
            f"{label} is not on this machine", f"`nvidia-smi -L` names those there are: {names}"
        )
    if not missing:
        yield check.ok(f"all {len(site.model.gpus)} that the site names exist")


def _card(check: Check, uuid: str, name: str, memory: Vram) -> Finding:
    label = f"{name} ({uuid})" if name else uuid
    used, total, why = memory.get("used"), memory.get("total"), memory.get("why", "")
    if used is not None and total is not None:
        return check.ok(f"{label}: {format_bytes(used)} of {format_bytes(total)} used")
    words = f"{label}: {why or 'its memory is not known'}"
    if why == GPU_LOST:
        return check.failed(words, _hint(why))
    if any(sign in why.lower() for sign in _UNSURE):
        return check.note(f"{words}; its memory is not shown")
    return check.warning(words, _hint(why))


def _hint(words: str) -> str:
    low = words.lower()
    return next((hint for sign, hint in _HINTS if sign in low), "`nvidia-smi` shows the driver")


def processor(facts: Facts, check: Check) -> Iterator[Finding]:
    """The processor and the vector extensions that kernels need."""
    from console.checks.preflight import host
    from console.host import machine
    from console.host.gpu.inventory import Cards

    seen = machine.look(root=facts.root, cards=Cards())
    yield from (_convert(check, finding) for finding in host.processor(seen))


def memory_limits(facts: Facts, check: Check) -> Iterator[Finding]:
    from console.host import memory

    cgroup_limits = memory.limits(facts.root)
    if not cgroup_limits:
        yield check.ok("no cgroup limits the memory of this login")
    for limit in cgroup_limits:
        words = (
            f"cgroup {limit.group} leaves {format_bytes(limit.left)} of {format_bytes(limit.most)}"
        )
        if limit.left < SCARCE * limit.most:
            yield check.warning(words, "what is started from here is killed beyond that")
        else:
            yield check.note(words)


def driver(facts: Facts, check: Check) -> Iterator[Finding]:
    """The driver against the kernel, and each card's compute capability."""
    from console.checks.preflight import gpu
    from console.host.gpu import inventory

    seen = inventory.ask(ASK_S)
    if seen.driver:
        finding = gpu.check_driver(seen.driver, kernel=platform.release())
        cuda = f", CUDA up to {seen.cuda[0]}.{seen.cuda[1]}" if seen.cuda else ""
        each = ", ".join(f"{card.name or card.uuid} {gpu.sm(card)}" for card in seen.cards)
        yield check.finding(LEVELS[finding.level], f"{finding.words}{cuda}; {each}", finding.hint)


def _convert(check: Check, finding: preflight.Finding) -> Finding:
    return check.finding(LEVELS[finding.level], finding.words, finding.hint)


CHECKS = (
    Check("engine.answers", "engine", answers),
    Check("engine.compose", "compose", compose, Level.WARNING),
    Check("engine.nvidia", "NVIDIA", nvidia, Level.WARNING),
    Check("engine.limits", "containers", limits, Level.WARNING),
)

GPU_CHECKS = (
    Check("gpu.cards", "cards", cards),
    Check("gpu.named", "site's cards", named),
)

PREFLIGHT_CHECKS = (
    Check("machine.processor", "processor", processor, Level.NOTE),
    Check("machine.limits", "limits", memory_limits, Level.NOTE),
    Check("gpu.driver", "driver", driver, Level.WARNING),
)
