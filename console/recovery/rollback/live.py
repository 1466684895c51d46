"""live.jsonl lists a run's processes and containers; a line is fsynced once its pid or id is known.

A process line begins exactly with `{"pid":N,"start":N,` and a container line with
`{"container":"ID",`, so that rollback.sh can read them with sed. Readers skip a torn line. Each
line names the boot in which it was written: after a reboot the same pid belongs to another process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from console.common.files import append_line, read_end
from console.host import process
from console.runtime.spec import Handle

LIVE = "live.jsonl"
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
    found: dict[Live, None] = {}
    boot = process.boot_id()
    for line in data.split(b"\n"):
        entry = _entry(line, boot)
        if entry is not None:
            found[entry] = None
    return list(found)


def _entry(line: bytes, boot: str) -> Live | None:
    try:
        value = json.loads(line)
        kind, name = str(value["kind"]), str(value.get("name", ""))
        if "container" in value:
            container = str(value["container"])
            expendable = value.get("expendable") is True
            return Live(kind, name, 0, 0, container, "", expendable) if container else None
        pid, start = int(value["pid"]), int(value["start"])
        if boot and value.get("boot", boot) not in ("", boot):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    # Pids 0 and 1 never belong to a run, and a negative pid would name a whole group.
    group = str(value.get("group", ""))
    return Live(kind, name, pid, start, group=group) if pid > 1 and start > 0 else None
