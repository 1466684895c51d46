"""Does it serve? HTTP with a total deadline, health, slot progress.

Standard library only, because the emergency side uses it too. Every call makes a fresh connection
(llama-server announces keep-alive after a stream and then drops it), uses no proxy, and ends at its
deadline whatever the other side does: a drip-fed reply cannot outlast it.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError, Exit
from console.common.text import decode, one_line
from console.common.units import format_duration, number, plural
from console.host.ports import connected

BODY_LIMIT = 1 << 20
HEALTH_S = 2.0
"""Seconds that the health path may take for its whole answer."""
PAGE = "(a page, no answer of an engine)"
"""What is said of a body that a proxy or another server has made for people."""
TLS_HEAD = 6
"""Bytes that tell a record of TLS: its kind, its version, its length, and what it is in it."""
OVERLOADED = frozenset({502, 503, 504, 529})
"""HTTP statuses of a completion that mean, where the health path is well, that the server is busy,
or that what is behind it is: its queue is full. It is alive."""
BUSY = "it is busy or overloaded"
REFUSES = "it refuses"
FAILS = "it fails this request"
"""What every other HTTP 5xx of a completion means where the health path is well: it is alive."""
DEAD = "its engine is dead"
ENGINE_DEAD = (
    "EngineDeadError|EngineCore encountered an issue|Engine process (failed|died|is dead|has died)"
    "|(engine|background) loop (has died|is dead|is not running|is stopped|has errored already)"
    "|(scheduler|detokenizer|engine ?core|worker proc)( process)?( [a-z0-9_-]+)?"
    " (died|is dead|has died|was killed)"
    "|(CUDA|HIP)( driver| runtime)? error|device-side assert|illegal memory access"
    "|illegal instruction was|misaligned address|unspecified launch (failure|error)"
    "|uncorrectable (ECC|NVLink)"
)
"""What an engine, or the log of its server, says that answers no later request either.

These two patterns mean the same to `re` and to `sed -E`, for rollback.sh has them, too.
"""
ENGINE_LIVES = (
    "(CUDA|HIP)( driver| runtime)? error( [0-9]+)?:? *(CUBLAS_STATUS_ALLOC_FAILED|out of memory"
    "|no kernel image|invalid (argument|configuration|device function|value)"
    "|operation not (supported|permitted)|too many resources)"
)
"""Errors of a card that a request meets and the engine survives; they are taken off first."""
_DEAD = re.compile(ENGINE_DEAD, re.IGNORECASE)
_LIVES = re.compile(ENGINE_LIVES, re.IGNORECASE)
_OF_THE_REQUEST = re.compile(r"template|jinja", re.IGNORECASE)
"""In the words of an HTTP 500: the engine is well, and does not take the request."""
_REFUSALS = {
    400: "it does not take the request", 401: "it wants a key", 402: "it wants to be paid",
    403: "it lets this request not in", 404: "it knows no such model or path",
    405: "it takes no POST there", 407: "a proxy in front wants a key",
    422: "it does not take the request", 429: "it takes no more requests now",
    501: "it does not support the request",
}  # fmt: skip


class ProbeError(ConsoleError):
    """No usable HTTP reply; `kind` is `refused`, `timeout`, `slow`, `reset`, `tls` or `garbage`."""

    exit_code = Exit.FAILED

    def __init__(self, kind: str, detail: str, status: int = 0, *, received: int = 0) -> None:
        """`status`: that of the answer whose body is not over; 0 where not even its head was.
        `received`: how many bytes have come."""
        super().__init__(_TITLES[kind], one_line(detail))
        self.kind = kind
        self.status = status
        self.received = received
        self.lives = kind == "tls" or (kind == "garbage" and received > 0)
        """Something answers, and not by HTTP: no restart makes another protocol of that."""


TIMEOUT, SLOW = "no answer in time", "only a part of the answer in time"
"""How the words about a server begin that did not answer in time, or not to the end."""
TLS = "it speaks TLS (https), and the console asks by http only"
"""How the words about a server begin that answers a TLS hello and no plain request."""
NO_HTTP = "not a usable HTTP reply"
HELLO_S = 2.0
"""How long a TLS hello may take at most."""
_TITLES = {
    "refused": "connection refused",
    "timeout": TIMEOUT,
    "slow": SLOW,
    "reset": "connection dropped",
    "tls": TLS,
    "garbage": NO_HTTP,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole HTTP reply; `body` is foreign and not clean."""

    status: int
    body: bytes
    elapsed_s: float
    headers: http.client.HTTPMessage = field(default_factory=http.client.HTTPMessage)


