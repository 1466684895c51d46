"""Who listens on a port of this machine and who is connected to it, from the kernel's tables
alone, and how to connect to it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from urllib.parse import urlsplit

from console.common import files
from console.common.argv import quoted
from console.common.logs.cause import may_be_taken
from console.common.text import decode
from console.host import process
from console.host.memory import container_of

LISTEN, ESTABLISHED = "0A", "01"
"""States of a TCP socket in the kernel's tables."""
MAX_NAMED = 3
"""Of how many strangers at a port the words name the pid and the command line."""
LASTS_S = 0.1
"""How long a connection has to last, in seconds, before its client counts as one that uses the
server."""
CONNECT_S = 1.0
"""How long the first try to connect may take."""
ENGINE_PROXY = "docker-proxy"
"""The program that holds a published port unless the engine leaves that to the firewall."""
ENGINE_CLIENTS = frozenset({"docker", "docker-compose", "nerdctl", "podman"})
"""Programs, as the kernel names their processes, that start containers for a start script."""
SOCK_DIAG, DIAG_BY_FAMILY, DUMP, TCP_INFO = 4, 20, 0x301, 2
"""Of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h: the protocol, its one message, the
flags of a question for everything, and the attribute that holds a `struct tcp_info`."""
IDLE_MS = 30_000
"""After how many milliseconds without a byte a connection whose last request was answered is idle.
A server that has sent no more than the head of its answer may read a long prompt for longer than
that; its client then counts as nobody."""
STREAMS_S, STREAM_LOOKS = 2.0, 8
"""Within how many seconds, and at how many looks, a server is seen to stream: at half of them."""
DIAG_S = 1.0
"""How long the kernel may take for a part of its answer."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})


@dataclass(frozen=True, slots=True)
class Listener:
    """Its pid, and what is known to be harmless of its command line, as clean words."""

    pid: int
    words: str

    @property
    def is_engine_proxy(self) -> bool:
        """Whether it holds the port for a container."""
        return self.words.split(" ")[0].endswith(ENGINE_PROXY)

    def how_to_see(self, port: int) -> str:
        """What shows whose it is, to be typed. What would end it is never named: whatever holds a
        port serves somebody, and may be a baseline."""
        if self.is_engine_proxy:
            return f"docker ps --filter publish={port}"
        return f"ps -o pid,user,lstart,args -p {self.pid}"


@dataclass(frozen=True, slots=True)
class Door:
    """A TCP socket that listens on this machine: where it answers, and whose it is."""

    address: str
    port: int
    inode: str
    uid: int

    @property
    def url(self) -> str:
        """How this machine reaches it; one at every address is reached by loopback."""
        everywhere = not self.address.strip("0.:")
        return f"http://{_at('127.0.0.1' if everywhere else self.address, self.port)}"

    @property
    def words(self) -> str:
        """Its address and port, as a server's `--host` names it."""
        return _at(self.address, self.port)


def _at(address: str, port: int) -> str:
    host = address.removeprefix("::ffff:")
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def doors(proc: Path = Path("/proc")) -> list[Door]:
    """Every TCP socket that listens on this machine, the lowest port first."""
    all_doors = [Door(_readable(at), port, inode, int(uid)) for at, port, inode, uid in _rows(proc)]
    return sorted(all_doors, key=lambda door: (door.port, door.address))


def have_engine_client(pids: Iterable[int]) -> bool:
    """Whether one of these processes, or a descendant of theirs (`sudo` gives it a session of its
    own), is an engine's client. Only then may the engine's proxy hold their port for them: it may
    as well publish a stranger's container there."""
    own = set(pids)
    for pid in process.pids() if own else ():
        name = files.read_text(f"/proc/{pid}/comm").strip()
        if name in ENGINE_CLIENTS and own & process.ancestry(pid):
            return True
    return False


