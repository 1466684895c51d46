"""What a service is: plain values shared by playbook, runner, drivers and the sealed plan.

Standard library only, because the emergency side reads these too.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from console.common.options.engines import WEIGHTS
from console.common.units import format_bytes
from console.host.licence import Licence
from console.host.process import ProcessSpec
from console.host.units import UnitSpec

PROMPT = "Say in one short sentence that you are ready."
"""Prompt of a completion that only has to prove that a server serves."""
GRACE_S = 10.0
"""Seconds from SIGTERM to SIGKILL for a service, a baseline included, that names no `grace`."""
ROLE_LABEL = "omni.role"
"""Container label; `candidate` and `oneoff` are what a rollback stops, by label."""
ROLE_VARIABLE = "OMNI_ROLE_LABEL"
"""Environment variable with a rehearsal's own label, so that its rollback and a real one never
touch the same containers."""
RUN_LABEL = "omni.run"
SERVICE_LABEL = "omni.service"
OWNER_LABEL = "omni.owner"
"""Container label `UID:SITE`: runs and rollbacks of another site, or of another user, leave the
container alone while it runs."""
BUILT_LABEL = "omni.built"
"""Image label: the tag that a `build` step gave. An image made from that one inherits the label
under another tag, so it is not the console's."""
SPEC_LABEL = "omni.spec"
"""sha256 of the resolved specification: equal means an older container can be reused."""
CLOCKS_DIFFER_S = 2.0
"""A file changed within these seconds of a server's start may be the one it loaded."""
SHARD = re.compile(r"-\d{5}-of-")

REHEARSAL_LABEL = "omni.rehearsal"
"""Label of the images and containers that a rehearsal makes."""
REHEARSED = re.compile(r"omni\.rehearsal\.[0-9a-f]+\.role")

MIB, GIB = 1 << 20, 1 << 30
MIN_RESERVE, MAX_RESERVE = 2 * GIB, 8 * GIB
"""MemAvailable was seen to lag half a GiB behind a hog; preflight leaves 8 GiB (models.sizing)."""
RESERVE_SHARE = 0.085
STEP = 256 * MIB
"""The limit is rounded down to this, as the kernel's own use varies by some MiB."""
OOM_SCORE = 1000
"""Makes the kernel kill a candidate before shell, engine or baseline, whatever they hold."""
PIDS = 4096


def role_label() -> str:
    """The label of a role that counts for this process."""
    return os.environ.get(ROLE_VARIABLE) or ROLE_LABEL


def owner_on(site: str) -> str:
    """The owner label's value for what this user makes on a site."""
    return f"{os.getuid()}:{site}"


def is_of_another(owner: str, site: str) -> bool:
    """Whether a container's owner label, UID:SITE, names another site, or (except for root) another
    user. One without a label was made by an older release: it counts as ours."""
    uid, _, named = owner.partition(":")
    return bool(owner) and (named != site or (os.getuid() != 0 and uid != str(os.getuid())))


def role_of(labels: Mapping[str, str]) -> str:
    """The role of a container of any run or rehearsal; "" if it is not the console's."""
    rehearsed = (labels[key] for key in labels if REHEARSED.fullmatch(key))
    return labels.get(ROLE_LABEL) or next(rehearsed, "")


@dataclass(frozen=True, slots=True)
class Ready:
    """How to know a service serves: HTTP 200 on `path`, kept up for `stable_for_s`."""

    path: str = "/health"
    timeout_s: float = 900.0
    stable_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container the console creates. `ports`: (host port, container port), on loopback only."""

    image: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    name: str = ""
    ports: tuple[tuple[int, int], ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    gpus: tuple[str, ...] = ()
    """GPU UUIDs, or ("all",)."""
    memory_bytes: int | None = None
    shm_bytes: int | None = None
    cpus: float | None = None
    pids: int = 4096
    network: str = ""
    workdir: str = ""


@dataclass(frozen=True, slots=True)
class ExistingContainer:
    """A container somebody else made (the baseline): started and stopped, never created."""

    name: str


@dataclass(frozen=True, slots=True)
class ComposeSpec:
    """A service of a compose v2 file; `args` follow the words of its own command."""

    files: tuple[Path, ...]
    service: str
    profiles: tuple[str, ...] = ()
    project: str = ""
    env: tuple[tuple[str, str], ...] = ()
    memory_bytes: int | None = None
    args: tuple[str, ...] = ()


Runs = ContainerSpec | ExistingContainer | ComposeSpec | ProcessSpec | UnitSpec


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A named service after interpolation. `exclusive`: needs the baseline's GPU memory."""

    name: str
    url: str
    runs: Runs
    ready: Ready = Ready()
    exclusive: bool = False
    keep: bool = False
    grace_s: float = GRACE_S


@dataclass(frozen=True, slots=True)
class Handle:
    """What is alive. A container has `container` (full id); a process has `pid` and `start`.

    `start` is field 22 of /proc/PID/stat (clock ticks since boot): it reveals a reused pid.
    """

    service: str
    kind: str
    container: str = ""
    name: str = ""
    pid: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """State of a handle at one moment; `detail` is clean text for the operator."""

    alive: bool
    exit_code: int | None = None
    oom_killed: bool = False
    restarts: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a driver needs to know about the run for which it starts something."""

    run_id: str
    log: Path
    """The service's log file, kept by exactly one tailer (or by the process itself)."""
    record: Callable[[Handle], None]
    """Called as soon as the effect has a name and before it acts, for live.jsonl."""
    site: str = ""
    """The name of the site that the run is on, for a one-off; a driver knows it from the start."""


