"""The hosts of a fleet file. What was read is kept until the file changes: no parser is loaded for
a table, or in an emergency."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common import paths, record
from console.common.errors import UsageError
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import one_line

COMMAND = "omni-console"
CACHE = "fleet.json"


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the fleet. `lease_s`: None where the file does not say; `slurm`: what a run's
    allocation is asked for with, empty for a host whose runs need none."""

    name: str
    ssh: str
    command: str = COMMAND
    lease_s: float | None = None
    slurm: dict[str, str] = field(default_factory=dict)

    def words(self, *arguments: str) -> str:
        """What its login shell runs: the console there with these arguments."""
        return f"exec {self._words(arguments)}"

    def typed(self, *arguments: str, terminal: bool = False) -> str:
        """The same as a person types it here: this machine's shell leaves `~` to the host's."""
        words = self._words(arguments)
        remote_command = [words] if "~" in words or "'" in words else words.split(" ")
        return shlex.join(["ssh", *(["-t"] if terminal else []), self.ssh, *remote_command])

    def _words(self, arguments: Sequence[str]) -> str:
        home, command = "~/", self.command
        program = (
            f"~/{shlex.quote(command[2:])}" if command.startswith(home) else shlex.quote(command)
        )
        return " ".join([program, *map(shlex.quote, arguments)])


@dataclass(frozen=True, slots=True)
class Fleet:
    """A loaded fleet file."""

    path: Path
    hosts: tuple[Host, ...]

    def chosen(self, given: str) -> tuple[Host, ...]:
        """The hosts of `A,B`, in that order, or of `all`. Raises UsageError."""
        names = [part.strip() for part in given.split(",") if part.strip()]
        if names == ["all"]:
            return self.hosts
        known = {host.name: host for host in self.hosts}
        there = f"there are: {', '.join(known)}"
        for name in names:
            if name not in known:
                raise UsageError(f"no host '{one_line(name, 60)}' in {self.path.name}", there)
        if not names or len(set(names)) < len(names):
            raise UsageError("which hosts?", "each at most once, or all", there)
        return tuple(known[name] for name in names)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The hosts of a fleet file, and the stamp it had when they were read from it."""

    stamp: list[Any]
    hosts: tuple[Host, ...]


def fleet_path(given: str | None) -> Path:
    """`--fleet`, then `OMNI_FLEET`, then the user's."""
    named = given or os.environ.get("OMNI_FLEET")
    return Path(named) if named else paths.config_dir() / "fleet.yaml"


def load_fleet(given: str | None) -> Fleet:
    """The fleet file that is meant. Raises InvalidFile with every problem, UsageError without a
    file."""
    path = fleet_path(given).absolute()
    if not path.exists():
        hint = "write `schema: omni.fleet/v1` and `hosts: {NAME: {}}` into it, a line each"
        raise UsageError("there is no fleet file", one_line(str(path)), hint)
    stamp = _stamp(path)
    if (known := _kept(stamp)) is not None:
        return Fleet(path, known)
    from console.fleet.fleet_file import read_hosts

    hosts = tuple(Host(**row) for row in read_hosts(path))
    kept = paths.cache_dir() / CACHE
    with contextlib.suppress(OSError):
        paths.make(kept.parent)
        data = record.plain(_Parsed(stamp, hosts))
        write_atomically(kept, json.dumps(data), 0o600, durable=False)
    return Fleet(path, hosts)


def _stamp(path: Path) -> list[Any]:
    """What changes when the file does; empty where it cannot be told."""
    try:
        info = path.stat()
    except OSError:
        return []
    return [str(path), info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino]


def _kept(stamp: list[Any]) -> tuple[Host, ...] | None:
    """The hosts as they were read from this very file; None if they have to be read."""
    try:
        parsed = record.read(_Parsed, paths.cache_dir() / CACHE)
    except (OSError, RecordError):
        return None
    return parsed.hosts if stamp and parsed.stamp == stamp else None