def listener(url: str, proc: Path = Path("/proc")) -> Listener | None:
    """Who listens where a URL of this machine points; None if nobody does, if it is another user's,
    or if the URL names another machine."""
    return next(listeners(url, proc), None)


def strangers(url: str, own: Collection[int] = ()) -> list[Listener]:
    """Who else than these processes, one's own, is seen to hold a socket that a connection to a
    URL of this machine may reach; whoever holds one, if one's own are not known."""
    sockets = answering(url, here=bool(own))
    others = held_by_others(sockets, own) if own else chain(*(s.holders[:1] for s in sockets))
    return list({other.pid: other for other in others}.values())


def held_words(url: str, own: Collection[int] = ()) -> str:
    """`pid 123, python3 -m http.server …, holds port 8000`, and what shows whose it is, of who
    else than these processes listens there; "" if nobody else is seen to."""
    others, port = strangers(url, own), port_of(url)
    if not others:
        return ""
    names = " and ".join(f"pid {other.pid}, {other.words}," for other in others[:MAX_NAMED])
    who = others[0]
    see = f"; `{who.how_to_see(port)}` shows which container" if who.is_engine_proxy else ""
    return f"{names} {'holds' if len(others) == 1 else 'hold'} port {port}{see}"


def doors_of(pids: Iterable[int]) -> list[Door]:
    """The sockets on which these processes listen, as far as this user may look."""
    held = {inode for pid in pids for inode in process.sockets_of(pid)}
    return [door for door in doors() if door.inode in held] if held else []


def ports_of(pids: Iterable[int]) -> list[int]:
    """The ports on which these processes listen, as far as this user may look."""
    return sorted({door.port for door in doors_of(pids)})


def shares_ports(pid: int) -> bool:
    """Whether a process has the ports of this one: one in a container has them, too, if that is in
    the host's network. Its namespaces are closed to other users, but not its tables of sockets:
    the kernel has one of each for a network, and numbers it. Without them only this user's
    processes of this container count."""
    with contextlib.suppress(OSError):
        theirs, ours = (os.stat(f"/proc/{proc_entry}/net/tcp") for proc_entry in (pid, "self"))
        return theirs.st_ino == ours.st_ino
    return process.user_of(pid) == os.getuid() and container_of(pid) == container_of(os.getpid())


def port_taken(url: str, lines: Sequence[str]) -> str:
    """`; pid 123, …, holds port 8000`, if these lines of a server's log say that its port is taken
    and somebody is seen to listen there; else ""."""
    return f"; {words}" if may_be_taken(lines) and (words := held_words(url)) else ""


def listeners(url: str, proc: Path = Path("/proc"), *, here: bool = False) -> Iterator[Listener]:
    """All who hold such a socket: a parent may have passed it to its child. `here`: the URL is
    known to be of this machine, whatever its host name."""
    if here or is_local(url):
        wanted = {f"socket:[{inode}]" for inode, _ in _answering(url, proc, here)}
        yield from _holders(wanted, proc) if wanted else ()


@dataclass(frozen=True, slots=True)
class Answering:
    """A socket that a connection to a URL may reach: its user, and the processes that hold it, none
    where this user may not see them."""

    uid: int
    holders: tuple[Listener, ...]


def answering(url: str, proc: Path = Path("/proc"), *, here: bool = False) -> list[Answering]:
    """Every socket that a connection to a URL of this machine may reach. Several may share one
    address (SO_REUSEPORT), and a name may mean one of IPv4 and one of IPv6."""
    sockets = _answering(url, proc, here) if here or is_local(url) else set()
    return [
        Answering(int(uid), tuple(_holders({f"socket:[{inode}]"}, proc)))
        for inode, uid in sorted(sockets)
    ]


def reach_the_same(url: str, other: str) -> bool:
    """Whether connections to two URLs reach the same server: at one address, or by one socket."""
    try:
        hosts = {urlsplit(address).hostname for address in (url, other)}
        same_port = port_of(url) == port_of(other)
    except ValueError:
        return False
    proc = Path("/proc")
    return same_port and (
        len(hosts) == 1 or bool(_answering(url, proc, False) & _answering(other, proc, False))
    )


