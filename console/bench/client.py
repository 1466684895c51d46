"""One streamed completion over its own connection, with a time stamp for each event.

Each stream gets a fresh connection: after a streamed reply llama-server announces keep-alive and
then drops the connection, so a pooled one fails now and then.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from console.bench.sse import (
    Capture,
    Failure,
    FailureKind,
    Reply,
    SseParser,
    brings_text,
    read_reply,
)
from console.common.text import decode, one_line

if TYPE_CHECKING:
    import httpx


FIRST_S = 5.0
"""Seconds of silence after which it is reported."""
EVERY_S = 10.0
LOOK_S = 1.0
LOOKED_AT = 8
"""Newest events that are parsed: parsing all would delay the stamps of the next."""

CONNECT_S = 2.0
POLL_S = 0.05
REPLY_LIMIT = 256 * 2**20
BODY_LIMIT = 65_536

ClockNs = Callable[[], int]
OnEvent = Callable[[str], None]
"""Called with the data of each event as it arrives, in the reading thread; must be quick."""
Endpoint = Literal["chat", "completions"]
PATHS: dict[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
PROMPTS = (
    "Explain quantum entanglement in simple terms.",
    "Write a Python function to find prime numbers.",
    "What are the key principles of distributed systems?",
)
"""What a measurement asks for where the operator names no prompts: prose and code, so that one
word or character again and again is no answer to any of them, however it ends."""


class Waiting:
    """Tells an operator that no token comes: while a request is out (`with waiting:`), `say` is
    called from a thread of its own with the seconds of silence, after 5 s, then every 10 s until a
    token comes."""

    def __init__(
        self, say: Callable[[float], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._monotonic = monotonic
        self._events: deque[str] = deque(maxlen=LOOKED_AT)
        self._since = self._next = 0.0

    def __enter__(self) -> Waiting:
        self.begin()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self) -> None:
        """Note that a request goes out."""
        self._events.clear()
        self._since, self._next = self._monotonic(), FIRST_S

    def take(self, data: str) -> None:
        """Keep an event; it runs in the thread that stamps them, so it does no more."""
        self._events.append(data)

    def look(self) -> None:
        now = self._monotonic()
        if self._heard():
            self._since, self._next = now, FIRST_S
        elif now - self._since >= self._next:
            self._next = now - self._since + EVERY_S
            self._say(now - self._since)

    def _heard(self) -> bool:
        """Whether text came since the last look."""
        has_text = False
        while self._events:
            has_text = brings_text(self._events.popleft()) or has_text
        return has_text

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One user message, or with `endpoint` completions one bare prompt, without a chat template.

    `extras` adds the keys that only llama.cpp and vLLM know; `cached`: the prompt's beginning may
    come from a cache; `free`: the model may end its answer, which extras else forbid.
    """

    prompt: str
    max_tokens: int = 256
    seed: int = 42
    model: str = ""
    extras: bool = True
    endpoint: Endpoint = "chat"
    cached: bool = False
    free: bool = False

    def body(self) -> dict[str, Any]:
        options: dict[str, Any] = {"include_usage": True}
        prompt_fields: dict[str, Any] = {"prompt": self.prompt}
        if self.endpoint == "chat":
            prompt_fields = {"messages": [{"role": "user", "content": self.prompt}]}
        body: dict[str, Any] = {
            "model": self.model or "default",
            **prompt_fields,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "seed": self.seed,
            "stream": True,
            "stream_options": options,
        }
        if self.extras:
            options["continuous_usage_stats"] = True
            body |= {"cache_prompt": self.cached, "timings_per_token": True}
            body |= {} if self.free else {"ignore_eos": True}
        return body


_EXTRA_KEYS = ("cache_prompt", "ignore_eos", "timings_per_token", "continuous_usage_stats")
_UNKNOWN_FIELD = re.compile(
    r"unknown (field|param|arg|key|name)|unrecogni[sz]ed|unexpected (field|param|key|keyword)"
    r"|extra (inputs|fields)|extra_forbidden|additional propert",
    re.IGNORECASE,
)


