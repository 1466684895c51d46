"""The sentinel's ear: a FIFO with one JSON line a message, at most PIPE_BUF bytes each."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

MESSAGES = frozenset({"beat", "arm", "sheet", "advisory", "outage", "attended", "quit"})
_MOST = 65536
_MOST_LINE = 4096


class Inbox:
    """Made where it is missing; `read` never waits. What is no message is counted in `garbage`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and when something else lies there."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Read and write: the last writer going away must not look like the end of the file.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        self.descriptor = os.open(path, flags)
        if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
            self.close()
            raise OSError(f"{path} is no FIFO")
        self.garbage = 0
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """The messages since the last call, in order."""
        try:
            data = os.read(self.descriptor, _MOST)
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            self._rest, self.garbage = b"", self.garbage + 1
        found = []
        for line in lines:
            message = _message(line)
            if message is not None:
                found.append(message)
            elif line.strip():
                self.garbage += 1
        return found

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _message(line: bytes) -> dict[str, Any] | None:
    if len(line) > _MOST_LINE:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    word = value.get("do")
    return value if isinstance(word, str) and word in MESSAGES else None
