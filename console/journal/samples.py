"""The machine over a run, a JSON line a second, in a file that stays below a number of lines.

A line is `{"at": Unix seconds, "step": id, "gpu": {UUID: used bytes}, "ram": used bytes, "swap":
used bytes}`; what is not known is left out. When the file is full it is thinned to half: of two
lines the later stays, with the most of both, so that no peak is lost. From then on a line stands
for twice as many looks. A file that cannot be written costs lines, never the run.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from console.common.files import json_lines, write_atomically

MOST_LINES = 20_000
PATIENCE = 200
"""Lines that are dropped before a thinning that failed is tried again."""

Line = dict[str, Any]


class GaugeFile:
    """Appends lines; use from one thread. No method raises OSError."""

    def __init__(self, path: Path, most: int = MOST_LINES) -> None:
        self._path = path
        self._most = max(2, most)
        self._fd = -1
        self._count = 0
        self._torn = False
        self._stride = 1
        self._held: Line = {}
        self._looks = 0
        self._dropping = 0

    def add(self, line: Line) -> None:
        """One look at the machine."""
        self._held = _most_of(self._held, line)
        self._looks += 1
        if self._looks < self._stride:
            return
        line, self._held, self._looks = self._held, {}, 0
        try:
            if self._ready():
                self._write(line)
        except OSError:
            self.close()

    def close(self) -> None:
        """Give the descriptor back; a later `add` opens the file again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # a full disk may say so only now
                os.close(fd)

    def _ready(self) -> bool:
        """Open, and with room for one more line. Raises OSError."""
        if self._dropping:
            self._dropping -= 1
            return False
        if self._fd < 0:
            self._open()
        if self._count >= self._most:
            self._dropping = PATIENCE
            self._thin()
            self._dropping = 0
        return True

    def _open(self) -> None:
        """Open the file, or go on with what an earlier runner left."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        found = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        self._count, self._torn = found.count(b"\n"), found[-1:] not in (b"", b"\n")

    def _write(self, line: Line) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if self._torn:  # what a full disk or a dead runner cut off is a line of its own
            data = b"\n" + data
        self._count += 2 if self._torn else 1
        self._torn = os.write(self._fd, data) < len(data)

    def _thin(self) -> None:
        """Half as many lines. Raises OSError; the file is whole then, as it was."""
        lines = read_lines(self._path)
        kept = [_most_of(*lines[at : at + 2]) for at in range(0, len(lines), 2)]
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in kept)
        write_atomically(self._path, text, 0o600)
        self.close()
        self._open()
        self._stride *= 2


def read_lines(path: Path) -> list[Line]:
    """The lines of such a file, oldest first, without those that are not whole. Raises OSError."""
    return [line for line in json_lines(path) if isinstance(line.get("at"), int | float)]


def _most_of(*lines: Line) -> Line:
    """The last line, with the most of every figure in all of them."""
    most: Line = {}
    gpu: dict[str, int] = {}
    for line in lines:
        for name in ("ram", "swap"):
            most[name] = max((v for v in (most.get(name), line.get(name)) if v is not None),
                             default=None)  # fmt: skip
        for uuid, used in (line.get("gpu") or {}).items():
            gpu[uuid] = max(used, gpu.get(uuid, used))
        most |= {name: line[name] for name in ("at", "step") if name in line}
    known = {name: value for name, value in most.items() if value is not None}
    return {**known, "gpu": gpu}