class _Watch:
    """Cuts the connection on cancel or at the deadline, even while a read blocks."""

    def __init__(self, clock_ns: ClockNs, timeout_s: float, cancelled: threading.Event) -> None:
        self.started_ns = clock_ns()
        self.cut: Failure | None = None
        self._clock_ns = clock_ns
        self._timeout_s = timeout_s
        self._cancelled = cancelled
        self._socket: socket.socket | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream-watch", daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def trace(self, name: str, info: dict[str, Any]) -> None:
        """httpx's trace hook: notes the socket, and the moment the request is sent."""
        if name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
        elif name.endswith(".send_request_headers.started"):
            self.started_ns = self._clock_ns()

    def _run(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not self._over.wait(POLL_S):
            if self.cut is None and self._cancelled.is_set():
                self.cut = Failure(FailureKind.CANCELLED, "cancelled by the operator")
            elif self.cut is None and time.monotonic() >= deadline:
                text = f"no complete reply within {self._timeout_s:g} s"
                self.cut = Failure(FailureKind.TRANSPORT, text)
            if self.cut is not None and self._socket is not None:
                with contextlib.suppress(OSError):
                    # The plain method: SSLSocket.shutdown would pull TLS from under the reader.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def endpoint(url: str, path: str) -> str:
    """`http://host:8001/v1/` and `/props` → `http://host:8001/props`."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/") + path


def new_client(url: str, timeout_s: float, silence_s: float = math.inf) -> httpx.Client:
    """An httpx client for one request: no proxy or netrc from the environment, no pooling.

    `silence_s`: most seconds between two bytes of the reply. Connecting is tried twice, for the
    reason given at `listener.connected`.
    """
    import httpx

    transport = httpx.HTTPTransport(
        trust_env=False,
        # Loading the trust store costs tens of milliseconds; plain http has no use for it.
        verify=ssl.create_default_context() if url.startswith("https:") else False,
        limits=httpx.Limits(max_keepalive_connections=0),
        retries=1,
    )
    return httpx.Client(
        transport=transport,
        trust_env=False,
        timeout=httpx.Timeout(
            timeout_s, connect=min(CONNECT_S, timeout_s), read=min(silence_s, timeout_s)
        ),
        headers={"Accept-Encoding": "identity", "Connection": "close"},
    )


def stream_chat(
    url: str,
    request: ChatRequest,
    *,
    clock_ns: ClockNs = time.perf_counter_ns,
    timeout_s: float = 600.0,
    silence_s: float = math.inf,
    cancelled: threading.Event | None = None,
    on_event: OnEvent | None = None,
) -> Reply:
    """Send one request and follow its stream; failures are in the Reply, never raised.

    `timeout_s` bounds the whole exchange, `silence_s` the time between two bytes. A cancel takes
    about 100 ms, while connecting up to 4 s. A 400 without a body comes from the HTTP layer, not
    from the model: it is retried once on a new connection, and counted. If unknown keys are
    refused, the request is repeated without the extras.
    """
    cancelled = cancelled or threading.Event()
    retries = 0
    while True:
        got = _capture(url, request, clock_ns, (timeout_s, silence_s), cancelled, on_event)
        if got.failure is None and got.status == 400 and not got.body.strip() and not retries:
            retries += 1
        elif got.failure is None and request.extras and _refuses_extras(got):
            request = replace(request, extras=False)
        else:
            reply = read_reply(got)
            return replace(reply, transport_retries=retries, extras_refused=not request.extras)


def _refuses_extras(got: Capture) -> bool:
    text = decode(got.body)
    named = any(key in text for key in _EXTRA_KEYS)
    return got.status in (400, 422) and (named or bool(_UNKNOWN_FIELD.search(text)))


def _capture(
    url: str,
    request: ChatRequest,
    clock_ns: ClockNs,
    limits_s: tuple[float, float],
    cancelled: threading.Event,
    on_event: OnEvent | None,
) -> Capture:
    import httpx

    got = Capture()
    if cancelled.is_set():
        got.failure = Failure(FailureKind.CANCELLED, "cancelled by the operator")
        return got
    with _Watch(clock_ns, limits_s[0], cancelled) as watch:
        try:
            with (
                new_client(url, *limits_s) as client,
                client.stream(
                    "POST",
                    endpoint(url, PATHS[request.endpoint]),
                    json=request.body(),
                    headers={"Accept": "text/event-stream"},
                    extensions={"trace": watch.trace},
                ) as response,
            ):
                _follow(response, got, clock_ns, on_event)
        except ValueError as error:
            got.failure = Failure(FailureKind.PROTOCOL, one_line(str(error)))
        except httpx.ReadTimeout as error:
            silent = Failure(FailureKind.SILENT, f"no data for {limits_s[1]:g} s")
            got.failure = silent if limits_s[1] < limits_s[0] else _transport(error, True)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            got.failure = _transport(error, bool(got.events))
    got.started_ns = watch.started_ns
    got.ended_ns = got.ended_ns or (got.events[-1][0] if got.events else clock_ns())
    if watch.cut is not None and not (got.events and got.events[-1][1] == "[DONE]"):
        got.failure = watch.cut
    return got


def _follow(
    response: httpx.Response, got: Capture, clock_ns: ClockNs, on_event: OnEvent | None
) -> None:
    got.status = response.status_code
    got.content_type = response.headers.get("content-type", "")
    parser, size = SseParser(), 0
    streamed = got.status == 200 and "json" not in got.content_type
    for chunk in response.iter_bytes():
        # All that one read brought arrived together: to stamp its events one by one would
        # time this loop, and a client that was held up would see an absurd rate.
        at_ns = clock_ns()
        if not streamed:
            got.body += chunk
            if len(got.body) >= BODY_LIMIT:
                return
            continue
        size += len(chunk)
        if size > REPLY_LIMIT:
            raise ValueError(f"the reply is longer than {REPLY_LIMIT} bytes")
        for data in parser.feed(chunk):
            got.events.append((at_ns, data))
            if on_event is not None:
                on_event(data)
            if data == "[DONE]":  # some servers keep the connection open after it
                got.ended_ns = at_ns
                return
    got.ended_ns = clock_ns()
    got.events += [(got.ended_ns, data) for data in parser.close()]


def _is_reset(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ConnectionResetError):
        error = error.__cause__ or error.__context__
    return error is not None


def _transport(error: Exception, streaming: bool) -> Failure:
    import httpx

    text = one_line(str(error)) or type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        return Failure(FailureKind.TRANSPORT, f"timeout, {type(error).__name__}")
    # whoever ends a stream that has begun, by an end or by a reset, is not this side
    if streaming and (isinstance(error, httpx.RemoteProtocolError) or _is_reset(error)):
        return Failure(FailureKind.TRUNCATED, text)
    return Failure(FailureKind.TRANSPORT, text)
