"""The log of the baseline's container, while somebody reads it.

A run follows its own services. Nobody follows the baseline, so the console does when asked to: from
an hour ago, across restarts, into a temporary file of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.recovery.rollback.sealed_plan import SealedPlan

if TYPE_CHECKING:
    from console.runtime.docker.log_stream import LogStream
    from console.runtime.service_logs import CappedFile

UP, DOWN, UNKNOWN = "loading", "stopped", "unknown"
NEVER = "0001-"

BACK_S = 3600.0
AGAIN_S = 2.0
_numbers = itertools.count(1)


class BaselineLog:
    """One follower, in a thread that starts when the log is first shown."""

    def __init__(self, plan: SealedPlan) -> None:
        self.plan = plan
        self.path: Path = paths.cache_dir() / f"baseline-{os.getpid()}-{next(_numbers)}.log"
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._stream: LogStream | None = None
        self._newest = b""

    def start(self) -> None:
        """Follow from now on; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="baseline-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End and remove the file; waits at most two seconds."""
        self._closed.set()
        if self._stream is not None:
            self._stream.stop()
        if self._thread is not None:
            self._thread.join(2.0)
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _run(self) -> None:
        from console.runtime.service_logs import CappedFile

        with contextlib.suppress(OSError):
            paths.make(self.path.parent)
            _sweep(self.path.parent)
        file, previous_words = CappedFile(self.path), ""
        while not self._closed.is_set():
            try:
                self._follow(file)
                words = "the container does not run; its log continues when it runs again"
            except ConsoleError as error:
                words = one_line(str(error), 300)
            if words != previous_words and not self._closed.is_set():
                file.note(f"--- {words} ---")
                previous_words = words
            self._closed.wait(AGAIN_S)
        file.close()

    def _follow(self, file: CappedFile) -> None:
        """Follow until the container ends. Raises EngineError."""
        from console.recovery.rollback.observe import inspected
        from console.runtime.docker.client import connect
        from console.runtime.docker.log_stream import LogStream
        from console.runtime.engine_api import RawEngine

        def entry(stamp: bytes, line: bytes) -> None:
            # the engine asks by seconds: what was read of this one comes again
            if stamp > self._newest:
                self._newest = stamp
                file.line(stamp + b" " + line)

        client = connect(self.plan.engine.docker_host or None)
        try:
            engine = RawEngine(self.plan.engine.socket or self.plan.engine.docker_host)
            name = str(inspected(self.plan, engine)["Id"])
            stream = LogStream(client, name, entry=entry, note=file.note, since=self._since())
            self._stream = stream
            if not self._closed.is_set():
                stream.follow()
        finally:
            client.close()

    def _since(self) -> float:
        """Where to begin, Unix seconds: at the newest line, an hour ago at first."""
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(self._newest[:19].decode() + "+00:00").timestamp()
        return time.time() - BACK_S


def _sweep(directory: Path) -> None:
    """Remove the files of consoles that were killed. Raises OSError."""
    for path in directory.glob("baseline-*.log"):
        match = re.fullmatch(r"baseline-(\d+)(-\d+)?\.log", path.name)
        if match is not None and not Path(f"/proc/{match[1]}").exists():
            path.unlink(missing_ok=True)
