"""The progress of one answer to the emergency key: the lines of its rollback, until the end."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from console.common import record
from console.common.clock import Clock
from console.common.errors import ConsoleError, Exit
from console.common.logs.cause import last_words
from console.common.text import after_cut, clean, clean_lines, cleaned, decode, one_line
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.progress import (
    NOTHING,
    Result,
    is_of_runner,
    read_lines,
    result_of,
    size_of,
)

TAIL = 8
TAIL_BYTES = 8192
UNREAD = "its stages could not be read"
"""Of a rollback whose command ended well, while its progress file could not be written or read."""
COARSE_S = 0.1
"""Seconds by which a file's time may lag behind the clock: a tick of the kernel."""
ROUNDED_S = 0.002
"""Seconds by which rounding may change the time in a line."""


class RollbackProgress:
    """The progress of one rollback; one emergency thread writes it, others read public attributes.

    `lines` only grows. Once it is `over`, nothing more comes, and there is `result` or `trouble`.
    """

    def __init__(
        self,
        directory: Path | None,
        progress_file: Path | None,
        offset: int,
        by_standby: bool,
        clock: Clock,
    ) -> None:
        self.directory = directory
        self.progress_file = progress_file
        self.by_standby = by_standby
        self.spawned = False
        self.lines: list[dict[str, Any]] = []
        self.result: Result | None = None
        self.trouble = ""
        self.over = False
        self.left = False
        self.site = self.site_path = self.run_id = ""
        """Whose baseline it brings back, in clean words, once its sealed plan is read."""
        self.began_at = self._offset = offset
        self._clock = clock
        self.beat = clock.monotonic()
        self._last: Result | None = None
        self._sizes: dict[Path, int] = {}

    @property
    def seen(self) -> int:
        return len(self.lines)

    def identify(self, directory: Path) -> None:
        """Read in a rollback directory whose rollback this is. Without a plan there nothing is said
        of it. Called in a thread that may wait for the disk."""
        with contextlib.suppress(ConsoleError, OSError):
            plan = sealed.read(directory / sealed.PLAN)
            self.site, self.run_id = one_line(plan.site_name, 60), one_line(plan.run_id, 80)
            self.site_path = clean(plan.site_path, 200)

    def search(self) -> None:
        """Follow the first file that grows from now on: which one the command writes is unknown."""
        if self.progress_file is not None:
            self._sizes = {self.progress_file: self._offset}
        self.progress_file = None

    def among(self, files: list[Path], at: float) -> None:
        """Look for growth in these files as well; lines since `at` (Unix time) count as new."""
        sizes = {path: offset_at(path, at) for path in files}
        self._sizes = {**sizes, **self._sizes}

    def poll(self) -> bool:
        """Read new lines; True once the standby's rollback for this press has ended."""
        self.beat = self._clock.monotonic()
        if self.progress_file is None and not self._find():
            return False
        assert self.progress_file is not None
        new, self._offset = read_lines(self.progress_file, self._offset)
        for line in new:
            self.lines.append(cleaned(line))
            # A rollback that the runner asked for is no answer: the one for this press comes next.
            for_press = not is_of_runner(line.get("trigger"))
            if line.get("rung") == "done" and line.get("state") != "begin":
                self._last = result_of(self.lines[-1])
                if for_press and not self.spawned:
                    self._finish(self._last)
                    return True
        return False

    def command_ended(self, code: int, log: Path, begin: int) -> None:
        """Note the end of the spawned command; its exit code counts where no last line came."""
        if self._last is not None:
            self._finish(self._last)
            return
        words = _last_output(log, begin)
        if NOTHING in words and code == Exit.USAGE:  # it looked, and found neither run nor site
            self._finish(Result(False, nothing_to_do=True, detail=one_line(words, 600)))
        elif (
            code == Exit.OK
        ):  # its lines could not be written or read, but it ends so only if proven
            self._finish(Result(True, detail=one_line(words, 600), remark=UNREAD))
        else:
            self.end(f"{words or 'the rollback command ended'} (exit {code})")

    def end(self, trouble: str) -> None:
        """End without a result, for the reason in `trouble`."""
        self.trouble = one_line(trouble, 600)
        self._finish(None)

    def leave(self) -> None:
        """Stop following, because the console closes; the rollback goes on."""
        self.left = True

    def _finish(self, result: Result | None) -> None:
        self.result = result
        self.over = True

    def _find(self) -> bool:
        for path, size in self._sizes.items():
            if size_of(path) > size:
                self.progress_file, self._offset = path, size
                self.identify(path.parent)
                return True
        return False


def offset_at(path: Path, at: float) -> int:
    """Offset of the first line written since this Unix time; 0 where the file cannot be read."""
    try:
        info = path.stat()
        if info.st_mtime < at - COARSE_S:
            return info.st_size
        data = path.read_bytes()
    except OSError:
        return 0
    begin = 0
    for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        if _since((record.table(raw) or {}).get("at"), at):
            return begin
        begin += len(raw)
    return begin


def _since(timestamp: object, at: float) -> bool:
    return isinstance(timestamp, int | float) and timestamp >= at - ROUNDED_S


def _last_output(log: Path, begin: int) -> str:
    """The last lines that the command has written since its start, clean."""
    try:
        with log.open("rb") as file:
            at = file.seek(max(begin, size_of(log) - TAIL_BYTES))
            text = decode(file.read(TAIL_BYTES))
            lines = clean_lines(text if at == begin else after_cut(text))
    except OSError:
        return ""
    return last_words(lines, TAIL)
