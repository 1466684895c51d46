"""The requests to the root helper and its answers; see `console.recovery.guard.kill.root_helper`
and docs/how-to/root-helper.md."""

from __future__ import annotations

import json
import os

from console.common.text import one_line

SOCKET = "/run/omni-console/guard.sock"
REFUSAL_LIMIT = 160


def question(container: str) -> bytes:
    """Return the only request there is; `container` is a full id."""
    return f"kill {container}\n".encode()


def refusal(answer: bytes) -> str:
    """Return why the helper refused, clean; empty if it did not, or has not answered."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return "" if not answer else "helper: it answered nonsense"
    if isinstance(value, dict) and value.get("ok") is True:
        return ""
    words = value.get("error") if isinstance(value, dict) else None
    return f"helper: {one_line(str(words or 'it refused'), REFUSAL_LIMIT)}"


def is_there(path: str = SOCKET) -> bool:
    """Return whether a helper's socket exists and this user may write to it."""
    return os.access(path, os.W_OK)