def held_by_others(sockets: Iterable[Answering], own: Collection[int]) -> Iterator[Listener]:
    """The first holder of each socket that none of one's own processes is seen to hold: whoever
    shares an address (SO_REUSEPORT) gets a part of its requests, so all have to be one's own.

    A start script may run a container through a client: then the engine's proxy counts as its own,
    too. Where one's own processes are not known, only such a proxy can be told to be another's.
    """
    for holders in (reached.holders for reached in sockets):
        if not holders or any(holder.pid in own for holder in holders):
            continue
        proxies = any(holder.is_engine_proxy for holder in holders)
        if not have_engine_client(own) if proxies else own:
            yield holders[0]


def is_local(url: str) -> bool:
    """Whether a URL points at this machine: by its usual names, its own name, or one of its
    addresses. No name is looked up."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host in LOCAL or host == socket.gethostname().lower():
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now, also one that does not
    set SO_REUSEADDR: connections of an earlier server's clients linger for a minute."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def in_use(port: int) -> bool:
    """Whether a server that does not set SO_REUSEADDR could not listen on this port of every
    address now, of IPv4 or IPv6, whoever keeps it. Where this user may not try that, the kernel's
    tables tell; they lack sockets that do not listen yet."""
    tried = True
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            tried = tried and family == socket.AF_INET6  # this machine may have no IPv6
    return not tried and any(
        int(fields[1].rpartition(":")[2], 16) == port for fields in _table(Path("/proc"))
    )


def port_of(url: str) -> int:
    """The port of a URL, or its scheme's default."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def wide(port: int) -> bool:
    """Whether somebody listens on a port at every address of this machine."""
    return any(not host.strip("0") for host, _, _ in _doors(port, Path("/proc")))


def owners(url: str, proc: Path = Path("/proc"), *, here: bool = False) -> set[int]:
    """The users whose sockets answer where a URL of this machine points."""
    return {int(uid) for _, uid in _answering(url, proc, here)}


def foreign(
    url: str, ours: Iterable[int] = (), *, here: bool = False, published: bool = False
) -> int | None:
    """The uid of another user whose server answers where a URL of this machine points; None if
    there is none. `ours` are users whose server also counts as ours; with `published`, so does
    root's engine if it holds the port for a container."""
    uids = owners(url, here=here) - {os.getuid(), *ours}
    if published and 0 in uids and engine_proxies(port_of(url)):
        uids.discard(0)
    return min(uids, default=None)


def engine_proxies(port: int) -> list[int]:
    """The pids by which root's engine holds a port for a container. A proxy is recognised by its
    user and its command line, which anybody may read."""
    option, proxy_pids = ("-host-port", str(port)), list[int]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                words = os.fsdecode(Path("/proc", name, "cmdline").read_bytes()).split("\0")
                proxy = words[0].endswith(ENGINE_PROXY) and option in pairwise(words)
                if proxy and os.stat(f"/proc/{name}").st_uid == 0:
                    proxy_pids.append(int(name))
    return proxy_pids


def _localhost() -> tuple[str, ...]:
    """The addresses that this machine's own table has for `localhost`; both if it has none. A
    client that is given only the one of IPv4 never comes to a server that listens at the other."""
    try:
        rows = socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)
    except OSError:
        rows = []
    return tuple(dict.fromkeys(str(row[4][0]) for row in rows)) or ("127.0.0.1", "::1")