class Health(StrEnum):
    """What the health path says."""

    SERVING = "serving"
    LOADING = "loading"
    REFUSED = "refused"
    """Nothing listens: the connection is refused."""
    REFUSING = "refusing"
    """It is alive and answers with a refusal, HTTP 3xx or 4xx: it may want a key, or another path.
    So is what answers by TLS, or by anything else that is no HTTP."""
    SLOW = "slow"
    """It is alive: it sends an answer, which is not over in time."""
    UNHEALTHY = "unhealthy"


class _TimedRaw(io.RawIOBase):
    """Bytes of a socket; each receive may only take what is left of the whole deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self.received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        count = self._sock.recv_into(buffer)
        self.received += count
        return count


class _TimedSocket:
    """As much of a socket as http.client uses, under one deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._raw = _TimedRaw(sock, deadline)

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self._raw.received

    def makefile(self, mode: str = "rb", buffering: int | None = None) -> io.BufferedReader:
        return io.BufferedReader(self._raw)

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def close(self) -> None:
        """Do nothing: http.client closes before the body is read; the exchange closes it."""


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Link(http.client.HTTPConnection):
    """One exchange over one fresh connection that `dial(timeout_s)` makes.

    The deadline runs from construction to the last byte of the body.
    """

    def __init__(self, host: str, dial: Callable[[float], socket.socket], timeout_s: float) -> None:
        super().__init__(host)
        self._dial = dial
        self._wire: socket.socket | None = None
        self._timed: _TimedSocket | None = None
        self.status = 0
        """That of the answer, once its head has come."""
        self._begun = time.monotonic()
        self._deadline = self._begun + timeout_s

    def connect(self) -> None:
        self._wire = self._dial(_left(self._deadline))
        self._timed = _TimedSocket(self._wire, self._deadline)
        self.sock = cast(socket.socket, self._timed)

    @property
    def received(self) -> int:
        """Bytes of the answer that have come, its head included."""
        return self._timed.received if self._timed is not None else 0

    def exchange(
        self, method: str, path: str, *, body: bytes | None = None,
        headers: Mapping[str, str] | None = None, limit: int = BODY_LIMIT,
    ) -> Reply:  # fmt: skip
        """Send, receive at most `limit` bytes of body, close.

        OSError and http.client.HTTPException pass through; raises ValueError over the limit.
        """
        try:
            sent = {**(headers or {}), "Connection": "close"}
            self.request(method, path, body=body, headers=sent)
            with self.getresponse() as response:
                self.status = response.status
                data = response.read(limit + 1)
                if len(data) > limit:
                    raise ValueError(f"a body of more than {limit} bytes")
                if response.length and len(data) <= limit:
                    raise http.client.IncompleteRead(data, response.length)
                took = time.monotonic() - self._begun
                return Reply(response.status, data, took, response.headers)
        finally:
            self.close()
            if self._wire is not None:
                self._wire.close()


