"""Whether what is asked at the baseline's address reaches its container, where its engine publishes
that nowhere on this machine.

Such a container may have a proxy in front of it, or nothing; then whoever has the address answers
in its place. The kernel counts what each network receives: a container whose network has received
nothing since a question was asked has not answered it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.common import files
from console.host.memory import container_of
from console.host.ports import is_local, shares_ports

PUBLISHED_NOWHERE = "its container is published at no port of this machine"
NOTHING_CAME = f"{PUBLISHED_NOWHERE}, and nothing that was asked there has reached it"
HINT = "publish its port (-p HOST:CONTAINER), or look at the proxy in front of it"


class Reach:
    """Tells whether anything has reached an inspected container since this was made."""

    def __init__(self, container: Mapping[str, Any] | None, url: str) -> None:
        self._pid = first_pid(container or {}) if is_unpublished(container or {}, url) else 0
        self._before = received(self._pid)

    @property
    def is_known(self) -> bool:
        """Whether it can be told at all: of a published container there is nothing to tell."""
        return self._before is not None

    @property
    def missed(self) -> bool:
        """Whether its network has surely received nothing; False where that cannot be told."""
        if self._before is None:
            return False
        now = received(self._pid)
        if now is None:
            return False
        return any(before == after for before, after in zip(self._before, now, strict=True))


def is_unpublished(container: Mapping[str, Any], url: str) -> bool:
    """Whether an inspected container is in a network of its own, none of whose ports its engine
    publishes on this machine, where the URL points."""
    host = container.get("HostConfig")
    if not isinstance(host, dict) or not is_local(url):
        return False
    mode = str(host.get("NetworkMode") or "")
    return mode != "host" and not mode.startswith("container:") and not host.get("PortBindings")


def first_pid(container: Mapping[str, Any]) -> int:
    """The first process of a container of this machine; 0 where it does not run, and for one of
    another machine, whose number may be anybody's here."""
    state = container.get("State")
    pid = state.get("Pid") if isinstance(state, dict) else 0
    if not isinstance(pid, int) or pid <= 0 or container_of(pid) != container.get("Id"):
        return 0
    return 0 if shares_ports(pid) else pid


def received(pid: int) -> tuple[int, int] | None:
    """The TCP segments that the network of a process has received, and the packets that came into
    it from outside; None where the kernel does not say, and where nothing in it listens on TCP: it
    may be reached by a socket of the file system."""
    try:
        if not pid or not _listens(pid):
            return None
        segments = _segments(files.read_kernel(f"/proc/{pid}/net/snmp").decode())
        packets = _packets(files.read_kernel(f"/proc/{pid}/net/dev").decode())
    except (OSError, ValueError, IndexError):
        return None
    return segments, packets


def _listens(pid: int) -> bool:
    tables = [files.read_kernel(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    return any(len(row) > 3 and row[3] == b"0A" for row in rows)


def _segments(table: str) -> int:
    """InSegs of /proc/net/snmp, whose rows come in pairs: names, then figures."""
    names, figures = (row.split() for row in table.splitlines() if row.startswith("Tcp:"))
    return int(figures[names.index("InSegs")])


def _packets(table: str) -> int:
    """The packets that all devices of /proc/net/dev but the loopback have received."""
    rows = [row.partition(":") for row in table.splitlines() if ":" in row]
    return sum(int(fields.split()[1]) for name, _, fields in rows if name.strip() != "lo")
