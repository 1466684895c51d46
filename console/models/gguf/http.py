"""One HTTP exchange at a time, with one deadline for all of them and a limit on bytes.

httpx passes on whatever a socket read brings, and its timeouts count from byte to byte. Its
transport, httpcore, takes a network backend that can enforce both a number of bytes and a deadline.
"""

from __future__ import annotations

import os
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore

from console.common.clock import Clock
from console.common.text import one_line
from console.common.units import format_duration
from console.models.gguf.byte_source import PORTS, Address, GgufError, Kind

LONGEST_WAIT_S = 86_400.0
_NO_TOKEN = (
    "a hub answers this for private, gated and missing repositories: check the name, accept the "
    "terms on the model's page, and set HF_TOKEN"
)
_TOKEN = "the token given has no access: accept the terms on the model's page, or use another token"

PATIENCE_S = 10.0
"""Longest silence of a server, seconds."""
CONNECT_S = 5.0
"""Seconds per try to connect; there are two, for the reason given at `services.listener`."""
SLOW_BYTES = 4 * 1024
"""Fewer bytes than these in that time are silence, too."""
HEADS = 256 * 1024
"""Most bytes before the status of an answer, `100 Continue` and the like included."""
_STORES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_HEAD = 4096
"""Bytes of one read until the status, and with it the wanted number, is known."""
_END = 256
"""Bytes of one read for the end of a chunked body, when all of the body is here."""


def refusal(
    status: int, headers: dict[str, str], address: Address, *, token_sent: bool, now: float
) -> GgufError:
    """What a status without a file means, and what to do about it: the error for an answer that is
    neither 200, 206 nor a redirect. `now` is Unix time, s."""
    code, message = headers.get("x-error-code", ""), headers.get("x-error-message", "")
    detail = f"HTTP {status}"
    if code or message:
        detail += f": {one_line(f'{code} {message}', 200)}"
    where = address.shown
    if status in (401, 403):
        hint = _TOKEN if token_sent else _NO_TOKEN
        return GgufError(Kind.REFUSED, f"{where} is refused", detail, hint)
    if status in (404, 410):
        hint = {
            "EntryNotFound": "the repository has no file of this name at this revision",
            "RevisionNotFound": "the repository has no such branch, tag or commit",
        }.get(code, "check the repository, the revision and the file's name")
        return GgufError(Kind.MISSING, f"{where} is not there", detail, hint)
    if status == 429 or status >= 500:
        wait = retry_after(headers, now)
        kind = Kind.RATE_LIMITED if status == 429 else Kind.SERVER
        title = "asks to slow down" if status == 429 else "fails"
        hint = "try again later" if wait is None else f"try again in {format_duration(wait)}"
        if status == 429 and not token_sent:
            hint += "; with HF_TOKEN more is allowed"
        return GgufError(kind, f"{address.authority} {title}", detail, hint)
    return GgufError(Kind.PROTOCOL, f"{where} gives an unusable answer", detail)


