"""What operator and host say to each other over `ssh HOST omni-console bridge`: frames on stdio.

A frame is one JSON object on a line of its own, of at most MAX_FRAME bytes. The host speaks first,
with its hello; then each question gets exactly one answer, in order, and lines of `said` before it
while a rollback is under way. Nothing is pushed: the host is silent unless it is asked.
"""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from console.common.errors import ConsoleError, Exit
from console.common.text import clean, one_line

VERSION = 1
"""Of the frames. Another version is refused for everything but a rollback."""
MAX_FRAME = 4 << 20
"""Most bytes of a frame."""
MAX_KEPT = 3 * MAX_FRAME
"""Most bytes of a frame's values on disk, where a letter of two bytes takes six."""
MAX_NOISE = 256 * 1024
"""Most bytes of what a login shell prints before the hello."""
MAX_NAME = 200
"""Most letters of a run's name, of a verb and the like."""
CHUNK = 1 << 16
HELLO = "omni-bridge"
TOO_LATE = "too_late"
"""The code of what acts, and came too long after its token: nothing was done."""
SEVERAL = "several_runs"
"""The code of a name that fits more than one run."""
WHOLE = frozenset({"abort", "pause"})
"""Verbs for the run as a whole; all others name the step, attempt and evidence that were seen."""
BINDS = ("step", "attempt", "evidence")
CODES = {exit_code.value: exit_code for exit_code in Exit}


class BridgeError(ConsoleError):
    """A host refused a question. `code` is for programs: `unknown_question`, `bad_frame`,
    `bad_question`, `too_large`, TOO_LATE, `moved_on`, `no_run`, SEVERAL, `changed`,
    `not_started`, `not_begun`, `no_console`, `version` or `failed`."""

    def __init__(
        self, code: str, title: str, detail: str = "", hint: str = "", exit_: Exit = Exit.FAILED
    ) -> None:
        super().__init__(title, detail, hint)
        self.code, self.exit_code = code, exit_


class LineLost(ConsoleError):
    """The host cannot be reached, or does not answer in time. It says nothing about the host."""

    exit_code = Exit.HOLD


class Asks(Protocol):
    """A line to a host, as console.fleet.line.Line is one."""

    @property
    def name(self) -> str: ...
    def ask(
        self, question: str, limit_s: float = ..., said: Callable[[str], None] = ..., **more: Any
    ) -> dict[str, Any]: ...
    def act(self, question: str, limit_s: float = ..., **more: Any) -> dict[str, Any]: ...
    def close(self) -> None: ...


def line(frame: dict[str, Any]) -> bytes:
    """A frame as bytes. Raises BridgeError for one that is too large."""
    data = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
    if len(data) > MAX_FRAME:
        raise BridgeError("too_large", "a frame is too large", f"{len(data)} bytes of {MAX_FRAME}")
    return data


def parsed(data: bytes) -> dict[str, Any]:
    """A line as a frame; what no JSON has a word for (NaN, Infinity, 1e999) is None, as it would
    stand in the JSON that others read. Raises BridgeError."""
    try:
        frame = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise BridgeError("bad_frame", "a line is no frame", one_line(str(error))) from error
    if not isinstance(frame, dict):
        raise BridgeError("bad_frame", "a line is no frame", "expected one JSON object")
    return frame


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def hello(version: str, host: str) -> dict[str, Any]:
    return {HELLO: VERSION, "version": version, "host": host, "limit": MAX_FRAME}


def failure(error: Exception) -> dict[str, Any]:
    """An error as it travels."""
    if not isinstance(error, ConsoleError):
        words = f"{type(error).__name__}: {error}"
        error = BridgeError("failed", "the host cannot answer", one_line(words), "", Exit.INTERNAL)
    code = error.code if isinstance(error, BridgeError) else "failed"
    return {
        "code": code, "title": error.title, "detail": error.detail, "hint": error.hint,
        "exit": int(error.exit_code),
    }  # fmt: skip


def refusal(raw_error: object) -> BridgeError:
    """The error that a host has sent, with clean words."""
    fields = raw_error if isinstance(raw_error, dict) else {}
    words = (clean(str(fields.get(name, "")), 300) for name in ("code", "title"))
    detail = "\n".join(
        clean(detail_line, 1000) for detail_line in str(fields.get("detail", "")).splitlines()[:200]
    )
    code, title = words
    # what is refused is no success, whatever came with it: a rollout would go on to its next host
    exit_ = code_of(fields.get("exit")) or Exit.FAILED
    return BridgeError(
        code or "failed", title or "the host refused", detail,
        clean(str(fields.get("hint", "")), 300), exit_,
    )  # fmt: skip


def code_of(code: object) -> Exit | None:
    """An exit code that a host has told; None for none of ours, as where a signal has ended a
    process: its number would make a failure pass for the best of several ends."""
    return CODES.get(code) if type(code) is int else None


def part(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of what a host has told; empty where there is none."""
    section = table.get(name)
    return section if isinstance(section, dict) else {}


class Lines:
    """Lines from a descriptor, each awaited until a deadline; a line that is too long is refused
    and skipped, so that the next one is heard."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._poll = select.poll()  # `select` refuses the descriptors of a process that has many
        self._poll.register(descriptor, select.POLLIN)
        self._data = bytearray()
        self._skips = False

    def next(self, limit_s: float | None = None) -> bytes | None:
        """The next line; None at the end of input. Raises TimeoutError, and BridgeError for a line
        that is too long."""
        until = None if limit_s is None else time.monotonic() + limit_s
        scanned = 0
        while True:
            end = self._data.find(b"\n", scanned)
            if end >= 0:
                raw_line = bytes(self._data[:end])
                del self._data[: end + 1]
                if not self._skips:
                    return raw_line
                self._skips, scanned = False, 0
                continue
            if len(self._data) > MAX_FRAME:
                self._data.clear()
                if not self._skips:
                    self._skips = True
                    raise BridgeError(
                        "too_large", "a line is too long", f"at most {MAX_FRAME} bytes"
                    )
            scanned = len(self._data)
            if not self._more(until):
                return None

    def _more(self, until: float | None) -> bool:
        left = None if until is None else until - time.monotonic()
        if left is not None and (left <= 0 or not self._poll.poll(left * 1000)):
            raise TimeoutError
        try:
            chunk = os.read(self._fd, CHUNK)
        except OSError:
            return False
        self._data += chunk
        return bool(chunk)