def ways(url: str, *, here: bool = False) -> list[tuple[str, ...]]:
    """The addresses whose sockets a connection to a URL may reach, in the kernel tables'
    hexadecimal form. In each row the first with a socket counts: the exact address, then every
    address, IPv4 before IPv6. No row for a name that is `here`: it is not looked up."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        addresses = _localhost()
    else:
        addresses = ("127.0.0.1" if host == "0.0.0.0" else host,)
    if here and not all(map(_hexadecimal, addresses)):
        return []
    rows = []
    for address in addresses:
        old = ":" not in address
        row = (address, f"::ffff:{address}", "0.0.0.0", "::") if old else (address, "::")
        rows.append(tuple(filter(None, map(_hexadecimal, row))))
    return rows


def _answering(url: str, proc: Path, here: bool) -> set[tuple[str, str]]:
    """(inode, user) of the sockets that a connection to a URL of this machine may reach."""
    try:
        here = here or is_local(url)
        port, rows = port_of(url), ways(url, here=here)
    except ValueError:
        return set()
    doors, sockets = _doors(port, proc), set()
    if here and not rows:
        return {(inode, uid) for _, inode, uid in doors}
    for row in rows:
        reached = ({(i, uid) for at, i, uid in doors if at == way} for way in row)
        sockets |= next(filter(None, reached), set())
    return sockets


def _hexadecimal(address: str) -> str:
    """An address as in the kernel's tables; "" if it is not an address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        data = socket.inet_pton(family, address)
    except OSError:
        return ""
    words = (int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4))
    return "".join(f"{word:08X}" for word in words)


def _readable(address: str) -> str:
    """An address of the kernel's tables as a person writes it."""
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    data = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(socket.AF_INET6 if len(data) > 4 else socket.AF_INET, data)


def has_clients(url: str, proc: Path = Path("/proc")) -> bool:
    """Whether a connection to a port of this machine is open, whoever holds it. One whose client
    has given up is not."""
    return bool(clients(url, proc))


def clients(url: str, proc: Path = Path("/proc")) -> frozenset[str]:
    """The other ends, as in the kernel's tables, of the open connections to a port of this machine.
    Those of clients behind a translated address are not among them."""
    port = port_of(url)
    return frozenset(
        f"{fields[1]} {fields[2]}"
        for fields in _table(proc, ESTABLISHED)
        if int(fields[1].rpartition(":")[2], 16) == port
    )


def lasting_clients(
    url: str, sleep: Callable[[float], None] = time.sleep, proc: Path = Path("/proc")
) -> int:
    """How many connections to a port of this machine last, and may be for a request: a look at a
    health path, as every open console takes one each second, is over by then; what a client keeps
    alive for its next request is answered."""
    connections = clients(url, proc)
    if not connections:
        return 0
    sleep(LASTS_S)
    lasting = connections & clients(url, proc)
    idle = _idle(port_of(url)) if lasting else set()
    return sum(int(client.rpartition(":")[2], 16) not in idle for client in lasting)


def _idle(port: int) -> set[int]:
    """The ports of the clients whose connections to a port of this machine are idle: nothing was
    asked since the last answer, for a time in which a stream would have gone on."""
    return {
        int.from_bytes(client[2:4], "big") for client, traffic in _traffic(port).items()
        if traffic.received_ms > traffic.sent_ms >= IDLE_MS
    }  # fmt: skip


