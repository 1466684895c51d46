"""A soak's lines on disk, beside the attempt's log, and what an attempt before left of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from console.bench.soak_stats import Line, Tally
from console.common.files import json_lines
from console.journal.run_dir import RunDir


class SoakFile:
    """`STEP.ATTEMPT.soak.jsonl`, appended to.

    An attempt whose runner died left a file without an `end` line: this one begins as a copy of
    it, and the time in between is a gap. What ended by itself is left alone: a retry begins anew.
    """

    def __init__(self, run: RunDir, step: str, attempt: int, now: float) -> None:
        """`now`: Unix seconds. Raises OSError."""
        self.path = _path(run, step, attempt)
        self.tally = Tally()
        self._fd = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        before = _unfinished(run, step, attempt)
        for line in before:
            self.tally.take(line)
        if before:
            died = self.tally.t
            again = max(died, round(now - self.tally.began, 3))
            gap = {"t": again, "event": "gap", "from": died, "to": again}
            self.tally.take(gap)
            # at once: a runner that dies here, too, leaves all or nothing
            os.write(self._fd, b"".join(_bytes(line) for line in (*before, gap)))

    @property
    def resumed(self) -> bool:
        return bool(self.tally.gaps)

    def keep(self, line: Line) -> None:
        """Write a line; `Soak` counts it. Raises OSError."""
        os.write(self._fd, _bytes(line))

    def close(self, why: str) -> None:
        """Write the end: no later attempt goes on with this one. Raises OSError."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.write(fd, _bytes({"t": self.tally.t, "event": "end", "why": why}))
            finally:
                os.close(fd)


def read_lines(path: Path) -> list[Line]:
    """The lines of such a file that are whole. Raises OSError."""
    return [line for line in json_lines(path) if isinstance(line.get("t"), int | float)]


def _bytes(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _path(run: RunDir, step: str, attempt: int) -> Path:
    return run.attempt_log(step, attempt).with_suffix(".soak.jsonl")


def _unfinished(run: RunDir, step: str, attempt: int) -> list[Line]:
    """The lines of the newest attempt before this one, if nothing ended it."""
    for number in range(attempt - 1, 0, -1):
        try:
            lines = read_lines(_path(run, step, number))
        except FileNotFoundError:
            continue  # its runner died before it began
        began = any(line.get("event") == "began" for line in lines)
        ended = any(line.get("event") == "end" for line in lines)
        return lines if began and not ended else []
    return []
