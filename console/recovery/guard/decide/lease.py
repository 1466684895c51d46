"""A commit-confirmed trial: with the baseline down, somebody has to stay attached, or it comes
back. Pure countdown, monotonic seconds."""

from __future__ import annotations

HEARD_S = 5.0
"""Who is attached says so once a second."""


class Lease:
    """`length_s` 0: no lease, it never runs out."""

    def __init__(self, length_s: float) -> None:
        self.length_s = max(0.0, length_s)
        self._down_since: float | None = None
        self._attended: float | None = None

    def outage(self, on: bool, at: float) -> None:
        """The baseline went down, or is back. Said again, it changes nothing."""
        if not on:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = at

    def attended(self, at: float) -> None:
        """An operator is attached: the countdown begins anew."""
        if self._attended is None or at > self._attended:
            self._attended = at

    def is_attended(self, now: float) -> bool:
        """Whether an operator is attached to a run that has a lease."""
        return self.length_s > 0 and self._attended is not None and now - self._attended < HEARD_S

    def left(self, now: float) -> float | None:
        """Seconds left, 0 when it has run out; None while nothing counts down."""
        if not self.length_s or self._down_since is None:
            return None
        begun = max(self._down_since, self._attended or self._down_since)
        return max(0.0, begun + self.length_s - now)

    def expired(self, now: float) -> bool:
        """Only ever while the baseline is down."""
        return self.left(now) == 0.0
