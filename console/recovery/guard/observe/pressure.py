"""The share of time that tasks waited for memory, from the kernel's totals."""

from __future__ import annotations

from console.recovery.guard.observe.snapshot import Memory

SPAN_S = 1.0


class Pressure:
    """Per cent over the last one to two seconds; None until there is a span, and without PSI."""

    def __init__(self) -> None:
        self._old: Memory | None = None
        self._middle: Memory | None = None

    def look(self, memory: Memory) -> tuple[float | None, float | None]:
        """(some, full) up to this look."""
        middle = self._middle
        if middle is None or memory.at - middle.at >= SPAN_S:
            self._old, self._middle = middle, memory
        old = self._old
        if old is None or memory.at <= old.at:
            return None, None
        span = (memory.at - old.at) * 1e4
        return _share(old.some_us, memory.some_us, span), _share(old.full_us, memory.full_us, span)


def _share(before: int | None, now: int | None, span: float) -> float | None:
    if before is None or now is None:
        return None
    return min(100.0, max(0, now - before) / span)
