"""Reads the server-sent events of a streamed completion (chat or plain) into a Reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from console.common.text import decode, one_line
from console.common.units import number

EVENT_LIMIT = 8 * 2**20
MAX_FIGURE = 1e12
"""Counts and milliseconds above it are nonsense."""


SILENCE_S = 300.0
"""Seconds of silence after which an engine counts as hung; the seeds allow a whole request this."""


class FailureKind(StrEnum):
    """Classes of errors, so that a lost connection is not mistaken for a refusal."""

    TRANSPORT = "transport"
    SILENT = "silent"
    REFUSED = "refused"
    SERVER = "server error"
    TRUNCATED = "truncated"
    PROTOCOL = "not a stream of completions"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no usable reply; `text` is clean."""

    kind: FailureKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Event:
    """One SSE event; `tokens` is the running count it reported (None: it reported none).

    `is_text`: it carries tokens of the reply, not a role, progress or usage alone; `is_answer`:
    they are of the answer proper, not of its reasoning or of a tool's call.
    """

    at_ns: int
    is_text: bool = False
    is_answer: bool = False
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """llama-server's own figures; counts in tokens, durations in ms, None if not given."""

    cache_n: float | None = None
    prompt_n: float | None = None
    prompt_ms: float | None = None
    predicted_n: float | None = None
    predicted_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's reply; stamps in ns of the caller's clock, counts in tokens.

    `started_ns` is the moment before the request is sent on an open connection, `ended_ns` the
    [DONE] event, or the end of the stream.
    """

    started_ns: int = 0
    ended_ns: int = 0
    events: tuple[Event, ...] = ()
    raw_text: str = field(default="", repr=False)
    """The unfiltered reply: for counting tokens only, never for a terminal."""
    answer: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)
    """The parts of the unfiltered reply: the answer proper with calls of tools, and the reasoning
    before it."""
    first_text: str = field(default="", repr=False)
    """The text that arrived first, in a single read."""
    finish_reason: str = ""
    done: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    """How many of the completion's tokens the server says were thinking, shown or not."""
    timings: Timings | None = None
    failure: Failure | None = None
    transport_retries: int = 0
    extras_refused: bool = False
    contradiction: str = ""
    """Why the server's own counts of its output cannot all be true, in words."""


@dataclass(slots=True)
class Capture:
    """The raw exchange; its JSON is parsed after the stream is over."""

    started_ns: int = 0
    ended_ns: int = 0
    status: int | None = None
    content_type: str = ""
    body: bytes = b""
    events: list[tuple[int, str]] = field(default_factory=list)
    failure: Failure | None = None