def fetch(
    url: str, *, body: bytes | None = None, timeout_s: float = 2.0, limit: int = BODY_LIMIT,
    headers: Mapping[str, str] | None = None,
) -> Reply:  # fmt: skip
    """GET, or POST when there is a body; `timeout_s` bounds everything but name resolution.

    Raises ProbeError.
    """
    link: Link | None = None
    try:
        link, path = _link(url, timeout_s)
        method = "GET" if body is None else "POST"
        headers = {**_authorization(url), **(headers or {})}
        return link.exchange(method, path, body=body, headers=headers, limit=limit)
    except TimeoutError:
        within = format_duration(timeout_s)
        if link is not None and link.received:
            words = f"{url}: {plural(link.received, 'byte')} within {within}"
            raise ProbeError("slow", words, link.status) from None
        raise ProbeError("timeout", f"{url}: nothing within {within}") from None
    except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
        raise _no_http(url, link, "reset", str(error) or "reset", timeout_s) from None
    except http.client.IncompleteRead:
        received = link.received if link is not None else 0
        raise ProbeError("reset", f"{url}: the reply broke off", received=received) from None
    except OSError as error:
        raise ProbeError("refused", f"{url}: {error.strerror or error}") from None
    except (http.client.BadStatusLine, http.client.UnknownProtocol):
        # Its text is the reply of whatever answers there, which may hold anything.
        raise _no_http(url, link, "garbage", "the reply is not HTTP", timeout_s) from None
    except (http.client.HTTPException, ValueError) as error:
        what = one_line(str(error), 80) or type(error).__name__
        received = link.received if link is not None else 0
        raise ProbeError("garbage", f"{url}: {what}", received=received) from None


def _no_http(url: str, link: Link | None, kind: str, words: str, timeout_s: float) -> ProbeError:
    """Why a plain request got no HTTP reply, or not the whole: it may have been for one who speaks
    TLS."""
    received = link.received if link is not None else 0
    if link is not None and link.status:
        return ProbeError(kind, f"{url}: the reply broke off: {words}", received=received)
    if speaks_tls(url, min(HELLO_S, timeout_s)):
        return ProbeError("tls", f"{url}: it answers a TLS hello", received=received)
    if kind == "reset" and received:
        kind, words = "garbage", f"{plural(received, 'byte')} that are no HTTP, and {words}"
    return ProbeError(kind, f"{url}: {words}", received=received)


def speaks_tls(url: str, timeout_s: float = HELLO_S) -> bool:
    """Whether what listens at an http:// URL answers a TLS hello, with its own or with an alert: it
    may want a certificate of its client. Nothing is verified, and no connection is kept."""
    deadline, data = time.monotonic() + timeout_s, b""
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return False
        with connected(parts.hostname, parts.port or 80, timeout_s) as sock:
            sock.settimeout(_left(deadline))
            sock.sendall(_hello())
            while len(data) < TLS_HEAD:
                sock.settimeout(_left(deadline))
                more = sock.recv(TLS_HEAD)
                if not more:
                    break
                data += more
    except (OSError, ValueError):
        pass
    return _is_tls(data)


def _hello() -> bytes:
    """A client's hello of TLS 1.2 and 1.3 (RFC 8446, 4.1.2), with which no connection comes about.
    It is made here because the watch, for its memory, loads no library for TLS."""

    def sized(data: bytes, size: int = 2) -> bytes:
        return len(data).to_bytes(size, "big") + data

    suites = bytes.fromhex("130113021303c02bc02fc02cc030cca9cca8c013c014009c009d002f0035")
    extensions = b"".join(
        bytes.fromhex(number) + sized(data)
        for number, data in {
            "000a": sized(bytes.fromhex("001d00170018")),  # groups: x25519 and two of NIST's
            "000b": sized(b"\0", 1),  # points as they are
            "000d": sized(bytes.fromhex("040308070804040105030805050108060601")),  # signatures
            "002b": sized(bytes.fromhex("03040303"), 1),  # versions
            "0033": sized(b"\x00\x1d" + sized(os.urandom(32))),  # a share for x25519
        }.items()
    )
    body = b"\x03\x03" + os.urandom(32) + sized(os.urandom(32), 1) + sized(suites)
    body += sized(b"\0", 1) + sized(extensions)
    return b"\x16\x03\x01" + sized(b"\x01" + sized(body, 3))


