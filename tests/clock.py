"""A clock that a test moves."""

import threading


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
