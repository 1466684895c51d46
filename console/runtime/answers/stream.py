"""Puts the events of a streamed completion together, into the one body that it would have been.

Standard library only, because the emergency side uses it too.
"""

from __future__ import annotations

import json
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
    if not done:
        return b"", f"{BREAKS}: it ends after {count} events, before the answer does"
    return json.dumps(answer).encode(), ""


def _events(body: bytes) -> list[str]:
    """The data of the events, each of one line, as engines send them; an error may have a field of
    its own."""
    lines = [line.strip() for line in decode(body).splitlines()]
    events = []
    for line in lines:
        if line.startswith("data:"):
            events.append(line.removeprefix("data:").strip())
        elif line.startswith("error:"):
            events.append(f'{{"error": {line.removeprefix("error:").strip()}}}')
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
