"""What a server opens and listens at when it starts, and whether this machine has it."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from threading import Thread

from console.checks.preflight import Finding, Level
from console.checks.preflight.compatibility import ENGINES, Loader, speaks_gguf
from console.common.options.command_line import value_of
from console.common.options.table import table as option_table
from console.common.options.values import is_there, opened
from console.common.text import one_line
from console.host.ports import LOCAL, is_local
from console.models.hub.checkpoint import Format

OPENED = "files that it opens"
LISTENS = "address that it listens at"
LOOKUP_S = 2.0
"""Most seconds that looking up the name of an address may take."""


def not_there(loader: Loader, format_: Format) -> list[Finding]:
    """Files and directories that the engine opens at its start, by their whole paths, and addresses
    that it listens at, which this machine does not have. No refusal: they may be made before it
    starts, or it starts elsewhere."""
    if loader.own or loader.inside or loader.kind == "convert":
        return []
    engine = loader.engine or ("llama.cpp" if speaks_gguf(loader, format_) else "sglang")
    options = ENGINES[engine].options
    found = _foreign(value_of(loader.args, "--host", option_table(options), loader.env) or "")
    missing = [
        f"{one_line(one.path, 120)} ({one.option})"
        for one in opened(options, loader.args, loader.env)
        if Path(one.path).is_absolute() and not is_there(Path(one.path), one.kind)
    ]  # fmt: skip
    if not missing:
        return found
    words = f"not on this machine: {', '.join(missing)}; without it the server does not start"
    return [*found, Finding(Level.UNKNOWN, OPENED, words, "is it there where the command runs?")]


def _foreign(hosts: str) -> list[Finding]:
    """Addresses to listen at that this machine does not have, and names that it cannot look up."""
    given = [host for one in hosts.split(",") if (host := one.strip()) and not _is_socket(host)]
    foreign = [one_line(host, 80) for host in given if not _is_here(host)]
    if not foreign:
        return []
    words = f"this machine has no address {', '.join(foreign)} (--host), and the server needs it"
    return [Finding(Level.UNKNOWN, LISTENS, words, "is it one of the machine that it runs on?")]


def _is_socket(host: str) -> bool:
    """A unix socket, or what a shell or a template has still to make an address of."""
    return "/" in host or host.endswith(".sock") or any(sign in host for sign in "$`{%")


def _is_here(host: str) -> bool:
    try:
        return _has(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        known = (*LOCAL, socket.gethostname().lower())
        return host.lower() in known or any(map(_has, _addresses(host)))


def _has(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return is_local(f"http://[{address}]" if address.version == 6 else f"http://{address}")


def _addresses(name: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of a name; none if it has none, or no name server tells in time."""
    found: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = []

    def look() -> None:
        try:
            told = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            found.extend(ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in told)
        except (OSError, ValueError):  # UnicodeError is a ValueError
            return

    lookup = Thread(target=look, daemon=True)
    lookup.start()
    lookup.join(LOOKUP_S)
    return list(found)
