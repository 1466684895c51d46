"""Which processes answer at an address: those that listen there, or those behind a proxy.

Whoever listens is not always the server. A published port of a container is held by the container
engine's proxy, or by nobody at all; a cutover's relay, nginx, a router and `ssh -L` pass on what
they get. The engine's proxy and our own relay are followed to the server. Behind any other one it
is not known who answers, and then no other engine's work may be held against a measurement: it may
be the server's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from console.bench.interference import ENGINES, SPINNERS, Engine
from console.common.argv import quoted
from console.common.errors import ConsoleError
from console.common.options.engines import engine_of, program_of
from console.common.text import decode, one_line
from console.host import process
from console.host.ports import Listener, is_local, listeners
from console.runtime import proxy
from console.runtime.discovery.processes import argv_of
from console.runtime.engine_api import RawEngine, published_elsewhere

PASSING = re.compile(
    r"router|proxy|swap|relay|gateway|balanc|litellm|nginx|haproxy|envoy|traefik|caddy|socat|ssh",
    re.I,
)
"""Programs that pass requests on to a server, some with an engine's name in theirs."""


def server_at(url: str, engine: Callable[[], RawEngine] = RawEngine) -> Engine:
    """The server at a URL. Its pid is 0 where it is not known which processes answer; `behind` says
    then who passes requests on, "" for nobody who is seen."""
    relay = proxy.at(url) if is_local(url) else None
    if relay is not None:
        host = relay.to if "://" in relay.to else f"http://{relay.to}"
        server = _answering(host, engine)
        return Engine(
            server.name, server.pid, server.facts, url, server.behind or _words(relay.pid)
        )
    return _answering(url, engine)


def _answering(url: str, engine: Callable[[], RawEngine]) -> Engine:
    if not is_local(url):
        return Engine("", url=url)
    holders = list(listeners(url))
    for holder in holders:
        if _serves(holder.pid):
            return Engine(_words(holder.pid) or holder.words, holder.pid, url=url)
    box = _published(url, engine)
    if box is not None:
        return Engine(*box, url=url)
    return Engine("", url=url, behind=_held_by(holders))


def _held_by(holders: list[Listener]) -> str:
    return f"pid {holders[0].pid}, {_words(holders[0].pid)}" if holders else ""


def _words(pid: int) -> str:
    """What is known to be harmless of a command line."""
    return quoted(argv_of(pid), 240)


def _serves(pid: int) -> bool:
    """Whether a process, or one that it has started, is an engine."""
    return any(_is_engine(argv_of(candidate)) for candidate in {pid} | _descendants(pid))


def _descendants(pid: int) -> set[int]:
    pids = {pid}
    for stat in sorted(process.all_stats(), key=lambda process_stat: process_stat.start):
        if stat.parent in pids:
            pids.add(stat.pid)
    return pids - {pid}


def _is_engine(argv: tuple[str, ...]) -> bool:
    program, _ = program_of(argv)
    if PASSING.search(program):
        return False
    return engine_of(argv) is not None or bool(ENGINES.search(program) or SPINNERS.search(program))


def _published(url: str, engine: Callable[[], RawEngine]) -> tuple[str, int] | None:
    """The container that is published at the URL, and the pid of its first process on this host."""
    try:
        raw_engine = engine()
        for row in raw_engine.list_containers():
            container = raw_engine.inspect(row.id)
            ports = (container.get("HostConfig") or {}).get("PortBindings")
            if ports and not published_elsewhere(container, url):
                pid = int((container.get("State") or {}).get("Pid") or 0)
                name = one_line(str(container.get("Name") or "").lstrip("/"), 60)
                return f"container {name}", pid if is_here(pid, row.id) else 0
    except (ConsoleError, OSError, ValueError):
        pass
    return None


def is_here(pid: int, container: str) -> bool:
    """Whether the pid given by the engine is that container on this host: an engine in a virtual
    machine or another pid namespace has other pids."""
    try:
        groups = decode(Path(f"/proc/{pid}/cgroup").read_bytes())
    except OSError:
        return False
    return pid > 0 and container[:12] in groups
