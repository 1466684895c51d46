"""One answer to the emergency key: the rungs of whichever ladder climbs, until it has ended."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.text import clean_lines, decode, one_line
from console.journal.run_files import cleaned
from console.recovery.rollback.progress import Result, is_runners, read_lines, result_of, size_of

TAIL = 8
TAIL_BYTES = 8192
COARSE_S = 0.1
"""A file's time may lag behind the clock by a tick of the kernel."""
ROUNDED_S = 0.002
"""A ladder rounds the times of its lines."""


class RollbackProgress:
    """Written by the emergency thread alone; others only read what is public.

    `lines` grows. `over`: nothing more will come, and then there is a `result` or `trouble`.
    """

    def __init__(
        self,
        directory: Path | None,
        ladder: Path | None,
        offset: int,
        by_standby: bool,
        clock: Clock,
    ) -> None:
        self.directory = directory
        self.ladder = ladder
        self.by_standby = by_standby
        self.spawned = False
        self.lines: list[dict[str, Any]] = []
        self.result: Result | None = None
        self.trouble = ""
        self.over = False
        self.left = False
        self.began_at = self._offset = offset
        self._clock = clock
        self._begun = self.beat = clock.monotonic()
        self._ended = 0.0
        self._last: Result | None = None
        self._sizes: dict[Path, int] = {}

    def elapsed_s(self) -> float:
        return (self._ended if self.over else self._clock.monotonic()) - self._begun

    def search(self) -> None:
        """From here on it is not known which file is written: the first that grows is it."""
        if self.ladder is not None:
            self._sizes = {self.ladder: self._offset}
        self.ladder = None

    def among(self, ladders: list[Path], at: float) -> None:
        """It may also be one of these; what was written since `at` (Unix time) counts as new."""
        sizes = {path: offset_at(path, at) for path in ladders}
        self._sizes = {**sizes, **self._sizes}

    def poll(self) -> bool:
        """Read what came; True at the end of an emergency's ladder, which then is the end of a
        warm climb."""
        self.beat = self._clock.monotonic()
        if self.ladder is None and not self._find():
            return False
        assert self.ladder is not None
        new, self._offset = read_lines(self.ladder, self._offset)
        for line in new:
            self.lines.append(cleaned(line))
            # the runner may be climbing on its own account; this press is answered after that
            own = not is_runners(line.get("trigger"))
            if line.get("rung") == "done" and line.get("state") != "begin":
                self._last = result_of(self.lines[-1])
                if own and not self.spawned:
                    self._finish(self._last)
                    return True
        return False

    def command_ended(self, code: int, log: Path, begin: int) -> None:
        """The spawned command is over; its exit code counts where no ladder said an end."""
        if self._last is not None:
            self._finish(self._last)
            return
        said = _words(log, begin)
        if code == 0 and said:  # a climb would have left its lines: there was none to make
            self._finish(Result(False, nothing_to_do=True, detail=one_line(said, 600)))
        elif code == 0:
            self.end("the rollback command ended without a word")
        else:
            self.end(f"{said or 'the rollback command ended'} (exit {code})")

    def end(self, trouble: str) -> None:
        """It ended without a ladder's word."""
        self.trouble = one_line(trouble, 600)
        self._finish(None)

    def leave(self) -> None:
        """The console goes; whatever climbs goes on."""
        self.left = True

    def _finish(self, result: Result | None) -> None:
        self._ended = self._clock.monotonic()
        self.result = result
        self.over = True

    def _find(self) -> bool:
        for path, size in self._sizes.items():
            if size_of(path) > size:
                self.ladder, self._offset = path, size
                return True
        return False


def offset_at(path: Path, at: float) -> int:
    """Where the lines begin that a ladder wrote since this Unix time; never raises OSError."""
    try:
        info = path.stat()
        if info.st_mtime < at - COARSE_S:
            return info.st_size
        data = path.read_bytes()
    except OSError:
        return 0
    begin = 0
    for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(raw)
            if isinstance(line, dict) and _since(line.get("at"), at):
                return begin
        begin += len(raw)
    return begin


def _since(said: object, at: float) -> bool:
    return isinstance(said, int | float) and said >= at - ROUNDED_S


def _words(log: Path, begin: int) -> str:
    """What the command wrote since it was started, its last lines, clean."""
    try:
        with log.open("rb") as file:
            file.seek(max(begin, size_of(log) - TAIL_BYTES))
            lines = clean_lines(decode(file.read(TAIL_BYTES)))
    except OSError:
        return ""
    return " | ".join([line.strip() for line in lines if line.strip()][-TAIL:])
