"""Time as an injected value, so that a one-hour soak is tested in milliseconds."""

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
    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Sleep until the time is over or the event is set; True if it is set."""
        return event.wait(seconds)
