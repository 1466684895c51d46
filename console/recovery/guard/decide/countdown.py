"""The forecast as it is shown: a time that people can plan with, not each gust of other people's
work. Nothing is judged by it. Pure: time comes in with the figures.
"""

from __future__ import annotations

import math

from console.recovery.guard.decide.forecast import STILL, Forecast
from console.recovery.guard.observe.snapshot import Memory

RISE_S, FALL_S = 2.0, 4.0
"""Growth has to show over half a second and over three, is then believed in two seconds and
forgotten in four."""
URGENT_S, URGENT_FOR_S = 10.0, 0.5
"""A forecast that stays below this is shown as it is judged."""
FAR_S, GONE_S = 600.0, 1200.0
"""A time appears below the first and goes above the second."""


class Countdown:
    """`tte_s` and `rate` as in `Forecast`, and steadier."""

    def __init__(self) -> None:
        self.tte_s: float | None = None
        self.rate = 0.0
        self._at: float | None = None
        self._urgent_at: float | None = None

    def look(self, memory: Memory, forecast: Forecast) -> None:
        """After the forecast took this sample."""
        at, slopes, now_s = memory.at, forecast.slopes, forecast.tte_s
        step = 0.0 if self._at is None else max(0.0, at - self._at)
        self._at = at
        if now_s is None or slopes.short is None or slopes.medium is None:
            self.tte_s, self.rate, self._urgent_at = None, 0.0, None
            return
        lasting = max(0.0, min(slopes.short, slopes.medium))
        self.rate += (lasting - self.rate) * step / (step + (RISE_S, FALL_S)[lasting < self.rate])
        if now_s >= URGENT_S:
            self._urgent_at = None
        elif self._urgent_at is None:
            self._urgent_at = at
        if self._urgent_at is not None and at - self._urgent_at >= URGENT_FOR_S:
            self.tte_s, self.rate = now_s, forecast.rate
            return
        self.tte_s = self._left_s(memory.available - forecast.defaults.reserve, forecast)

    def _left_s(self, left: float, forecast: Forecast) -> float:
        if forecast.on_course or left <= 0 or self.rate < STILL:
            return math.inf
        shown = self.tte_s is not None and math.isfinite(self.tte_s)
        seconds = left / self.rate
        return seconds if seconds < (GONE_S if shown else FAR_S) else math.inf
