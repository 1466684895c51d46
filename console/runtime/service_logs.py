"""One log file per service: written by one tailer thread, capped, read by any number of viewers."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.redact import NONE, Known
from console.common.text import clean
from console.common.units import format_bytes
from console.runtime.docker.log_stream import LogStream
from console.runtime.spec import Handle

if TYPE_CHECKING:
    import docker

CAP_BYTES = 64 * 1024 * 1024
COPY = 1024 * 1024


class CappedFile:
    """A file that lines are appended to; above the cap only its newest half is kept, with a marker.

    A full disk loses lines, never the writer; the number lost is written later.
    """

    def __init__(self, path: Path, cap_bytes: int = CAP_BYTES) -> None:
        self.path = path
        self.cap_bytes = cap_bytes
        self.unwritten = 0
        self._dropped = 0
        self._size = 0
        self._descriptor = -1

    def line(self, data: bytes) -> None:
        """Append one line of raw bytes, with a newline if it has none."""
        if not data.endswith(b"\n"):
            data += b"\n"
        try:
            if self._descriptor < 0:
                self._open()
            if self._size + len(data) > self.cap_bytes:
                self._halve()
            if self.unwritten:
                words = f"--- {self.unwritten} lines could not be written before this one ---\n"
                self._append(words.encode())
                self.unwritten = 0
            self._append(data)
        except OSError:
            self.unwritten += 1

    def note(self, text: str) -> None:
        """Append a marker line of the console's own."""
        self.line(clean(text).encode())

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _append(self, data: bytes) -> None:
        done = os.write(self._descriptor, data)
        self._size += done
        if done < len(data):  # a disk that filled up in the middle of a line
            os.ftruncate(self._descriptor, self._size - done)
            self._size -= done
            raise OSError("short write")

    def _halve(self) -> None:
        """Put the newest half into a new file of the same name; readers of the old one go on."""
        fresh = self.path.with_name(f".{self.path.name}.new")
        with self.path.open("rb") as old, fresh.open("wb") as new:
            os.chmod(fresh, 0o600)
            old.seek(max(0, self._size - self.cap_bytes // 2))
            old.readline(COPY)
            self._dropped += old.tell()
            when = time.strftime("%H:%M:%S")
            new.write(
                f"--- {format_bytes(self._dropped)} of older log dropped {when} ---\n".encode()
            )
            while chunk := old.read(COPY):
                new.write(chunk)
        self.close()
        os.replace(fresh, self.path)
        self._open()


class Tailer:
    """Follows a container's log into a file, each line after its ISO time stamp (UTC).

    It ends by itself when the container has ended and all it wrote is in the file. A lost engine
    leaves a marker line where the stream was interrupted; no line is written twice.
    """

    def __init__(
        self,
        client: docker.DockerClient,
        handle: Handle,
        path: Path,
        *,
        since: float | None = None,
        cap_bytes: int = CAP_BYTES,
        known: Known = NONE,
    ) -> None:
        """`since` (Unix seconds): skip older lines; by default, those of former lives. `known`:
        secrets to keep out of the file."""
        self.path = path
        self._known = known
        self._file = CappedFile(path, cap_bytes)
        self._stream = LogStream(
            client, handle.container, entry=self._entry, note=self._file.note, since=since
        )
        self._thread = threading.Thread(
            target=self._run, name=f"log of {handle.service}", daemon=True
        )

    @property
    def finished(self) -> bool:
        """Whether nothing more will be written."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; the file appears with the first line."""
        self._thread.start()

    def stop(self, drain_s: float = 0.0, join_s: float = 3.0) -> bool:
        """End the thread, after `drain_s` for an ended container's last lines; False if it hangs.

        A thread that hangs in a frozen engine is abandoned; it is a daemon.
        """
        if drain_s > 0:
            self._thread.join(drain_s)
        self._stream.stop()
        self._thread.join(join_s)
        return not self._thread.is_alive()

    def _entry(self, stamp: bytes, line: bytes) -> None:
        self._file.line(stamp + b" " + self._known.raw(line))

    def _run(self) -> None:
        try:
            self._stream.follow()
        finally:
            self._file.close()
