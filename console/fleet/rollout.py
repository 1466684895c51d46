"""A rollout as it lies on the operator's disk: which hosts, what was started there, how far it is.
The same command finds it again, whatever ended an earlier call."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common import paths, record
from console.common.errors import HostBusy, UsageError
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import one_line
from console.fleet.inventory import Host
from console.fleet.starts import Wanted

VERSION = 1
PRIVATE = 0o600
FRESH = "--fresh begins the rollout anew"


@dataclass
class Leg:
    """One host's part. `request` names its start for good; `run` and `hash` are "" until they are
    known; `exit`: how its run ended, as an exit code, None while it has not."""

    host: str
    request: str
    hash: str = ""
    run: str = ""
    exit: int | None = None


@dataclass
class Rollout:
    """What was asked for, and how far it is; `save` makes every change durable before anything
    else happens. `terms`: the lease, the wishes to Slurm and the consent it began with."""

    playbook: str
    digest: str
    inputs: dict[str, str]
    fleet: str
    begun: float
    legs: list[Leg]
    over: bool = False
    terms: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Its file is named by the words of the command, so that the same command finds it."""
        key = [self.playbook, self.digest, self.inputs, self.fleet, [x.host for x in self.legs]]
        words = json.dumps(key, sort_keys=True).encode("utf-8", "surrogatepass")
        book = paths.file_name(self.playbook)[:60]
        name = f"{book}-{hashlib.sha256(words).hexdigest()[:12]}.json"
        return paths.fleet_dir() / "rollouts" / name

    def save(self) -> None:
        """Raises OSError."""
        paths.make(self.path.parent)
        write_atomically(self.path, record.text(self, indent=1, version=VERSION), PRIVATE)


def read(path: Path) -> Rollout:
    """A rollout as it lies on disk. Raises UsageError."""
    try:
        return record.read(Rollout, path, version=VERSION)
    except (OSError, RecordError) as error:
        raise UsageError(f"{path} cannot be read", one_line(str(error)), FRESH) from error


def kept() -> list[Rollout]:
    """Every readable rollout, the newest first."""
    rollouts = []
    for path in (paths.fleet_dir() / "rollouts").glob("*.json"):
        with suppress(UsageError):
            rollouts.append(read(path))
    return sorted(rollouts, key=lambda rollout: rollout.begun, reverse=True)


def opened(
    wanted: Wanted, fleet: Path, hosts: Sequence[Host], now: float, *, fresh: bool = False
) -> Rollout:
    """The rollout of this command: the one that is not over, unless `fresh`, or a new one. Raises
    UsageError."""
    digest = hashlib.sha256(wanted.text.encode("utf-8", "surrogatepass")).hexdigest()
    legs = [Leg(host.name, secrets.token_hex(16)) for host in hosts]
    made = Rollout(
        wanted.name, digest, wanted.inputs, str(fleet.resolve()), now, legs, terms=terms_of(wanted)
    )
    before = read(made.path) if made.path.exists() and not fresh else None
    return made if before is None or before.over else before


def terms_of(wanted: Wanted) -> dict[str, Any]:
    """On what terms its runs begin; they do not make it another rollout."""
    return {"lease_s": wanted.lease_s, "slurm": wanted.slurm, "yes": wanted.yes}


@contextmanager
def held(rollout: Rollout) -> Iterator[None]:
    """Keep every other process from going on with this rollout. Raises HostBusy, OSError."""
    paths.make(rollout.path.parent)
    lock = rollout.path.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HostBusy("this rollout is under way in another terminal") from error
        yield
    finally:
        os.close(descriptor)
