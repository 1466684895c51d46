"""Puts the events of a streamed completion together, into the one body that it would have been.

Standard library only, because the emergency side uses it too.
"""

from __future__ import annotations

import json
import re
from typing import Any

from console.common.text import decode, one_line
from console.runtime.probe import error_words

BREAKS = "its streamed answer breaks"
PARTS = ("content", "refusal", "reasoning_content", "reasoning")


def is_stream(body: bytes) -> bool:
    """Whether a body is one of events; a server that cannot stream answers as a whole."""
    return body.lstrip()[:1] != b"{" and (body.startswith(b"data:") or b"\ndata:" in body)


def whole(body: bytes) -> tuple[bytes, str]:
    """The answer as a body, and "", or what was wrong with the stream, in clean words: an error in
    it, or that it ended before the answer did."""
    message: dict[str, Any] = {}
    answer: dict[str, Any] = {"choices": [{"message": message, "finish_reason": ""}]}
    count, done = 0, False
    for data in _events(body):
        if data == "[DONE]":
            done = True
            break
        event = _object(data)
        if event is None:
            return b"", f"{BREAKS}: an event is no JSON: {one_line(data, 80)}"
        if event.get("error"):
            return b"", f"{BREAKS}: {error_words(data.encode())}"
        count += 1
        answer |= {key: event[key] for key in ("usage", "timings") if event.get(key)}
        done = _add(event, answer["choices"][0], message) or done
    if answer["choices"][0]["finish_reason"] == "error":
        return b"", f"{BREAKS}: it ends with an error after {count} events"
    if not done:
        return b"", f"{BREAKS}: it ends after {count} events, before the answer does"
    return json.dumps(answer).encode(), ""


def _events(body: bytes) -> list[str]:
    """The data of the events. One of several lines is joined, as the format has it, where that
    makes JSON; engines also send lines of which each is an event, and errors in a field or an event
    of their own."""
    events: list[str] = []
    for block in re.split(r"\r?\n\r?\n|\r\r", decode(body)):
        lines = [line.strip() for line in block.splitlines()]
        fields = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
        failed = [line for line in lines if re.fullmatch(r"event:\s*error", line)]
        joined = "\n".join(fields)
        if failed and fields and "error" not in (_object(joined) or {}):
            events.append(f'{{"error": {joined if _object(joined) else json.dumps(joined)}}}')
        else:
            events += [joined] if _object(joined) is not None else fields
        errors = [line.removeprefix("error:").strip() for line in lines if line[:6] == "error:"]
        events += [f'{{"error": {error}}}' for error in errors]
    return [data for data in events if data]


def _object(data: str) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _add(event: dict[str, Any], choice: dict[str, Any], message: dict[str, Any]) -> bool:
    """Add what an event brings of the answer; return whether the answer ends with it."""
    choices = event.get("choices")
    brings = choices[0] if isinstance(choices, list) and choices else {}
    brings = brings if isinstance(brings, dict) else {}
    delta = brings.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    for name in PARTS:
        if isinstance(delta.get(name), str):
            message[name] = message.get(name, "") + delta[name]
    if delta.get("tool_calls"):
        message["tool_calls"] = delta["tool_calls"]
    if brings.get("finish_reason"):
        choice["finish_reason"] = brings["finish_reason"]
    return bool(brings.get("finish_reason"))
