"""Bytes of a log file, as they come, into lines."""

from __future__ import annotations

import re

from console.common.logs.line import LogLine, log_line
from console.common.text import LINE_LIMIT, decode

KEPT = LINE_LIMIT * 8
"""Bytes kept of one line: more than what `clean` looks at, in any encoding of it."""
HOLD_S = 1.0
"""Seconds for which a line without its newline is held back."""
STAMP_LIMIT = 64
"""Bytes kept of a line's beginning, where its stamp is, whatever overwrites the line later."""
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^ \r]{0,24} ")


class Splitter:
    """Cuts at newlines. What a carriage return overwrote is dropped, as a terminal would.

    A line of any length costs no more than its bytes: all but its first KEPT are thrown away.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._first = bytearray()
        self._stamp = b""
        self._returned = False
        self._since = 0.0
        self._shown = b""

    def feed(self, data: bytes, now: float) -> list[LogLine]:
        """The lines that `data` ends; the rest is held. `now`: monotonic seconds."""
        head, newline, rest = data.partition(b"\n")
        self._hold(head, now)
        if not newline:
            return []
        lines = [log_line(decode(self._line()))]
        self._forget()
        whole, newline, rest = rest.rpartition(b"\n")
        if newline:
            lines += _lines(whole)
        self._hold(rest, now)
        return lines

    def overdue(self, now: float) -> list[LogLine]:
        """The line held for HOLD_S or longer, as an open line; nothing where it did not change."""
        if not self._held or now - self._since < HOLD_S:
            return []
        self._since = now
        shown = self._line()
        if shown == self._shown:
            return []
        self._shown = shown
        return [log_line(decode(shown), open=True)]

    def cut(self) -> list[LogLine]:
        """End the held line where it stands: nothing of it will follow."""
        lines = [log_line(decode(self._line()))] if self._held else []
        self._forget()
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
                if not self._stamp and (found := _STAMP.match(self._first)) is not None:
                    self._stamp = found[0]
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


def _lines(whole: bytes) -> list[LogLine]:
    """Complete lines, without the newline of the last."""
    if b"\r" in whole:
        return [log_line(decode(_shown(line))) for line in whole.split(b"\n")]
    # A character never crosses a newline, so that decoding all at once gives the same text.
    return [log_line(line) for line in decode(whole).split("\n")]


def _shown(line: bytes) -> bytes:
    """A line behind its last carriage return, its stamp kept."""
    line = line.rstrip(b"\r")
    last = line.rfind(b"\r")
    if last < 0:
        return line
    stamp = _STAMP.match(line)
    return (stamp[0] if stamp else b"") + line[last + 1 :]
