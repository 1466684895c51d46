"""The directories of a rehearsal, the environment of its processes, and how others join it.

It has its own directory, host directory (lock and pointers) and site, so that it can run beside the
real baseline and a real run, and neither's rollback touches the other. Standard library only,
because `omni-console rollback --rehearse` uses it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from console.common import paths, record
from console.common.errors import UsageError
from console.common.record import Key, RecordError
from console.rehearsal.inside.settings import HOLDS_VARIABLE, VARIABLE, Settings, packed
from console.runtime.spec import ROLE_VARIABLE

PREFIX = "omni-rehearsal/"
"""Prefix of stand-in image names."""
SHIFT = 10_000
TOO_MUCH = 0.99
"""Share of each card that a load over the VRAM budget takes."""
LOOPBACK = re.compile(r"(?<![\w.-])(127\.0\.0\.1|localhost|0\.0\.0\.0)([: ])(\d{2,5})(?!\d)")

STAND_INS = Path(__file__).with_name("standins")
MAPPING = "rehearsal.json"
"""File in a run's directory with all replacements; a run that has it is a rehearsal."""
LOOKS = ("images", "version", "info", "image inspect", "image ls")
"""`docker` subcommands that a step may use without naming a stand-in."""

_part = ""


@dataclass(frozen=True, slots=True)
class Mapping:
    """`ports`: published → moved, as text (it goes through JSON). `cpus`: of a candidate's
    container. `ram_below`: bytes of available RAM at which the guard stops a load. `speed`: target
    tok/s. `inputs`: values given by the rehearsal, not by the operator."""

    base: str
    fault: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    cpus: float = 1.0
    speed: float = 0.0
    settings: Annotated[Settings, Key("told")] = field(default_factory=Settings)
    ram_below: int = 0
    inputs: dict[str, str] = field(default_factory=dict)

    def port(self, value: object) -> Any:
        """The moved port; an unknown port unchanged."""
        moved = self.ports.get(str(value))
        return value if moved is None else str(moved) if isinstance(value, str) else moved

    def text(self, text: str, images: dict[str, str]) -> str:
        """A command's or script's text with loopback ports moved and images replaced."""
        moved = self.address(text)
        for real, stand_in in images.items():
            moved = re.sub(rf"(?<![\w./:-]){re.escape(real)}(?![\w./:-])", stand_in, moved)
        return moved

    def address(self, text: str) -> str:
        """A text with its loopback ports moved."""
        return LOOPBACK.sub(lambda m: f"{m[1]}{m[2]}{self.ports.get(m[3], m[3])}", text)

    def for_image(self, name: str) -> Settings:
        """Settings of a candidate's image; the baseline has none of its faults."""
        settings = replace(self.settings, image=name, fault=self.fault)
        if self.fault != "vram":
            return settings
        return replace(
            settings, hold={c["uuid"]: int(c["total"] * TOO_MUCH) for c in settings.cards}
        )

    def to_json(self) -> str:
        return record.text(self, indent=1)


def read_mapping(path: Path) -> Mapping:
    """Parse the output of `to_json`. Raises UsageError."""
    try:
        return record.read(Mapping, path)
    except (OSError, RecordError) as error:
        raise UsageError("the rehearsal's record cannot be read", f"{path}: {error}") from error


def move_ports(ports: Iterable[int]) -> dict[str, int]:
    """Move each port up by 10,000, or to the next free one. Raises UsageError without any."""
    moved: dict[str, int] = {}
    for port in sorted(set(ports)):
        wanted = port + SHIFT if port + SHIFT < 65_000 else port - SHIFT
        free_port = next(
            (n for n in range(wanted, wanted + 200) if n not in moved.values() and _free(n)), None
        )
        if free_port is None:
            raise UsageError(f"no free port for {port}", f"looked at {wanted}-{wanted + 199}")
        moved[str(port)] = free_port
    return moved


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def directory() -> Path:
    return paths.rehearsal_dir() / _part


@contextmanager
def only_planned() -> Iterator[None]:
    """Use a separate directory, so that a plan changes no rehearsal that is under way."""
    global _part
    _part = "plan"
    try:
        yield
    finally:
        _part = ""


def own_name(thing: str) -> str:
    """The name of a rehearsal's container, unique per user and state directory in the engine."""
    return f"omni-rehearsal-{_owner()}-{thing}"


