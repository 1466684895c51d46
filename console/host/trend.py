"""The last minute of one figure, bounded, as a few averages for a short trend."""

from __future__ import annotations

from collections import deque


class Trend:
    """The last `most` values, oldest first; None where there was none."""

    def __init__(self, most: int = 60) -> None:
        self._values: deque[float | None] = deque(maxlen=most)
        self._most = most
        self._count = 0

    def add(self, value: float | None) -> None:
        """One more value; the oldest goes."""
        self._values.append(value)
        self._count += 1

    @property
    def values(self) -> tuple[float | None, ...]:
        """What is kept, oldest first."""
        return tuple(self._values)

    def averages(self, cells: int) -> list[float | None]:
        """`cells` averages over equal spans, newest last; None where nothing is known.

        Spans stand still until they are full: a trend that moved at each tick would cost a
        repaint of all its cells each time.
        """
        if cells <= 0:
            return []
        span = -(-self._most // cells)
        spans: list[list[float]] = [[] for _ in range(cells)]
        newest = (self._count - 1) // span
        first = self._count - len(self._values)
        for number, value in enumerate(self._values, first):
            at = cells - 1 - (newest - number // span)
            if value is not None and at >= 0:
                spans[at].append(value)
        return [sum(found) / len(found) if found else None for found in spans]
