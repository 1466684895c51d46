"""Cuts a log file's bytes into lines, with their text, time stamp and kind (error, warning)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from console.common.logs.level import GOES_ON, Level, read, why_hint
from console.common.secrets.lines import Stream
from console.common.text import LINE_LIMIT, clean, decode

Kind = Literal["plain", "error", "warning", "marker"]

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d)(:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)(?: |$)", re.ASCII
)

KEPT = LINE_LIMIT * 8
"""Bytes kept of one line: more than `clean` examines, in any encoding."""
HOLD_S = 1.0
"""Seconds for which a line without its newline is held back."""
STAMP_LIMIT = 64
"""Bytes kept of a line's beginning, where its stamp is, even if it is overwritten later."""
_STAMPED = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^ \r]{0,24} ")


@dataclass(slots=True)
class LogLine:
    """A clean line. `stamp`: local `HH:MM:SS.mmm`, or as found if it is not in UTC, or empty.
    `open`: the line is incomplete; the next line delivered is the same one, longer, and replaces
    it."""

    text: str
    stamp: str = ""
    kind: Kind = "plain"
    open: bool = False


# A plain search for these comes first: most lines have none, and then no pattern is tried.
_HINTS = (
    "error", "warn", "fatal", "critical", "exception", "traceback", "out of memory", "oom",
    "panic", "segfault", "segmentation fault", "core dumped", "abort", "ggml_assert", "failed to",
    "terminate called", "no such file",
)  # fmt: skip
# glog (`E0512 12:00:00`), and llama.cpp with its clock in front (`0.00.035.060 E srv`).
_LETTER = re.compile(
    r"(?:\d+\.\d\d\.\d{3}\.\d{3} )?([EWF])(?:\d{4} \d| +[A-Za-z_]\w*[ :])", re.ASCII
)
_FIRST = frozenset("EWF0123456789")
_SURE = (
    "traceback (most recent call last)", "cuda error", "out of memory", "oom-kill", "oom kill",
    "core dumped", "segmentation fault", "segfault", "terminate called after", "panicked at",
    "kernel panic", "ggml_assert(", "fatal error",
)  # fmt: skip
# `RuntimeError: …`, as the last line of a Python traceback begins
_RAISED = re.compile(r"\w(?:Error|Exception)(?=[:(]|$)", re.ASCII)
_WORD = re.compile(
    r"errors?|fatal|critical|oom|panic|exception|aborted|failed to|no such file|warn(?:ing)?s?",
    re.ASCII,
)
_NOTHING = re.compile(
    r"[\w-]|\s*[=:]\s*[\"']?(?:0(?![.\d]*[1-9])|none|null|nil|false|no\b|\[\]|\{\}|\"\"|'')",
    re.ASCII,
)
_DENIED = ("no ", "non ", "without ", " 0 ", "/", "-", ".", "=", "_")
_BY_LEVEL: dict[Level, Kind] = {
    Level.LOW: "plain", Level.WARNING: "warning", Level.ERROR: "error",
}  # fmt: skip


def log_line(raw: str, *, open: bool = False, stream: Stream | None = None) -> LogLine:
    """A line of a log file as text, not yet clean, without its newline. `stream`: what the lines
    before it have left to hide."""
    text = clean(raw)
    if stream is not None:
        text = stream.peeked(text) if open else stream.shown(text)
    stamp = ""
    if text[10:11] == "T" and (match := _STAMP.match(text)):
        minute, second, fraction, zone = match.groups()
        text = text[match.end() :]
        if zone == "Z":
            stamp = f"{_local(minute)}{second}.{(fraction or '')[:3]:0<3}"
        else:
            stamp = match[0].rstrip()
    elif text.startswith("--- ") and text.endswith(" ---"):
        return LogLine(text, "", "marker", open)
    return LogLine(text, stamp, kind_of(text), open)


def marker(words: str) -> LogLine:
    """A line by the console itself, about the log."""
    return LogLine(f"--- {clean(words)} ---", "", "marker")


def kind_of(text: str) -> Kind:
    """The kind of a clean line: `error`, `warning` or `plain`."""
    lower = text.lower()
    for hint in _HINTS:
        if hint in lower:
            return _judge(text, lower)
    return _by_letter(text)