def streams(url: str, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether clients take what a port of this machine sends, again and again within STREAMS_S.
    A monitor's questions, which a server that hangs may still answer, come less often."""
    port, grew = port_of(url), 0
    sent = acknowledged(port)
    for _ in range(STREAM_LOOKS if sent else 0):
        sleep(STREAMS_S / STREAM_LOOKS)
        before, sent = sent, acknowledged(port)
        grew += any(count > before.get(client, count) for client, count in sent.items())
    return grew >= STREAM_LOOKS // 2


def acknowledged(port: int) -> dict[bytes, int]:
    """How many bytes of what a port of this machine has sent its clients have acknowledged, for
    each connection that is open, by what identifies it. Empty where the kernel does not say.

    A server that streams is seen to here whatever it computes with: the answers of one whose work
    is done by cards leave no other trace.
    """
    return {client: traffic.acknowledged for client, traffic in _traffic(port).items()}


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Of one connection: how many bytes its client has acknowledged, and for how many milliseconds
    nothing was sent to it and nothing received."""

    acknowledged: int
    sent_ms: int
    received_ms: int


def _traffic(port: int) -> dict[bytes, _Traffic]:
    """The traffic of each open connection to a port of this machine, by what identifies it (both
    ports and addresses). Empty where the kernel does not say. Structures: linux/inet_diag.h and
    linux/tcp.h.
    """
    traffic = dict[bytes, _Traffic]()
    for family in (socket.AF_INET, socket.AF_INET6):
        with (
            contextlib.suppress(OSError, struct.error),
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel,
        ):
            kernel.settimeout(DIAG_S)
            query = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (TCP_INFO - 1), 1 << 1)
            body = query + struct.pack(">H46x", port)
            kernel.send(struct.pack("=IHHII", 16 + len(body), DIAG_BY_FAMILY, DUMP, 1, 0) + body)
            while not _read_diagnosis(kernel.recv(1 << 16), traffic):
                pass
    return traffic


def _read_diagnosis(data: bytes, traffic: dict[bytes, _Traffic]) -> bool:
    """Add what one datagram of the kernel's tells to `traffic`; whether it is the last one."""
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if kind != DIAG_BY_FAMILY:  # the end, or a refusal
            return True
        message, attribute = data[at + 16 : at + length], 72
        while attribute + 4 <= len(message):
            size, name = struct.unpack_from("=HH", message, attribute)
            if name == TCP_INFO and size >= 4 + 128:
                counters = struct.unpack_from("=44xI4xI64xQ", message, attribute + 4)
                traffic[message[4:52]] = _Traffic(counters[2], counters[0], counters[1])
            attribute += max(4, -(-size // 4) * 4)
        at += max(16, -(-length // 4) * 4)
    return not data


def _rows(proc: Path, state: str = LISTEN) -> Iterator[tuple[str, int, str, str]]:
    """(address in hexadecimal, port, inode, user) of every socket in this state."""
    for fields in _table(proc, state):
        address, _, port = fields[1].rpartition(":")
        yield address, int(port, 16), fields[9], fields[7]


def _table(proc: Path, state: str = "") -> Iterator[list[str]]:
    """The kernel's rows of every socket in this state, or in any."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in (proc / "net" / name).read_text().splitlines()[1:]:
                if state and f" {state} " not in row:
                    continue  # of the thousands that a busy server leaves behind
                fields = row.split()
                if state in ("", fields[3]):
                    yield fields


def _doors(port: int, proc: Path) -> set[tuple[str, str, str]]:
    """(address in hexadecimal, inode, user) of the sockets that listen on a port."""
    return {(at, inode, uid) for at, number, inode, uid in _rows(proc) if number == port}


def _holders(sockets: set[str], proc: Path) -> Iterator[Listener]:
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            held = f"{proc}/{name}/fd"  # a Path for each would take longer than the kernel does
            if any(os.readlink(f"{held}/{fd}") in sockets for fd in os.listdir(held)):
                argv = decode((proc / name / "cmdline").read_bytes()).split("\0")
                yield Listener(int(name), quoted(argv, 120))


def connected(host: str, port: int, left_s: float) -> socket.socket:
    """A connection within `left_s`, retried after 1, 2, 4 s. Raises OSError.

    If a firewall translates addresses, as Docker's does, the kernel may drop every packet of a new
    connection with the ports of one that has just ended. A retry has another port.
    """
    end, patience = time.monotonic() + left_s, CONNECT_S
    while True:
        left = end - time.monotonic()
        try:
            return socket.create_connection((host, port), max(0.001, min(patience, left)))
        except TimeoutError:
            if left <= patience:
                raise
        patience *= 2