class SseParser:
    """Parses server-sent events from bytes cut anywhere, as the HTML standard specifies."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._size = 0  # bytes of the event that is not complete yet
        self._data: list[str] = []
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of each event that `chunk` completes. Raises ValueError past the limit."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        begun, *more = re.split(rb"\r\n|\n|\r", chunk)
        self._tail += begun
        self._size += len(chunk)
        lines: list[bytes] = []
        if more:
            lines = [bytes(self._tail), *more[:-1]]
            self._tail = bytearray(more[-1])
        if b"" in lines:
            self._size = len(more[-1])
        if self._size > EVENT_LIMIT:
            raise ValueError(f"an event is longer than {EVENT_LIMIT} bytes")
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                data, self._data = "\n".join(self._data), []
                yield data

    def close(self) -> Iterator[str]:
        """A last [DONE] whose blank line was cut off; any other unfinished event is dropped."""
        self._field(bytes(self._tail))
        if self._data == ["[DONE]"]:
            yield "[DONE]"

    def _field(self, line: bytes) -> None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        name, _, value = line.partition(b":")
        text = decode(value.removeprefix(b" "))
        if name == b"data":
            self._data.append(text)
        elif name == b"error":  # older llama-server reports a failure in mid-stream so
            self._data.append(f'{{"error": {text}}}')


def read_reply(got: Capture) -> Reply:
    """Make a Reply from a raw exchange; pure, so a test passes stamps of its own."""
    reply = Reply(got.started_ns, got.ended_ns, failure=got.failure)
    if got.failure is not None and not got.events:
        return reply
    if got.status != 200 or (not got.events and "event-stream" not in got.content_type):
        return replace(reply, failure=_refusal(got))
    return _Reader(reply).read(got.events)


def brings_text(data: str) -> bool:
    """Whether an event carries text; silent servers also send roles, progress and pings."""
    return any(
        event.is_text for event in read_reply(Capture(status=200, events=[(0, data)])).events
    )


class _Reader:
    """Collects a reply from the JSON of its events."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._events: list[Event] = []
        self._text: list[str] = []
        self._answer: list[str] = []
        self._reasoning: list[str] = []
        self._first_ns = 0
        self._used: int | None = None
        self._final: int | None = None
        """Usage sent with, or after, the finish_reason: nothing is generated later."""

    def read(self, events: list[tuple[int, str]]) -> Reply:
        failure = self._reply.failure
        for at_ns, data in events:
            if data == "[DONE]":
                self._set(done=True)
                break
            if not data.strip():  # some servers keep the connection alive so
                continue
            problem = self._take(at_ns, data)
            if problem is not None:
                failure = problem
                break
        reply = self._reply
        complete = reply.done or bool(reply.finish_reason)
        if failure is None and not complete:
            text = f"the stream ended after {len(self._events)} events without a finish_reason"
            failure = Failure(FailureKind.TRUNCATED, text)
        elif failure is not None and failure.kind is FailureKind.TRUNCATED and complete:
            failure = None  # everything was there before the connection went
        return replace(
            reply, events=tuple(self._events), raw_text="".join(self._text),
            answer="".join(self._answer), reasoning="".join(self._reasoning), failure=failure,
        )  # fmt: skip

    def _set(self, **values: Any) -> None:
        self._reply = replace(self._reply, **values)

    def _take(self, at_ns: int, data: str) -> Failure | None:
        chunk = json_object(data)
        if chunk is None:
            return Failure(FailureKind.PROTOCOL, f"an event is not JSON: {one_line(data, 80)}")
        if chunk.get("error"):
            return _error_of(chunk["error"], 500)
        finished = bool(self._reply.finish_reason)
        used, tokens = self._counts(chunk)
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        choice = choice if isinstance(choice, dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            self._set(finish_reason=one_line(choice["finish_reason"], 40))
        self._compare(used, finished)
        reasoning, content, calls = _carried(choice)
        text, is_answer = reasoning + content + calls, bool(content)
        self._text.append(text)
        self._reasoning.append(reasoning)
        self._answer.append(content + calls)
        if text and self._first_ns in (0, at_ns):
            self._first_ns = at_ns
            self._set(first_text=self._reply.first_text + text)
        self._events.append(Event(at_ns, bool(text), is_answer, tokens))
        return None

    def _compare(self, used: int | None, finished: bool) -> None:
        """Compare a usage with those before it: it may grow while text comes, and never falls."""
        if used is None:
            return
        words = ""
        if self._used is not None and used < self._used:
            words = f"its count of tokens went down from {self._used} to {used}"
        elif finished and self._final is not None and used > self._final:
            words = f"it ended with {self._final} tokens and then with {used}"
        if words and not self._reply.contradiction:
            self._set(contradiction=words)
        self._used = used
        if self._reply.finish_reason:
            self._final = used

    def _counts(self, chunk: dict[str, Any]) -> tuple[int | None, int | None]:
        """Take over usage and timings; return the running number of completion tokens by usage
        alone, and by either."""
        tokens: int | None = None
        usage, timings = chunk.get("usage"), chunk.get("timings")
        if isinstance(usage, dict):
            tokens = _count(usage.get("completion_tokens"))
            details = usage.get("prompt_tokens_details")
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
            details = usage.get("completion_tokens_details")
            thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
            counts = {
                "completion_tokens": tokens,
                "prompt_tokens": _count(usage.get("prompt_tokens")),
                "cached_tokens": _count(cached),
                "reasoning_tokens": _count(thought),
            }
            self._set(**{name: count for name, count in counts.items() if count is not None})
        if isinstance(timings, dict):
            read = Timings(**{key: _number(timings.get(key)) for key in Timings.__slots__})
            self._set(timings=read)
            return tokens, tokens if tokens is not None else _count(read.predicted_n)
        return tokens, tokens


def _carried(choice: dict[str, Any]) -> tuple[str, str, str]:
    """The reasoning, the text of the answer and the calls of tools in a choice; all "" of a role.

    A chat's text is in `delta`, a plain completion's in `text`. A refusal is an answer in words.
    Calls count where there is nothing else.
    """
    delta, text = choice.get("delta"), choice.get("text")
    if isinstance(text, str) and text:
        return "", text, ""
    if not isinstance(delta, dict):
        return "", "", ""
    content = delta.get("content") or delta.get("refusal")
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    thought = thought if isinstance(thought, str) else ""
    if isinstance(content, str) and content:
        return thought, content, ""
    calls = delta.get("tool_calls")
    if not thought and isinstance(calls, list) and calls:
        return "", "", json.dumps(calls)
    return thought, "", ""


def json_object(data: str | bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(value: object) -> float | None:
    """A number that is not negative and of sane size, else None."""
    amount = number(value)
    return amount if amount is not None and 0 <= amount <= MAX_FIGURE else None


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _refusal(got: Capture) -> Failure:
    """The failure that an answer without a stream reports."""
    parsed = json_object(decode(got.body))
    if got.status == 200 and parsed and parsed.get("error"):
        failed = _error_of(parsed["error"], 500)
        return replace(failed, text=one_line(f"HTTP 200 with an error: {failed.text}"))
    if got.status == 200:
        kind = one_line(got.content_type.partition(";")[0], 60) or "no content type"
        text = f"the server answered without streaming ({kind}, no event)"
        return Failure(FailureKind.PROTOCOL, text)
    if got.status == 400 and not got.body.strip():
        return Failure(FailureKind.TRANSPORT, "HTTP 400 with an empty body, twice")
    error = parsed.get("error", parsed) if parsed else decode(got.body)
    return _error_of(error, got.status or 0, f"HTTP {got.status} ")


def _error_of(error: object, status: int, prefix: str = "") -> Failure:
    """A server's error object (or text) as a failure, by its code."""
    message, code = error, status
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or json.dumps(error)
        code = (_count(error.get("code")) if not prefix else None) or status
    kind = FailureKind.SERVER if code >= 500 else FailureKind.REFUSED
    return Failure(kind, one_line(f"{prefix}{message}"))
