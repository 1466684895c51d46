"""A run that waits for its allocation, on disk: what is to be started, the job that was asked for,
the process that holds it, and what became of it. Whoever comes later finds all of it there."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from console.common import paths, record
from console.common.errors import UsageError
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import clean, one_line
from console.host import process
from console.journal.run_dir import RunDir, all_runs
from console.recovery.rollback import trigger

T = TypeVar("T")
PRIVATE = 0o600
KEPT = 50
"""Most tickets that are kept of runs that have begun, or never will."""


@dataclass(frozen=True, slots=True)
class Held:
    """The process in a job that holds its allocation while it lives."""

    job: str
    pid: int
    start: int

    @property
    def lives(self) -> bool:
        """Whether it lives and may run: Slurm stops what it suspends, and gives its cards away."""
        return process.alive(self.pid, self.start) and not trigger.is_stopped(self.pid)


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a run's directory says of its allocation, and a ticket's of its job and who holds that.
    `boot`: of the machine, while `pid` and `start` name a process of it."""

    ticket: str = ""
    wish: str = ""
    job: str = ""
    pid: int | None = None
    start: int | None = None
    boot: str = ""

    @property
    def held(self) -> Held | None:
        """Who holds it, or did; None for a process of another boot, or none."""
        if self.boot != process.boot_id() or self.pid is None or self.start is None:
            return None
        return Held(clean(self.job, 40), self.pid, self.start)


@dataclass(frozen=True, slots=True)
class End:
    """What became of a ticket: the run that has begun, or in `words` why none did."""

    run: str = ""
    words: str = ""
    exit: int = 0


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is started once the allocation is there. `path`: its directory; `base`: what the
    playbook's paths are relative to; `expect`: the digest of the plan that was shown, "" for none;
    `wish`: what the allocation was asked for with, in words; `request`: as `begin` takes it."""

    id: str
    playbook: str
    base: str
    site: str
    inputs: dict[str, str] = field(default_factory=dict)
    yes: bool = False
    step: bool = False
    headless: bool = False
    lease_s: float | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    expect: str = ""
    request: str = ""
    wish: str = ""
    at: float = 0.0

    @property
    def path(self) -> Path:
        return paths.slurm_dir() / self.id

    @property
    def name(self) -> str:
        """The playbook, as it is called."""
        return Path(self.playbook).stem

    def keep(self) -> None:
        """Write it down, in place of one of this name whose job was refused. Raises OSError."""
        shutil.rmtree(self.path, ignore_errors=True)
        paths.make(self.path)
        _write(self.path / "ticket.json", record.plain(self))
        _prune()

    # -- the job -------------------------------------------------------------------------------

    def ask_with(self, job: str) -> None:
        _write(self.path / "job.json", {"job": job})

    @property
    def job(self) -> str:
        """The id of its job; "" for one that was never asked for."""
        return one_line((_read(Allocation, self.path / "job.json") or Allocation()).job, 40)

    def grant(self, job: str) -> None:
        """Note that this process holds the allocation."""
        me = os.getpid()
        start = process.start_time(me) or 0
        _write(self.path / "held.json", _of_boot(Held(job, me, start)))

    @property
    def held(self) -> Held | None:
        """Who holds the allocation, or did; None while nobody has on this boot."""
        holder = _read(Allocation, self.path / "held.json")
        return holder.held if holder is not None else None

    @property
    def held_elsewhere(self) -> bool:
        """Whether a process of another machine, or on another boot of this one, holds it or did."""
        holder = _read(Allocation, self.path / "held.json")
        return holder is not None and holder.boot != process.boot_id()

    def leave(self) -> None:
        """Note that Slurm wants the allocation back: nothing begins any more."""
        with suppress(OSError):
            _write(self.path / "leaving.json", {})

    @property
    def leaving(self) -> bool:
        return (self.path / "leaving.json").exists()

    # -- the run -------------------------------------------------------------------------------

    @property
    def awaited(self) -> bool:
        """Whether a process lives that begins the run when the allocation is there."""
        return trigger.is_held(self.path)

    def end(self, *, run: str = "", words: str = "", exit_: int = 0) -> None:
        """Note the run that has begun, or why none did."""
        _write(self.path / "end.json", record.plain(End(run, words, exit_)))

    @property
    def ended(self) -> End | None:
        """What `end` has noted; None before."""
        return _read(End, self.path / "end.json")

    @property
    def run(self) -> RunDir | None:
        """The run that has begun with this ticket, by what its own directory says: whoever began it
        may have died before it could note so."""
        for run in all_runs():
            allocation = _read(Allocation, run.allocation)
            if allocation is not None and allocation.ticket == self.id:
                return run
        return None


def read(place: Path) -> Ticket:
    """The ticket of a directory. Raises UsageError."""
    try:
        # its directory is made of its id, and removed when it is old
        return record.read(Ticket, place / "ticket.json", id=place.name)
    except (OSError, RecordError) as error:
        raise UsageError(f"{place} holds no ticket", one_line(str(error))) from error


def by_id(name: str) -> Ticket | None:
    with suppress(UsageError):
        return read(paths.slurm_dir() / name)
    return None


def everyone() -> list[Ticket]:
    """Every readable ticket, the newest first."""
    tickets = []
    with suppress(OSError):
        for place in paths.slurm_dir().iterdir():
            with suppress(UsageError):
                tickets.append(read(place))
    return sorted(tickets, key=lambda ticket: ticket.at, reverse=True)


def waiting() -> list[Ticket]:
    """Those whose run has not begun, and whose job still may be there."""
    return [ticket for ticket in everyone() if not ticket.ended and ticket.job]


def stamp_of(ticket: Ticket, held: Held) -> str:
    """What a run's directory says of its allocation."""
    return json.dumps({"ticket": ticket.id, "wish": ticket.wish, **_of_boot(held)})


def allocation_of(run: RunDir) -> Held | None:
    """Who holds a run's allocation, or held it; None for a run that needs none."""
    allocation = _read(Allocation, run.allocation)
    if allocation is None:
        return None
    return allocation.held or Held(clean(allocation.job, 40), 0, 0)


def told_allocation(run: RunDir) -> dict[str, Any] | None:
    """What a run's journal keeps of its allocation; None for a run that needs none."""
    allocation = _read(Allocation, run.allocation)
    if allocation is None:
        return None
    return {"job": clean(allocation.job, 200), "wish": clean(allocation.wish, 200)}


def _of_boot(held: Held) -> dict[str, Any]:
    """A process that holds an allocation, as it is told apart from those of other boots."""
    return record.plain(held) | {"boot": process.boot_id()}


def _read(record_type: type[T], path: Path) -> T | None:
    """What a file says; None where it is no JSON object, and of a wrong value the default."""
    try:
        return record.lenient(record_type, record.load(path))
    except (OSError, RecordError):
        return None


def _write(path: Path, data: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(data), PRIVATE)


def _prune() -> None:
    """Forget the oldest of those that are through."""
    through = [
        ticket for ticket in everyone() if ticket.ended and not (ticket.held and ticket.held.lives)
    ]
    for old in through[KEPT:]:
        shutil.rmtree(old.path, ignore_errors=True)
