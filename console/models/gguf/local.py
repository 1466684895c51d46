"""A GGUF file on this machine, as a source of bytes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType

from console.common.text import one_line
from console.models.gguf.byte_source import FIRST_READ
from console.models.gguf.errors import GgufError, Kind

STEP = 2**20


class LocalFile:
    """An open regular file. Nothing but a regular file is opened: a pipe would wait for ever."""

    def __init__(self, path: Path) -> None:
        """Raises GgufError."""
        self.name = one_line(str(path), 300)
        self.exchanges = self.body_bytes = 0
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:  # a name with NUL is a ValueError
            kind = Kind.MISSING if isinstance(error, FileNotFoundError) else Kind.UNREADABLE
            raise self._error(kind, error) from error
        info = os.fstat(self._file)
        if not stat.S_ISREG(info.st_mode):
            os.close(self._file)
            what = "is a directory" if stat.S_ISDIR(info.st_mode) else "is no regular file"
            raise GgufError(Kind.UNREADABLE, f"{self.name} {what}", "", "name the .gguf file")
        self.total: int | None = info.st_size

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def read(self, offset: int) -> bytes:
        try:
            data = os.pread(self._file, STEP if self.exchanges else FIRST_READ, offset)
        except OSError as error:
            raise self._error(Kind.UNREADABLE, error) from error
        self.exchanges += 1
        self.body_bytes += len(data)
        return data

    def _error(self, kind: Kind, error: Exception) -> GgufError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return GgufError(kind, f"{self.name} cannot be read", one_line(why))