def _judge(text: str, lower: str) -> Kind:
    """The level that the line states itself; without one, judge by its words."""
    stated = _BY_LEVEL.get(read(text).level)
    if stated is not None:
        return stated
    for sure in _SURE:
        if (at := lower.find(sure)) >= 0:
            why = why_hint(text, (at, at + len(sure)))
            return ("warning" if why == GOES_ON else "plain") if why else "error"
    if _raised(text):
        return "error"
    kind = _by_letter(text)
    if kind != "plain":
        return kind
    words = {word[0][:4] == "warn" for word in _WORD.finditer(lower) if _meant(lower, *word.span())}
    return "error" if False in words else "warning" if True in words else "plain"


def _by_letter(text: str) -> Kind:
    if text[:1] not in _FIRST or (letter := _LETTER.match(text)) is None:
        return "plain"
    return "warning" if letter[1] == "W" else "error"


def _raised(text: str) -> bool:
    return ("Error" in text or "Exception" in text) and _RAISED.search(text) is not None


def _meant(lower: str, start: int, end: int) -> bool:
    """Whether a word stands for itself: not `error_rate`, `0 errors`, `error: none`, `/error`."""
    before = " " + lower[max(0, start - 8) : start]
    return not (
        before[-1].isalnum() or before.endswith(_DENIED) or _NOTHING.match(lower, end) is not None
    )


@lru_cache(maxsize=16)
def _local(minute: str) -> str:
    """`2026-05-05T12:34` in UTC as local `HH:MM`; unchanged if it is no valid time."""
    try:
        when = time.strptime(f"{minute}+0000", "%Y-%m-%dT%H:%M%z")
    except ValueError:
        return minute[11:]
    import calendar

    return time.strftime("%H:%M", time.localtime(calendar.timegm(when)))


class Splitter:
    """Cuts at newlines. Text overwritten by a carriage return is dropped, as in a terminal.

    A line of any length takes little memory: only its first KEPT bytes are kept.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._first = bytearray()
        self._stamp = b""
        self._returned = False
        self._since = 0.0
        self._shown = b""
        self._stream = Stream()

    def feed(self, data: bytes, now: float) -> list[LogLine]:
        """The lines that `data` completes; the rest is held. `now`: monotonic seconds."""
        head, newline, rest = data.partition(b"\n")
        self._hold(head, now)
        if not newline:
            return []
        lines = [log_line(decode(self._line()), stream=self._stream)]
        self._forget()
        whole, newline, rest = rest.rpartition(b"\n")
        if newline:
            lines += _lines(whole, self._stream)
        self._hold(rest, now)
        return lines

    def overdue(self, now: float) -> list[LogLine]:
        """The line held for HOLD_S or longer, as an open line; nothing if it is unchanged."""
        if not self._held or now - self._since < HOLD_S:
            return []
        self._since = now
        shown = self._line()
        if shown == self._shown:
            return []
        self._shown = shown
        return [log_line(decode(shown), open=True, stream=self._stream)]

    def cut(self) -> list[LogLine]:
        """End the held line as it is, because nothing of it will follow."""
        lines = [log_line(decode(self._line()), stream=self._stream)] if self._held else []
        self._forget()
        self._stream.forget()
        return lines

    def _hold(self, data: bytes, now: float) -> None:
        if not data:
            return
        if not self._held:
            self._since = now
        self._first += data[: STAMP_LIMIT - len(self._first)]
        seen = data.rstrip(b"\r")
        if seen:
            last = seen.rfind(b"\r")
            if last >= 0 or self._returned:
                if not self._stamp and (match := _STAMPED.match(self._first)) is not None:
                    self._stamp = match[0]
                self._held[:] = seen[last + 1 :][:KEPT]
            else:
                self._held += seen[: max(0, KEPT - len(self._held))]
            self._returned = False
        self._returned = self._returned or len(seen) < len(data)

    def _line(self) -> bytes:
        return self._stamp + self._held

    def _forget(self) -> None:
        self._held.clear()
        self._first.clear()
        self._stamp = self._shown = b""
        self._returned = False


def _lines(whole: bytes, stream: Stream) -> list[LogLine]:
    """Complete lines, without the newline of the last."""
    if b"\r" in whole:
        return [log_line(decode(_shown(line)), stream=stream) for line in whole.split(b"\n")]
    # A character never crosses a newline, so that decoding all at once gives the same text.
    return [log_line(line, stream=stream) for line in decode(whole).split("\n")]


def _shown(line: bytes) -> bytes:
    """A line after its last carriage return, with its stamp kept."""
    line = line.rstrip(b"\r")
    last = line.rfind(b"\r")
    if last < 0:
        return line
    stamp = _STAMPED.match(line)
    return (stamp[0] if stamp else b"") + line[last + 1 :]