def role_label() -> str:
    """The label by which only this user's rehearsals recognise what they started."""
    return f"omni.rehearsal.{_owner()}.role"


def _owner() -> str:
    whose = f"{os.getuid()} {paths.rehearsal_dir().resolve()}"
    return hashlib.sha256(whose.encode()).hexdigest()[:6]


def holds() -> Path:
    return directory() / "vram"


def work() -> Path:
    """The directory for paths that a playbook names, so that the real ones are never written."""
    return directory() / "work"


def site() -> Path:
    return directory() / "site.yaml"


def prepare() -> None:
    """Make the directories. Raises OSError."""
    for path in (holds(), work(), directory() / "bin", directory() / "host"):
        paths.make(path)
    holds().chmod(0o777)  # a container of another user writes there too


def enter(settings: Settings) -> None:
    """Set up the environment of every process of a rehearsal, for this one and its children:
    scripted cards, its own lock, and stand-in commands, which are written here."""
    prepare()
    python = os.environ.get("PYTHONPATH", "")
    before = os.environ.get("PATH", os.defpath)
    first = str(directory() / "bin")
    mine = {
        "OMNI_HOST_DIR": str(directory() / "host"),
        ROLE_VARIABLE: role_label(),
        "PYTHONPATH": f"{STAND_INS}:{python}" if python else str(STAND_INS),
        "PATH": before if before.split(":")[0] == first else f"{first}:{before}",
        VARIABLE: packed(settings),
        HOLDS_VARIABLE: str(holds()),
    }
    (directory() / "environment.json").write_text(json.dumps(mine) + "\n")
    os.environ.update(mine)
    if str(STAND_INS) not in sys.path:
        sys.path.insert(0, str(STAND_INS))
    _commands(before, {name: mine[name] for name in (VARIABLE, HOLDS_VARIABLE)})


def _commands(search: str, variables: dict[str, str]) -> None:
    """Stand-ins for host commands that a step may call. A step gets few variables, so their
    settings are written into them."""
    import shutil

    docker = shutil.which("docker", path=search.replace(f"{directory()}/bin:", "")) or "docker"
    known = [f"{name}={value}" for name, value in variables.items()]
    inside = shlex.join(["env", *known, *paths.module_argv("console.rehearsal.inside.command")])
    for name in ("nvidia-smi", "cuobjdump"):
        script(f'exec {inside} {name} "$@"', directory() / "bin" / name)
    script(_ldd(), directory() / "bin" / "ldd")
    script(_docker(docker), directory() / "bin" / "docker")


def _ldd() -> str:
    return (
        f'case "$1" in {shlex.quote(str(work()))}/*) echo "ldd: stand-in of a rehearsal" >&2\n'
        '  printf "\\tlibnccl.so.2 => /stand-in/libnccl.so.2 (0x0)\\n" ;;\n'
        '*) exec /usr/bin/ldd "$@" ;; esac'
    )


def _docker(docker: str) -> str:
    """`docker` for steps: the real one for the console itself; from a step only commands that look
    or that name a stand-in, so that no real image is tagged and no real container started or
    stopped."""
    looks = "|".join(f'"{words} "*' for words in LOOKS)
    return (
        f'[ -n "$OMNI_STEP" ] || exec {docker} "$@"\n'
        f'case "$* " in {looks}) exec {docker} "$@" ;; esac\n'
        f'case "$*" in *" {PREFIX}"*) exec {docker} "$@" ;; esac\n'
        'echo "stand-in of a rehearsal: not done: docker $*" >&2\n'
        "exit 1"
    )


def script(text: str, path: Path) -> None:
    """Write an executable; replaces the file, because it may be running."""
    paths.make(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(f"#!/bin/sh\n{text}\n")
    fresh.chmod(0o755)
    fresh.replace(path)


def join() -> str:
    """Join this user's rehearsal from another terminal: take on its environment (lock, site and
    scripted cards) and return its site file. Raises UsageError."""
    own = paths.rehearsal_dir()
    try:
        environment = record.load(own / "environment.json")
        os.environ.update({str(name): str(value) for name, value in environment.items()})
    except (OSError, ValueError, AttributeError) as error:
        hint = "omni-console run PLAYBOOK --rehearse"
        raise UsageError("no rehearsal is here", str(own), hint) from error
    return str(own / "site.yaml")
