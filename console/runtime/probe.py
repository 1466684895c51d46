"""Does it serve? HTTP with a total deadline, health, a real completion, slot progress.

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
from console.runtime.spec import PROMPT

BODY_LIMIT = 1 << 20


class ProbeError(ConsoleError):
    """No usable HTTP reply; `kind` is `refused`, `timeout`, `reset` or `garbage`."""

    exit_code = Exit.FAILED

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(_TITLES[kind], one_line(detail))
        self.kind = kind


_TITLES = {
    "refused": "connection refused",
    "timeout": "no answer in time",
    "reset": "connection dropped",
    "garbage": "not a usable HTTP reply",
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
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Completion:
    """One answered (or failed) chat completion.

    `text` and its `answer`, without reasoning, are foreign and not clean, `detail` is clean;
    `decode_tok_s` in tokens a second.
    """

    ok: bool
    detail: str
    text: str
    tokens: int
    elapsed_s: float
    decode_tok_s: float | None
    answer: str = ""


class _TimedRaw(io.RawIOBase):
    """Bytes of a socket; each receive may only take what is left of the whole deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


class _TimedSocket:
    """As much of a socket as http.client uses, under one deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str = "rb", buffering: int | None = None) -> io.BufferedReader:
        return io.BufferedReader(_TimedRaw(self._sock, self._deadline))

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
        self._begun = time.monotonic()
        self._deadline = self._begun + timeout_s

    def connect(self) -> None:
        self._wire = self._dial(_left(self._deadline))
        self.sock = cast(socket.socket, _TimedSocket(self._wire, self._deadline))

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
    try:
        link, path = _link(url, timeout_s)
        method = "GET" if body is None else "POST"
        headers = {**_authorization(url), **(headers or {})}
        return link.exchange(method, path, body=body, headers=headers, limit=limit)
    except TimeoutError:
        raise ProbeError("timeout", f"{url}: nothing within {format_duration(timeout_s)}") from None
    except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError) as error:
        raise ProbeError("reset", f"{url}: {error or 'reset'}") from None
    except http.client.IncompleteRead:
        raise ProbeError("reset", f"{url}: the reply broke off") from None
    except OSError as error:
        raise ProbeError("refused", f"{url}: {error.strerror or error}") from None
    except (http.client.HTTPException, ValueError) as error:
        what = one_line(str(error), 80) or type(error).__name__
        raise ProbeError("garbage", f"{url}: {what}") from None


def _authorization(url: str) -> dict[str, str]:
    user, found, _ = urlsplit(url).netloc.rpartition("@")
    if not found:
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


def _fetch_again(url: str, **more: Any) -> tuple[Reply, str]:
    """A fetch, and a note on it; a 400 without a body is a transport error and gets one retry."""
    reply = fetch(url, **more)
    if reply.status != 400 or reply.body:
        return reply, ""
    return fetch(url, **more), " (after one empty 400)"


def at_path(url: str, path: str) -> str:
    """A path of the server at a URL, which may end in /v1."""
    base = url.rstrip("/").removesuffix("/v1")
    return f"{base}/{path.lstrip('/')}"


def health(url: str, path: str = "/health", timeout_s: float = 2.0) -> tuple[Health, str]:
    """State of a server and a clean sentence about it.

    200 is serving, 503 is loading (llama-server says `Loading model`), refused is refused.
    """
    try:
        reply, note = _fetch_again(at_path(url, path), timeout_s=timeout_s)
    except ProbeError as error:
        state = Health.REFUSED if error.kind == "refused" else Health.UNHEALTHY
        return state, str(error)
    if reply.status == 200:
        return Health.SERVING, f"HTTP 200{note}"
    if reply.status == 503:
        return Health.LOADING, (error_words(reply.body) or "HTTP 503") + note
    return Health.UNHEALTHY, f"HTTP {reply.status} {error_words(reply.body)}".rstrip() + note


def error_words(body: bytes) -> str:
    """The `error.message` of a JSON body, else its beginning, but never a page's; clean."""
    if body.lstrip()[:1] == b"<":
        return "(a page, no answer of an engine)"
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return one_line(decode(body[:400]))
    error = value.get("error") if isinstance(value, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return one_line(str(text)) if text else one_line(decode(body[:400]))


def complete(
    url: str,
    *,
    model: str = "",
    prompt: str = PROMPT,
    max_tokens: int = 8,
    timeout_s: float = 120.0,
    slot: int | None = None,
    nonce: bool = True,
) -> Completion:
    """POST /v1/chat/completions (temperature 0, no stream) and judge the answer; never raises.
    `slot`: which one of llama-server's answers.

    Needs at least one completion token. `decode_tok_s` is (predicted_n - 1) * 1000 / predicted_ms
    of llama-server's `timings`, else tokens / elapsed; None when neither says anything.
    """
    # A nonce in front defeats the prompt cache: a cached answer would prove nothing.
    content = f"[{os.urandom(4).hex()}] {prompt}" if nonce else prompt
    ask: dict[str, Any] = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": False,
    }
    if model:
        ask["model"] = model
    if slot is not None:
        ask["id_slot"] = slot
    begun = time.monotonic()
    try:
        reply, note = _fetch_again(
            at_path(url, "/v1/chat/completions"),
            body=json.dumps(ask).encode(),
            timeout_s=timeout_s,
            headers={"Content-Type": "application/json"},
        )
    except ProbeError as error:
        return Completion(False, str(error), "", 0, time.monotonic() - begun, None)
    return _judge(reply, note)


def _judge(reply: Reply, note: str) -> Completion:
    elapsed = reply.elapsed_s
    if reply.status != 200:
        detail = f"HTTP {reply.status} {error_words(reply.body)}".rstrip() + note
        return Completion(False, detail, "", 0, elapsed, None)
    try:
        value = json.loads(reply.body)
        message = value["choices"][0]["message"]
        answer = str(message.get("content") or "")
        text = answer + str(message.get("reasoning_content") or "")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        detail = f"not a chat completion: {one_line(decode(reply.body[:200]), 80)}"
        return Completion(False, detail + note, "", 0, elapsed, None)
    timings, usage = _mapping(value, "timings"), _mapping(value, "usage")
    predicted, predicted_ms = _number(timings, "predicted_n"), _number(timings, "predicted_ms")
    tokens = int(_number(usage, "completion_tokens") or predicted)
    if tokens < 1:
        return Completion(False, "no completion token" + note, text, 0, elapsed, None)
    rate: float | None = tokens / elapsed if elapsed > 0 else None
    if predicted and predicted_ms > 0:
        rate = (predicted - 1) * 1000 / predicted_ms if predicted > 1 else None
    words = f"{plural(tokens, 'token')} in {format_duration(elapsed)}{note}"
    return Completion(True, words, text, tokens, elapsed, rate, answer)


def _mapping(value: Any, key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _number(value: dict[str, Any], key: str) -> float:
    found = number(value.get(key))
    return found if found is not None and 0 <= found < 1e12 else 0.0


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


def _slots(url: str, timeout_s: float) -> dict[str, int]:
    """Tokens decoded so far of every processing slot, by slot and task."""
    try:
        reply = fetch(at_path(url, "/slots"), timeout_s=timeout_s)
        value = json.loads(reply.body) if reply.status == 200 else []
    except (ProbeError, ValueError, RecursionError):
        return {}
    found: dict[str, int] = {}
    for slot in value if isinstance(value, list) else []:
        if isinstance(slot, dict) and is_processing(slot):
            found[f"{slot.get('id')}/{slot.get('id_task')}"] = _decoded(slot)
    return found


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
            return int(_number(place, "n_decoded"))
    return 0