def _is_tls(data: bytes) -> bool:
    """Whether bytes begin as a server's hello or an alert of TLS do, and not as an echo of a
    client's hello does."""
    if data[1:2] != b"\x03":
        return False
    return data[:1] == b"\x15" or (data[:1] == b"\x16" and data[5:6] == b"\x02")


def _authorization(url: str) -> dict[str, str]:
    user, separator, _ = urlsplit(url).netloc.rpartition("@")
    if not separator:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(unquote(user).encode()).decode()}


def _link(url: str, timeout_s: float) -> tuple[Link, str]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("not an http:// or https:// URL")
    port = parts.port or (443 if parts.scheme == "https" else 80)

    def dial(left_s: float) -> socket.socket:
        sock = connected(host, port, left_s)
        if parts.scheme == "http":
            return sock
        import ssl  # only where it is wanted: it costs start-up time

        return ssl.create_default_context().wrap_socket(sock, server_hostname=host)

    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Link(parts.netloc.rpartition("@")[2], dial, timeout_s), path


def fetch_again(url: str, **more: Any) -> tuple[Reply, str]:
    """A fetch, and a note on it; a 400 without a body is a transport error and gets one retry."""
    reply = fetch(url, **more)
    if reply.status != 400 or reply.body:
        return reply, ""
    return fetch(url, **more), " (after one empty 400)"


def at_path(url: str, path: str) -> str:
    """A path of the server at a URL, which may end in /v1."""
    base = url.rstrip("/").removesuffix("/v1")
    return f"{base}/{path.lstrip('/')}"


def health(url: str, path: str = "/health", timeout_s: float = HEALTH_S) -> tuple[Health, str]:
    """State of a server and a clean sentence about it.

    200 is serving, 503 is loading (llama-server says `Loading model`), 3xx and 4xx are refusing,
    and so is what answers by anything else than HTTP. A proxy that speaks TLS may answer a plain
    request with a 400.
    """
    try:
        reply, note = fetch_again(at_path(url, path), timeout_s=timeout_s)
    except ProbeError as error:
        if error.status:  # its head says all that is asked
            return _of_status(error.status), f"HTTP {error.status}, {error}"
        if error.lives:
            return Health.REFUSING, str(error)
        states = {"refused": Health.REFUSED, "slow": Health.SLOW}
        return states.get(error.kind, Health.UNHEALTHY), str(error)
    if reply.status == 200:
        return Health.SERVING, f"HTTP 200{note}"
    if reply.status == 503:
        return Health.LOADING, (error_words(reply.body) or "HTTP 503") + note
    if reply.status == 400 and speaks_tls(url, min(HELLO_S, timeout_s)):
        return Health.REFUSING, f"{TLS}: HTTP 400 {error_words(reply.body)}".rstrip()
    empty = reply.status == 400 and not reply.body
    state = Health.UNHEALTHY if empty else _of_status(reply.status)
    return state, f"HTTP {reply.status} {error_words(reply.body)}".rstrip() + note


def _of_status(status: int) -> Health:
    known = {200: Health.SERVING, 503: Health.LOADING}
    usual = Health.REFUSING if 300 <= status < 500 else Health.UNHEALTHY
    return known.get(status, usual)


def refusal(status: int, detail: str = "") -> str:
    """What the answer of a server means that is alive and does not do what was asked; "" if the
    answer says nothing of the kind, such as HTTP 503.

    Nothing that answers like this may be restarted for it: it would answer the same again.
    """
    if status in _REFUSALS:
        return _REFUSALS[status]
    if 300 <= status < 400:
        return "it sends elsewhere, perhaps to a login"
    if 400 <= status < 500:
        return "it does not take the request"
    if status == 500 and _OF_THE_REQUEST.search(detail):
        return "its chat template does not take the request"
    return "it answers, but with no chat completion" if 200 <= status < 300 else ""


ALL_THE_SAME, WRONG_PATH = "it answers a completion all the same", "its health path?"
TLS_REMEDY = "start it on loopback without its certificate, and have a proxy speak TLS to others"


