"""Time as a value that is handed in, so that a one-hour soak is tested in milliseconds."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds. `monotonic()` for durations, `now()` (Unix time) for what people read."""

    def monotonic(self) -> float: ...
    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...
    def wait(self, event: threading.Event, seconds: float) -> bool: ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Sleep that an event ends early; True when the event is set."""
        return event.wait(seconds)


class FakeClock:
    """A clock that only `sleep` and `wait` move: tests of long waits take no time."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.time = start
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += max(0.0, seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if event.is_set():
            return True
        self.sleep(seconds)
        return event.is_set()
