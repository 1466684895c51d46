"""Verbs on their way to the runner: one at a time, in the order of the keys."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Outbox:
    """A daemon thread that does one piece of work after the other; started with the first."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        """`trouble` gets the words of a failure that nobody foresaw, in the thread."""
        self._trouble = trouble
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Do this after what was put before. Called on the UI loop."""
        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:  # the thread's entry: the next verb counts
                self._trouble(f"{type(error).__name__}: {error}")
