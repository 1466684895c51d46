"""A thread for one card: a call that hangs in the driver holds up this card and no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """Does one job at a time. `asked_at`, `answered_at`: the caller's own times, None for never."""

    def __init__(self, name: str) -> None:
        self.asked_at: float | None = None
        self.answered_at: float | None = None
        self._name = name
        self._job: Callable[[], T] | None = None
        self._result: T | Exception | None = None
        self._wake = threading.Semaphore(0)
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    def begin(self, job: Callable[[], T], at: float) -> None:
        """Do a job beside the caller. Only while not busy."""
        self._job, self.asked_at = job, at
        self._result = None
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._wake.release()

    def wait(self, seconds: float) -> bool:
        """Whether the job is done, `seconds` from now at most."""
        return self._idle.wait(max(0.0, seconds))

    def result(self) -> T:
        """What the job gave, once it is done. Raises what it raised."""
        assert self._result is not None
        if isinstance(self._result, Exception):
            raise self._result
        self.answered_at = self.asked_at
        return self._result

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            assert self._job is not None
            try:
                self._result = self._job()
            except Exception as error:
                self._result = error
            self._idle.set()
