"""How fast bytes arrive and when they will be there; pure, with the time handed in."""

from __future__ import annotations

from collections import deque

WINDOW_S = 30.0
LEAST_S = 2.0
"""Over less time than this a rate is noise."""
STALLED_S = 60.0


class Meter:
    """A moving window over (seconds, bytes so far)."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._marks: deque[tuple[float, int]] = deque()
        self._grew_at = 0.0

    def add(self, now: float, done: int) -> None:
        """Note the bytes so far; fewer than before is a fresh start (a file begun again)."""
        if not self._marks or done < self._marks[-1][1]:
            self._marks.clear()
            self._grew_at = now
        elif done > self._marks[-1][1]:
            self._grew_at = now
        self._marks.append((now, done))
        while len(self._marks) > 2 and self._marks[1][0] <= now - self._window_s:
            self._marks.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes per second over the window; None until there is enough of it."""
        if not self._marks:
            return None
        (start, before), (end, done) = self._marks[0], self._marks[-1]
        return (done - before) / (end - start) if end - start >= LEAST_S else None

    def eta(self, total: int | None) -> float | None:
        """Seconds until `total` bytes are there at this rate; None where nobody can tell."""
        rate = self.rate
        if total is None or not self._marks:
            return None
        left = total - self._marks[-1][1]
        return 0.0 if left <= 0 else left / rate if rate else None

    def stalled(self, now: float) -> bool:
        """Whether nothing has arrived for a minute."""
        return bool(self._marks) and now - self._grew_at >= STALLED_S
