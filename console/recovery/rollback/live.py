"""live.jsonl lists a run's processes and containers; a line is fsynced once its pid or id is known.

A process line begins exactly with `{"pid":N,"start":N,` and a container line with
`{"container":"ID",`, so that rollback.sh can read them with sed. Readers skip a torn line. Each
line names the boot in which it was written: after a reboot the same pid belongs to another process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common import record
from console.common.errors import EngineError
from console.common.files import append_line, read_end
from console.common.text import one_line
from console.host import process
from console.host.ports import (
    answering,
    foreign,
    have_engine_client,
    held_by_others,
    strangers,
)
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.sealed_plan import ROLLBACK
from console.runtime.spec import Handle

LIVE = "live.jsonl"
TOO = ", too"
"""How the words about a stranger end who shares an address with the service itself."""
KINDS = ("runner", "step", "process", "container", "ladder", "closer")
STOPPABLE = ("runner", "step", "process", "container")
"""The kinds that a rollback ends; it spares everything else in the file."""


@dataclass(frozen=True, slots=True)
class Live:
    """One line: a process (`pid`, `start`) or a container (full id). `kind` is one of KINDS.

    A line of any other kind is read as well: a rollback spares what it cannot identify.
    """

    kind: str
    name: str = ""
    pid: int = 0
    start: int = 0
    container: str = ""
    group: str = ""
    """The control group of a process and of all that it starts; empty if it has none of its own."""
    expendable: bool = False
    """Whether a step started it to learn if it fits: an OOM kill in it is that step's result."""

    def line(self) -> str:
        """The JSON line; rollback.sh depends on the order of the keys."""
        who: dict[str, object]
        if self.container:
            who = {"container": self.container}
        else:
            who = {"pid": self.pid, "start": self.start}
        value = {**who, "kind": self.kind, "name": self.name, "boot": process.boot_id()}
        if self.group:
            value["group"] = self.group
        if self.expendable:
            value["expendable"] = True
        return json.dumps(value, separators=(",", ":"))


def of_handle(handle: Handle, group: str = "", *, expendable: bool = False) -> Live:
    """The line for a service that a driver started."""
    if handle.container:
        name, container = handle.service, handle.container
        return Live("container", name, container=container, expendable=expendable)
    return Live("process", handle.service, handle.pid, handle.start, group=group)


def runner(pid: int, start: int) -> Live:
    """The entry of a process that runs the run's steps."""
    return Live("runner", "runner", pid, start)


def closer(pid: int, start: int) -> Live:
    """The entry of a process that writes the run's end after a rollback, under the host's lock."""
    return Live("closer", "closer", pid, start)


def append(path: Path, entry: Live) -> None:
    """Append one line and fsync it. Raises OSError."""
    append_line(path, entry.line())


def read(path: Path) -> list[Live]:
    """Every whole line at the file's end, oldest first, without repeats; none if it cannot be read.
    Processes of another boot are left out.
    """
    try:
        data, _ = read_end(path)
    except OSError:
        return []
    entries: dict[Live, None] = {}
    boot = process.boot_id()
    for line in record.lines(_Line, data):
        entry = line.entry(boot)
        if entry is not None:
            entries[entry] = None
    return list(entries)


@dataclass(frozen=True, slots=True)
class _Line(Live):
    """A line as it lies in the file; `boot`: in which it was written, "" for any."""

    boot: str = ""

    def entry(self, boot: str) -> Live | None:
        """What it lists that may still be there in this boot; None for nothing."""
        if self.container:
            return Live(self.kind, self.name, container=self.container, expendable=self.expendable)
        # Pids 0 and 1 never belong to a run, and a negative pid would name a whole group.
        if (boot and self.boot not in ("", boot)) or self.pid <= 1 or self.start <= 0:
            return None
        return Live(self.kind, self.name, self.pid, self.start, group=self.group)


Inspect = Callable[[str], Mapping[str, Any] | None]
"""Inspects a container; None for one that is gone. Raises EngineError."""


def in_its_place(
    run: Path, name: str, url: str, inspect: Inspect, more: Iterable[Live] = ()
) -> tuple[Word, str]:
    """What is wrong with a candidate that clients were given to, beside what it answers: it does
    not run, or not at its address, or somebody else answers there; in words that follow its name.
    Cut over and "" for nothing. `more`: what else than the run's list says how it was started."""
    known = [*more, *read(run / ROLLBACK / LIVE)]
    named = {e for e in known if e.name == name and e.kind in ("process", "container")}
    if not named:
        return Word.UNKNOWN, "of which no record is left"
    try:
        up = [own for e in named if (own := _own(e, run.name, url, inspect)) is not None]
    except EngineError as error:  # nobody knows what answers
        return Word.UNKNOWN, f"and whether it runs is not known: {one_line(str(error), 300)}"
    if not up:
        others = [f"pid {listener.pid}, {listener.words}" for listener in strangers(url)]
        there = f"; something else answers there: {others[0]}" if others else ""
        return Word.DOWN, f"which does not run, or not at {url}{there}"
    who = min((stranger(url, own) for own in up), key=len)
    if who:
        return Word.UNKNOWN if who.endswith(TOO) else Word.DOWN, f"but {who}"
    return Word.CUT_OVER, ""


def stranger(url: str, own: Collection[int]) -> str:
    """What else than a service's own processes answers at its address, in words; "" for nothing,
    and if they are not known: in other networks the engine holds the port of a container."""
    if not own:
        return ""
    sockets = answering(url, here=True)
    other = next(held_by_others(sockets, own), None)
    if other is not None:
        mine = any(holder.pid in own for socket in sockets for holder in socket.holders)
        return f"pid {other.pid}, {other.words}, answers at {url}{TOO if mine else ''}"
    if sockets and all(socket.holders for socket in sockets):
        return ""
    users = {user for pid in own if (user := process.user_of(pid)) is not None}
    user = foreign(url, users, here=True, published=have_engine_client(own))
    return "" if user is None else f"a server of user {user} answers at {url}"


def pids_of_process(run_id: str, pid: int, start: int) -> set[int]:
    """A service's processes: of its group, what these have started, and who carries the run's
    cookie; empty if the group is gone."""
    stats = process.all_stats()
    own = {member.pid for member in process.members(pid, start, stats, cookie=run_id)}
    for child in sorted(stats, key=lambda stat: stat.start):  # a parent is older than its child
        if child.parent in own:
            own.add(child.pid)
    return own and own | {pid for pid, _ in process.by_cookie(run_id)}


def _own(entry: Live, run_id: str, url: str, inspect: Inspect) -> set[int] | None:
    """The processes of a service that can answer at a URL, empty where they cannot be told; None
    for one that cannot answer there. Raises EngineError."""
    if not entry.container:
        return pids_of_process(run_id, entry.pid, entry.start) or None
    from console.host.memory import pids_of_container
    from console.runtime.engine_api import can_answer, published_elsewhere

    container = inspect(entry.container)
    if container is None or not can_answer(container) or published_elsewhere(container, url):
        return None
    host = container.get("HostConfig")
    in_host = isinstance(host, dict) and host.get("NetworkMode") == "host"
    return set(pids_of_container(entry.container)) if in_host else set()