def retry_after(headers: dict[str, str], now: float) -> float | None:
    """Seconds until a retry makes sense, at most a day; None if no header says so.

    `RateLimit: "api";r=0;t=55` counts before `Retry-After`, in seconds or as a date.
    """
    limit = re.search(r";\s*t=(\d{1,9})\b", headers.get("ratelimit", ""))
    header = headers.get("retry-after", "").strip()
    if limit:
        wait = float(limit[1]) + 1  # the window ends somewhere in that second
    elif re.fullmatch(r"\d{1,9}", header, re.ASCII):
        wait = float(header)
    else:
        try:
            wait = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(max(wait, 0.0), LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class Answer:
    """`complete`: nothing was left unread. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool


def _enough(status: int, have: int, limit: int, declared: int | None) -> bool:
    """Whether to leave the rest. A range is read to its end, so that its connection serves the next
    one; other answers are not read beyond the limit."""
    return have > limit if status == 206 else have >= limit and declared != have


class Wire:
    """Connections of one reading, and their cost: `exchanges`, and `body_bytes` received."""

    def __init__(self, clock: Clock, deadline_s: float) -> None:
        self._clock, self._deadline_s = clock, deadline_s
        self._end = clock.monotonic() + deadline_s
        self._pools: dict[str, httpcore.ConnectionPool] = {}
        self.exchanges = self.body_bytes = 0
        self.most = _HEAD
        self._head: int | None = 0
        """Bytes that came before the status; None once it is known."""
        self._since, self._have = clock.monotonic(), 0
        """Since when how many bytes came."""

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def left(self) -> float:
        """Seconds that one operation may take now."""
        now = self._clock.monotonic()
        left = self._end - now
        if left <= 0:
            words = f"not done within {format_duration(self._deadline_s)} in all"
            raise httpcore.ReadTimeout(words)
        silent = now - self._since
        if silent >= PATIENCE_S:
            raise httpcore.ReadTimeout(f"{self._have} bytes in {silent:.0f} s in all")
        return min(left, PATIENCE_S - silent)

    def heard(self) -> None:
        """Count silence from now on."""
        self._since, self._have = self._clock.monotonic(), 0

    def took(self, count: int) -> None:
        """Account for bytes that a read brought. Raises httpcore's error for an answer that has too
        many bytes before its status."""
        self._have += count
        if self._have >= SLOW_BYTES:
            self.heard()
        if self._head is not None:
            self._head += count
            if self._head > HEADS:
                raise httpcore.RemoteProtocolError("its answer's header does not end")

    def get(
        self, address: Address, headers: dict[str, str], wanted: Callable[[int], int]
    ) -> Answer:
        """GET, with at most `wanted(status)` bytes of the body. Raises GgufError."""
        self.exchanges += 1
        body = b""
        self._head = 0
        self.heard()
        try:
            self.most = _HEAD
            pairs = [("Host", address.authority), *headers.items()]
            pool = self._pool(address)
            with pool.stream("GET", _url(address), headers=pairs) as response:
                self._head = None
                response_headers = {
                    k.decode().lower(): v.decode("latin-1") for k, v in response.headers
                }
                limit = wanted(response.status)
                length = response_headers.get("content-length", "")
                declared = int(length) if re.fullmatch(r"\d{1,18}", length, re.ASCII) else None
                complete = declared == 0
                self.most = limit
                for chunk in response.iter_stream() if limit else ():
                    body += chunk
                    self.most = max(limit - len(body), 0) or _END
                    if _enough(response.status, len(body), limit, declared):
                        complete = declared == len(body)
                        break
                else:
                    complete = complete or bool(limit)
            return Answer(response.status, response_headers, body, complete)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise _explained(error, address, len(body)) from None
        except (httpcore.ProxyError, httpcore.UnsupportedProtocol, OSError) as error:
            raise _unreachable(address, error) from None
        finally:
            self.body_bytes += len(body)

    def _pool(self, address: Address) -> httpcore.ConnectionPool:
        """The connections to a host, through the environment's proxy if it applies."""
        via = urllib.request.getproxies_environment().get(address.scheme, "")
        if via and urllib.request.proxy_bypass(address.host):
            via = ""
        key = f"{address.scheme} {via}"
        if key not in self._pools:
            self._pools[key] = httpcore.ConnectionPool(
                # Plain http has no use for it.
                ssl_context=_trust(*map(os.environ.get, _STORES))
                if address.scheme == "https"
                else None,
                proxy=_proxy(via) if via else None,
                network_backend=_Network(self),
                retries=1,
            )
        return self._pools[key]


@cache
def _trust(*stores: str | None) -> ssl.SSLContext:
    """The trust store that these variables name; loading it costs tens of milliseconds."""
    return ssl.create_default_context()


def _url(address: Address) -> httpcore.URL:
    # From its parts: a parser of addresses would drop `;…` from a path, and break a signature.
    scheme, host, target = (s.encode() for s in (address.scheme, address.host, address.target))
    port = None if address.port == PORTS[address.scheme] else address.port
    return httpcore.URL(scheme=scheme, host=host, port=port, target=target)


def _proxy(url: str) -> httpcore.Proxy:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        words = "only a proxy at an http address can be used"
        raise GgufError(Kind.UNSUPPORTED, "the proxy of the environment cannot be used", words)
    name = unquote(parts.username or ""), unquote(parts.password or "")
    port = f":{parts.port}" if parts.port else ""
    auth = name if parts.username else None
    return httpcore.Proxy(f"{parts.scheme}://{parts.hostname}{port}", auth=auth)


def _explained(error: Exception, address: Address, received: int) -> GgufError:
    """httpcore's error in an operator's words."""
    if isinstance(error, httpcore.TimeoutException):
        words = one_line(str(error))
        if "in all" not in words:
            words = f"no answer within {PATIENCE_S:g} s"
        return GgufError(Kind.TIMEOUT, f"{address.shown} is too slow", words, "try again later")
    if isinstance(error, httpcore.ConnectError | httpcore.LocalProtocolError):
        return _unreachable(address, error)
    if received:
        words = f"the connection broke after {received} bytes of an answer"
        return GgufError(Kind.BROKEN_OFF, f"{address.shown} broke off", words, "try again")
    return GgufError(
        Kind.PROTOCOL, f"{address.shown} gives no usable answer", one_line(str(error)), ""
    )


def _unreachable(address: Address, error: Exception) -> GgufError:
    # A LocalProtocolError quotes the header it refuses, and that may be the token.
    words = "" if isinstance(error, httpcore.LocalProtocolError) else one_line(str(error))
    hint = "is the address right, and the machine online? HTTPS_PROXY names a proxy"
    return GgufError(Kind.UNREACHABLE, f"{address.shown} cannot be reached", words, hint)


class _Network(httpcore.NetworkBackend):
    def __init__(self, wire: Wire) -> None:
        self._wire, self._inner = wire, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        patience = min(self._wire.left(), CONNECT_S)
        stream = self._inner.connect_tcp(host, port, patience, local_address, socket_options or ())
        self._wire.heard()
        return _Stream(self._wire, stream)


class _Stream(httpcore.NetworkStream):
    """A connection that enforces the deadline and the limit."""

    def __init__(self, wire: Wire, inner: httpcore.NetworkStream) -> None:
        self._wire, self._inner = wire, inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(min(max_bytes, self._wire.most), self._wire.left())
        self._wire.took(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._wire.left())

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._wire.left())
        return _Stream(self._wire, inner)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
