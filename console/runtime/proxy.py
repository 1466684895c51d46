"""The relay of a cutover: a process that passes connections on the production port to a candidate.

It is no engine and knows no HTTP: bytes go both ways as they come. It is recognised by its command
line, so that it can be told from the baseline even if every record is lost. Standard library only,
because the emergency side looks for it too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from console.common.files import read_bytes
from console.common.paths import module_argv
from console.common.text import one_line
from console.host import process
from console.host.ports import owners
from console.host.ports import port_of as port_of
from console.host.process import COOKIE

if TYPE_CHECKING:
    import asyncio

NAME = "cutover"
"""The relay as a service of a run: its log, its record, its line in live.jsonl."""
MODULE = "console.services.relay"
"""The module it is started as and found by; an already sealed rollback.sh knows no other."""
_MODULES = (MODULE.encode(), b"console.runtime.proxy")
BACKLOG = 512
WIDE = ("0.0.0.0", "[::]")
"""Hosts of a relay that listens on every address."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A running relay: where it listens, where it leads, to which service, for which run."""

    pid: int
    start: int
    listen: str
    to: str
    service: str
    run: str
    """"" for another user's relay, whose environment could claim anything."""
    uid: int

    @property
    def life(self) -> str:
        """What tells one cutover from another: what is kept of a candidate is of one alone."""
        return f"{self.pid} {self.start}"

    @property
    def port(self) -> int:
        return _split(self.listen)[1]


def argv(listen: str, to: str, service: str) -> tuple[str, ...]:
    """The command that starts a relay. `listen` and `to` are HOST:PORT."""
    return (*module_argv(MODULE), listen, to, service)


def address(url: str) -> str:
    """HOST:PORT of a URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"[{host}]:{port_of(url)}" if ":" in host else f"{host}:{port_of(url)}"


def hosts(url: str) -> tuple[str, ...]:
    """Hosts that a relay for this URL may listen on, as its command line has them; empty if it may
    be any, as for a name, which is not looked up because that could take long."""
    host = address(url).rpartition(":")[0]
    if host == "localhost":
        own: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    elif host in WIDE or not _is_number(host):
        return ()
    else:
        own = (host, *(["localhost"] if host in ("127.0.0.1", "[::1]") else []))
    return (*own, *WIDE)


def is_at(listen: str, url: str) -> bool:
    """Whether a URL points to a relay's HOST:PORT; a wildcard or a name may be anywhere."""
    host, _, port = listen.rpartition(":")
    known = hosts(url)
    anywhere = not known or (host != "localhost" and not _is_number(host))
    return port == str(port_of(url)) and (anywhere or host in known)


def _is_number(host: str) -> bool:
    """Whether a host is an address and no name."""
    return host.startswith("[") or not host.strip("0123456789.")


def at(url: str) -> Relay | None:
    """The relay that listens where a URL of this machine points; None if there is none."""
    return next(iter(all_at(url)), None)


def all_at(url: str) -> list[Relay]:
    """Every relay that was started for the address of a URL of this machine.

    Anybody may start a process with such a command line, so another user's counts only if that user
    really has the port.
    """
    relays = [relay for relay in every() if is_at(relay.listen, url)]
    if all(relay.uid == os.getuid() for relay in relays):
        return relays
    having = {os.getuid(), *owners(url)}
    return [relay for relay in relays if relay.uid in having]


def every() -> list[Relay]:
    """All processes of this machine that have a relay's command line, whoever started them."""
    return [relay for pid in process.pids() if (relay := _relay(pid)) is not None]


def recorded(records_dir: Any, url: str) -> Relay | None:
    """The same as `at`, but from its record alone: a single file to read, for frequent looks."""
    known = process.read_record(records_dir, NAME)
    relay = _relay(known[0]) if known is not None else None
    return relay if relay is not None and is_at(relay.listen, url) else None


def _relay(pid: int) -> Relay | None:
    try:
        words = read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
        at = next((i for i, word in enumerate(words[:6]) if word in _MODULES), None)
        if at is None:
            return None
        listen, target, name = words[at + 1 :][:3]
        start = process.start_time(pid)
        if start is None or not process.alive(pid, start):
            return None
        _split(listen.decode())
        here, to, service = (one_line(w.decode(), 80) for w in (listen, target, name))
        uid = os.stat(f"/proc/{pid}").st_uid
        return Relay(pid, start, here, to, service, _cookie(pid) if uid == os.getuid() else "", uid)
    except (OSError, ValueError):
        return None


def _cookie(pid: int) -> str:
    rows = read_bytes(f"/proc/{pid}/environ").split(b"\0")
    pairs = dict(row.partition(b"=")[::2] for row in rows)
    return one_line(pairs.get(COOKIE.encode(), b"").decode(errors="replace"), 80)


def _split(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT. Raises ValueError."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname or not parts.port:
        raise ValueError(f"not HOST:PORT: {text}")
    return parts.hostname, parts.port


def main(words: list[str]) -> int:
    """Listen and pass on until SIGTERM, which cuts every connection to free the port."""
    import asyncio
    import resource

    listen, to, service = words
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # two descriptors a client; 1,024 are few
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return asyncio.run(_serve(_split(listen), _split(to), service))


async def _serve(listen: tuple[str, int], to: tuple[str, int], service: str) -> int:
    import asyncio
    import signal

    from console.runtime.proxy_server import Door, reset_on_close

    loop = asyncio.get_running_loop()
    over: asyncio.Event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    door = Door(loop, to, _say)
    try:
        server = await loop.create_server(
            door.client, *listen, backlog=BACKLOG, start_serving=False
        )
        reset_on_close(server.sockets)
        await server.start_serving()
    except OSError as error:
        _say(f"cannot listen on {listen[0]}:{listen[1]}: {error.strerror or error}")
        return 1
    _say(f"{listen[0]}:{listen[1]} is passed on to {service} at {to[0]}:{to[1]}")
    await over.wait()
    server.close()
    door.cut()
    _say(f"ended after {door.taken} connections, {door.failed} of them refused by {service}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