def wrong_path(path: str) -> str:
    """That a server answers a completion whose health path is not well: it may be another's."""
    return f"{ALL_THE_SAME}: is {one_line(path, 100)} {WRONG_PATH}"


def remedy(why: str) -> str:
    """What the operator does about a server that lives and answers no completion for this reason,
    which no restart mends; "" where the words name none."""
    if TLS in why:
        return TLS_REMEDY
    if NO_HTTP in why:
        return "what listens there speaks no HTTP: correct `url` in the file, or its port"
    if "HTTP 401" in why or "HTTP 403" in why:
        return "it wants a key, and the console sends none: serve it on loopback without one"
    if WRONG_PATH in why:
        return "correct `ready.http` in the file"
    if SLOW in why:
        return "see what slows it down, or raise `completion.timeout` in the file: it is alive"
    if BUSY in why:
        return "wait until its queue has room, or see who fills it"
    if FAILS in why:
        return "see what the server's own log says of this request: no restart is known to help"
    if "HTTP 3" in why:
        return "it sends elsewhere, perhaps to a login: correct `url` or `ready.http` in the file"
    if "HTTP 4" in why:
        return "correct `completion.model` or `ready.http` in the file"
    return ""


def engine_dead(text: str) -> str:
    """The words in a foreign text that say that an engine is dead, clean; "" if there are none."""
    match = _DEAD.search(_LIVES.sub("", text))
    return one_line(match[0], 80) if match else ""


def error_words(body: bytes) -> str:
    """The `error.message` of a JSON body, else its beginning, but never a page's; clean."""
    if body.lstrip()[:1] == b"<":
        return PAGE
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return one_line(decode(body[:400]))
    error = value.get("error") if isinstance(value, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return one_line(str(text)) if text else one_line(decode(body[:400]))


def amount(value: dict[str, Any], key: str) -> float:
    figure = number(value.get(key))
    return figure if figure is not None and 0 <= figure < 1e12 else 0.0


def busy(
    url: str,
    timeout_s: float = 2.0,
    *,
    interval_s: float = 1.0,
    clock: Clock | None = None,
) -> bool:
    """True when a slot of llama-server decodes: its `n_decoded` grew between two looks.

    False for a server without /slots, which cannot be judged.
    """
    before = _slots(url, timeout_s)
    if not before:
        return False
    (clock or SystemClock()).sleep(interval_s)
    after = _slots(url, timeout_s)
    return any(count > before.get(slot, count) for slot, count in after.items())


def tells_slots(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a server says what its slots do."""
    try:
        return fetch(at_path(url, "/slots"), timeout_s=timeout_s).status == 200
    except ProbeError:
        return False


def _slots(url: str, timeout_s: float) -> dict[str, int]:
    """Tokens decoded so far of every processing slot, by slot and task."""
    try:
        reply = fetch(at_path(url, "/slots"), timeout_s=timeout_s)
        value = json.loads(reply.body) if reply.status == 200 else []
    except (ProbeError, ValueError, RecursionError):
        return {}
    tokens_by_slot: dict[str, int] = {}
    for slot in value if isinstance(value, list) else []:
        if isinstance(slot, dict) and is_processing(slot):
            tokens_by_slot[f"{slot.get('id')}/{slot.get('id_task')}"] = _decoded(slot)
    return tokens_by_slot


def is_processing(slot: dict[str, Any]) -> bool:
    """Whether a slot works at a request; ik_llama.cpp, like old builds of llama.cpp, says so by the
    number of its state."""
    return slot.get("is_processing") is True or slot.get("state") == 1


def _decoded(slot: dict[str, Any]) -> int:
    """`n_decoded` of a slot: builds keep it in the slot, in `next_token`, or in a list there."""
    inner = slot.get("next_token")
    if isinstance(inner, list):
        inner = inner[0] if inner else None
    for place in (slot, inner):
        if isinstance(place, dict) and "n_decoded" in place:
            return int(amount(place, "n_decoded"))
    return 0