class Driver(Protocol):
    """One running thing behind a ServiceSpec; every call has a total deadline of its own.

    Raises EngineError, EngineTimeout or ServiceError.
    """

    def find(self) -> Handle | None:
        """What is alive already under this specification, or None."""

    def start(self, launch: Launch) -> Handle: ...

    def status(self, handle: Handle) -> Status: ...

    def stop(self, licence: Licence, handle: Handle, grace_s: float) -> None:
        """Graceful, then kill; returns when it is gone. Deletes nothing. Raises Refused."""

    def last_lines(self, handle: Handle, count: int) -> list[str]:
        """The last lines it wrote, clean."""


def changed_weights(runs: Runs, began: float) -> str:
    """A weights file, named by a specification or inside a directory it names, that changed after
    `began` (Unix seconds): what has run since then serves the earlier contents. "" if there is
    none; files named by a compose file or somebody else's container are not known."""
    for file in weights(runs):
        with contextlib.suppress(OSError):
            # What is moved or linked into the place of another keeps its date, not its ctime.
            links = [path.lstat() for path in (file, *file.parents) if path.is_symlink()]
            if max(stat.st_ctime for stat in (file.stat(), *links)) > began + CLOCKS_DIFFER_S:
                return str(file)
    return ""


def weights(runs: Runs) -> Iterator[Path]:
    """The files with weights that a specification names, or that are in a directory it names."""
    for path in _paths(runs):
        with contextlib.suppress(OSError):
            yield from _weights(path)


def _weights(path: Path) -> list[Path]:
    """The files with weights that a path stands for: one, all parts of it, or a checkpoint's."""
    if path.is_dir():  # a server may keep other files with the endings of weights in one
        return [entry for entry in path.iterdir() if entry.suffix in (".gguf", ".safetensors")]
    if path.suffix not in WEIGHTS:
        return []
    name = SHARD.sub("-*-of-", glob.escape(path.name))
    return [path, *path.parent.glob(name)] if SHARD.search(path.name) else [path]


def _paths(runs: Runs) -> list[Path]:
    """The absolute paths in a specification's words, as this machine names them."""
    if isinstance(runs, ProcessSpec):
        words = (*runs.argv[1:], *(value for _, value in runs.env))
        paths = (Path(runs.cwd, word.rpartition("=")[2]) for word in words if word)
        return [path for path in paths if path.is_absolute()]
    if not isinstance(runs, ContainerSpec):
        return []
    inside = [Path(word.rpartition("=")[2]) for word in (*runs.entrypoint, *runs.command)]
    inside += [Path(value) for _, value in runs.env]
    return [
        Path(mount.source, path.relative_to(mount.target))
        for path in inside for mount in runs.mounts if path.is_relative_to(mount.target)
    ]  # fmt: skip


T = TypeVar("T", ContainerSpec, ComposeSpec)


def total_memory() -> int | None:
    """RAM of this machine in bytes; None if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def default_memory(total: int | None = None) -> int | None:
    """The default limit of a container, bytes; None if RAM is unknown. `total` less max(2 GiB, 8.5
    %), of which at most 8 GiB; at least half of a small machine.

    It keeps a candidate from taking the whole machine; there is no swap on top. It is above
    anything that preflight calls GO, so it never ends what was predicted to fit; and it depends on
    the machine alone, so that an equal container is found again.
    """
    total = total_memory() if total is None else total
    if not total or total <= 0:
        return None
    reserve = min(max(MIN_RESERVE, int(total * RESERVE_SHARE)), MAX_RESERVE, total // 2)
    left = total - reserve
    return left - left % STEP or left


def memory_limit(memory_bytes: int | None) -> int | None:
    """The effective limit: the one that is named, else the default; bytes of RAM, and the same
    number with swap, which therefore allows none."""
    return memory_bytes or default_memory()


def limited(runs: T) -> T:
    """A specification with the effective limit written into it."""
    return replace(runs, memory_bytes=memory_limit(runs.memory_bytes))


def memory_words(memory_bytes: int | None) -> str:
    """The effective memory limit, as a plan shows it."""
    limit = memory_limit(memory_bytes)
    if limit is None:
        return "no memory limit"
    own = "" if memory_bytes else " (the machine's RAM less a reserve)"
    return f"{format_bytes(limit)}{own}"


def containment(spec: ServiceSpec) -> str:
    """What the kernel itself limits if this service runs wild, in words, or that it is nothing."""
    runs: Runs = spec.runs
    if isinstance(runs, ContainerSpec | ComposeSpec):
        pids = runs.pids if isinstance(runs, ContainerSpec) else PIDS
        return (
            f"kernel limits: at most {memory_words(runs.memory_bytes)}, no swap, {pids} processes; "
            "the first to go when memory runs out; restart no"
        )
    if isinstance(runs, ExistingContainer):
        return "a container made elsewhere: its own limits, none of the console's"
    if isinstance(runs, UnitSpec):
        return "a unit made elsewhere: its own limits, none of the console's"
    assert isinstance(runs, ProcessSpec)
    return "no kernel limit: a host process may fill RAM and swap; only the sentinel stops it"
