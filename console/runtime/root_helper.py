"""What a user of the root helper needs: where it listens, what it is asked, what it answers.

See `recovery.guard.kill.root_helper` and docs/how-to/root-helper.md. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket

from console.common.text import one_line
from console.host.licence import Licence, require_container

HELPER = "/run/omni-console/guard.sock"
"""The socket of the root helper."""
ANSWER_S = 3.0
"""Seconds for a whole answer: without cgroup.kill the helper itself takes up to two."""
MAX_ANSWER = 1024


def helper_question(container: str) -> bytes:
    """Return the only request that the root helper accepts; `container` is a full id."""
    return f"kill {container}\n".encode()


def helper_refusal(answer: bytes) -> str:
    """Return why the helper refused, in clean words; empty if it did not, or has not answered."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return "helper: its answer is not JSON" if answer else ""
    if isinstance(value, dict) and value.get("ok") is True:
        return ""
    words = value.get("error") if isinstance(value, dict) else None
    return f"helper: {one_line(str(words or 'it refused'), 160)}"


def helper_is_there(path: str = HELPER) -> bool:
    """Return whether a helper's socket exists and this user may write to it."""
    return os.access(path, os.W_OK)


def kill_by_helper(licence: Licence, container: str, path: str = "") -> str:
    """Have root's helper kill a container that this user may not signal, and wait for its answer.
    Return why it did not, in clean words; "" if it did. Raises Refused without a full id."""
    require_container(licence, container)
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(ANSWER_S)
            link.connect(path or HELPER)
            link.sendall(helper_question(container))
            while b"\n" not in answer and len(answer) < MAX_ANSWER:
                part = link.recv(MAX_ANSWER)
                if not part:
                    break
                answer += part
    except TimeoutError:
        return "helper: no answer in time"
    except OSError as error:
        return f"helper: {error.strerror}"
    return helper_refusal(answer) or ("" if answer else "helper: no answer")
