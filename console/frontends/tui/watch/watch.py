"""What every watcher is: a thread that looks again and again, and delivers what it saw."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Watch(Generic[T]):
    """A daemon thread that looks every `poll_s` seconds, keeps what it saw last and delivers it."""

    def __init__(self, name: str, deliver: Callable[[T], None], poll_s: float) -> None:
        """`deliver` is called in the watcher's thread; its exceptions are dropped."""
        self._deliver = deliver
        self._poll_s = poll_s
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.latest: T | None = None

    def start(self) -> None:
        """Start reading, even before there is a receiver."""
        self._thread.start()

    def look(self) -> None:
        """Look now, not at the next turn."""
        self._wake.set()

    def first(self, timeout_s: float) -> T | None:
        """The latest result, after waiting for a first look if need be; None if none came."""
        self._ready.wait(timeout_s)
        return self.latest

    def close(self) -> None:
        """End the thread; waits for a look in progress, at most two seconds."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            self._look()
            self._wake.wait(self._pause())

    def _look(self) -> None:
        """Look once, and `_publish` the result; may not raise."""
        raise NotImplementedError

    def _pause(self) -> float:
        return self._poll_s

    def deliver_to(self, deliver: Callable[[T], None]) -> None:
        """Deliver to this receiver from now on, starting with the latest result."""
        self._deliver = deliver
        if self.latest is not None:
            deliver(self.latest)

    def _publish(self, seen: T) -> None:
        self.latest = seen
        self._ready.set()
        with contextlib.suppress(Exception):  # a screen on its way out takes nothing any more
            self._deliver(seen)
