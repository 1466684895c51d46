"""Says that no token comes while one request is out, for whoever waits before a terminal."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from console.bench.sse import Capture, read_reply

FIRST_S = 5.0
"""A silence that is longer is told."""
EVERY_S = 10.0
LOOK_S = 1.0
LOOKED_AT = 8
"""Of the newest events: parsing all of them would take time from the stamps of the next."""


class Waiting:
    """`say` is called with the seconds of a silence, from a thread of its own, while a request is
    out (`with waiting:`): after 5 s, then each 10 s until a token comes."""

    def __init__(
        self, say: Callable[[float], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._monotonic = monotonic
        self._events: deque[str] = deque(maxlen=LOOKED_AT)
        self._since = self._next = 0.0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        self.begin()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self) -> None:
        """A request goes out."""
        self._events.clear()
        self._since, self._next = self._monotonic(), FIRST_S

    def take(self, data: str) -> None:
        """An event came; in the thread that stamps them, so it only keeps it."""
        self._events.append(data)

    def look(self) -> None:
        """Say it if it is time to."""
        now = self._monotonic()
        if self._heard():
            self._since, self._next = now, FIRST_S
        elif now - self._since >= self._next:
            self._next = now - self._since + EVERY_S
            self._say(now - self._since)

    def _heard(self) -> bool:
        """Whether text came since the last look. A role or progress comes from a silent server."""
        found = False
        while self._events:
            seen = read_reply(Capture(status=200, events=[(0, self._events.popleft())]))
            found = found or any(event.is_text for event in seen.events)
        return found

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()
