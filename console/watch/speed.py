"""Whether the baseline has become slower or faster, where noise does not explain it. Pure.

A figure of one short completion says little, and a machine has noise of its own: single slow
answers, a build that takes five minutes, a day that is warmer than the night. So three things have
to come together before a word is said, and each is there against one kind of noise:

- A cumulative sum (CUSUM, Page 1954) of how far the figures are below the reference window's
  median, less an allowance. It finds small lasting shifts, and says when they began: where the sum
  last was zero. The allowance is half of the site's tolerance, or two and a half times the spread
  of the reference window, whichever is more. A figure counts for four allowances at most, so that
  one wild answer is worth no more than four slow ones.
- Time. The shift has lasted for thirty figures, and the sum is at its ceiling at that moment: one
  that is over by then has lowered the sum.
- The interval of the benchmarks (`console.bench.statistics`): the ratio of the medians, since the
  shift against the reference window, lies with its whole 95 % interval beyond half the tolerance.

A rank test alone was left out: a week has 10,000 looks that depend on each other, and a test at any
usual level rejects in some of them. The reference window grows for a day, thinned to 120 figures,
so that warmth by day and load at night are in it; then it stays as it is, so that a slow drift does
not move it. After a shift the figures since then are the new window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

LEARN = 30
"""Figures before anything is judged."""
WINDOW = 120
"""Most figures of the reference window, and most of the last ones that are kept."""
WINDOW_S = 86_400.0
SUSTAINED = 30
"""Figures that a shift has to last."""
CEILING, MAX_EXCESS = 12.0, 4.0
"""In allowances: of the sum, and of what one figure may count for."""
SPREADS = 2.5
MIN_SPREAD = 0.004
SLACK = 5
"""Figures by which the beginning of a shift may be off."""
NORMAL = 1.4826
"""From the median absolute deviation to a standard deviation, for a normal distribution."""

Interval = Callable[[Sequence[float], str, Sequence[float]], tuple[float, float] | None]
"""`console.bench.statistics.interval`; in the watch, in a process of its own."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One answer: tokens a second, and gauges of that moment by their names."""

    at: float
    tok_s: float
    gauges: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the speed: from the first figure of the new level on; `good` is the last one
    before it, None if the first window was slower than the site's reference. Rates are medians.
    `back`: it is again what it was at first."""

    since: float
    good: float | None
    before: float
    after: float
    back: bool
    gauges: tuple[tuple[str, float, float], ...] = ()
    """Each gauge's median before the shift and since then."""

    @property
    def slower(self) -> bool:
        return self.after < self.before


@dataclass(slots=True)
class _Sum:
    """A cumulative sum in allowances, and the index in the last figures at which it left zero."""

    value: float = 0.0
    since: float = 0.0

    def add(self, excess: float, at: float) -> bool:
        """Whether the sum is at its ceiling."""
        if self.value <= 0:
            self.since = at
        self.value = max(
            0.0, min(CEILING, self.value + max(-1.0 - MAX_EXCESS, min(MAX_EXCESS, excess)) - 1.0)
        )
        return self.value >= CEILING


def median(values: Sequence[float]) -> float:
    """Computed here: the process that watches loads no library for it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Speed:
    """The figures of one baseline, in order; `add` returns a shift when there is one to tell."""

    def __init__(
        self,
        tolerance: float,
        declared: float | None,
        saved: dict[str, Any] | None,
        interval: Interval,
    ) -> None:
        """`declared` is the site's reference in tok/s. `saved` is what `to_json` returned; of
        another declared reference, the operator means another speed, and all begins anew."""
        self._interval = interval
        self.least = tolerance / 2
        self.tolerance, self.declared = tolerance, declared
        self.accepted: float | None = None
        """The speed that counts as usual: of the first window, or of one that was faster."""
        self._is_usual = True
        """The reference window is of that speed."""
        self.slow_since = 0.0
        self.window: list[float] = []
        self._begun, self._stride, self._skipped = 0.0, 1, 0
        self._low, self._high = _Sum(), _Sum()
        self.last: list[Figure] = []
        self._allowance: float | None = None
        if saved and saved.get("declared") == declared:
            self._restore(saved)

    @property
    def level(self) -> float | None:
        """The median of the last figures."""
        recent = [figure.tok_s for figure in self.last[-SUSTAINED:]]
        return median(recent) if recent else None

    @property
    def lacking(self) -> int:
        """How many figures the first window still needs."""
        return max(0, LEARN - len(self.window)) if self.accepted is None else 0

    def add(self, figure: Figure) -> Shift | None:
        self.last = [*self.last[-WINDOW + 1 :], figure]
        if self.accepted is None:
            self._learn(figure)
            return self._first() if len(self.window) >= LEARN else None
        center, allowance = median(self.window), self.allowance
        excess = math.log(figure.tok_s / center) / allowance
        low, high = self._low.add(-excess, figure.at), self._high.add(excess, figure.at)
        if abs(excess) < 1:
            self._learn(figure)
        for full, running_sum in ((low, self._low), (high, self._high)):
            if (
                full
                and (shift := self._sustained(running_sum, slower=running_sum is self._low))
                is not None
            ):
                return shift
        return None

    @property
    def allowance(self) -> float:
        """How far a figure may be off without counting, as a logarithm of the ratio."""
        if self._allowance is None:
            logs = [math.log(rate) for rate in self.window]
            middle = median(logs)
            spread = NORMAL * median([abs(log - middle) for log in logs])
            self._allowance = max(self.least, SPREADS * max(spread, MIN_SPREAD))
        return self._allowance

    def to_json(self) -> dict[str, Any]:
        return {
            "declared": self.declared, "accepted": self.accepted, "slow_since": self.slow_since,
            "window": self.window, "begun": self._begun, "stride": self._stride,
            "skipped": self._skipped, "usual": self._is_usual,
            "low": [self._low.value, self._low.since],
            "high": [self._high.value, self._high.since],
            "last": [[figure.at, figure.tok_s, figure.gauges] for figure in self.last],
        }  # fmt: skip

    def _restore(self, saved: dict[str, Any]) -> None:
        accepted = saved.get("accepted")
        self.accepted = None if accepted is None else float(accepted)
        self.slow_since = float(saved.get("slow_since", 0.0))
        self.window = [float(rate) for rate in saved.get("window", [])]
        self._begun, self._stride = float(saved.get("begun", 0.0)), int(saved.get("stride", 1))
        self._skipped, self._is_usual = int(saved["skipped"]), saved["usual"] is True
        self._low, self._high = _Sum(*saved["low"]), _Sum(*saved["high"])
        self.last = [Figure(at, tok_s, gauges) for at, tok_s, gauges in saved.get("last", [])]

    def _learn(self, figure: Figure) -> None:
        """Take a figure into the reference window, which represents one day with 120 of them."""
        self._begun = self._begun or figure.at
        if figure.at - self._begun > WINDOW_S and len(self.window) >= LEARN:
            return
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.window.append(figure.tok_s)
        self._allowance = None
        if len(self.window) >= WINDOW:
            self.window = self.window[::2]
            self._stride *= 2
        if self.accepted is not None and self._is_usual:
            self.accepted = median(self.window)

    def _first(self) -> Shift | None:
        """The first window is full: the site's reference may say that it is slow already."""
        self.accepted = median(self.window)
        if self.declared is None:
            return None
        ceiling = self.declared * (1 - self.tolerance)
        bounds = self._interval(self.window, "median", [self.declared])
        if bounds is None or bounds[1] * self.declared >= ceiling:
            return None
        after, self.accepted, self._is_usual = self.accepted, self.declared, False
        self.slow_since = self.last[0].at
        return Shift(self.slow_since, None, self.declared, after, back=False)

    def _sustained(self, running_sum: _Sum, *, slower: bool) -> Shift | None:
        """The shift, if it has lasted and its whole interval is beyond what counts."""
        since = [figure for figure in self.last if figure.at >= running_sum.since]
        if len(since) < SUSTAINED or self.accepted is None:
            return None
        rates = [figure.tok_s for figure in since]
        ratio = median(rates) / median(self.window)
        if not self._counts(ratio, slower):  # then the interval, which costs more, cannot either
            return None
        bounds = self._interval(rates, "median", self.window)
        if bounds is None or not self._counts(bounds[1] if slower else bounds[0], slower):
            return None
        return self._shifted(since)

    def _counts(self, ratio: float, slower: bool) -> bool:
        return ratio < 1 - self.least if slower else ratio > 1 + self.least

    def _shifted(self, since: list[Figure]) -> Shift:
        assert self.accepted is not None
        earlier = [figure for figure in self.last if figure.at < since[0].at]
        before, after = median(self.window), median([figure.tok_s for figure in since])
        was_slow = self.slow_since > 0
        slow = after < self.accepted * (1 - self.least)
        self._is_usual = not slow and not was_slow and after > before
        if self._is_usual:
            self.accepted = after
        self.slow_since = (self.slow_since or since[0].at) if slow else 0.0
        self.window = [figure.tok_s for figure in since]
        self._begun, self._stride, self._skipped = since[0].at, 1, 0
        self._low, self._high, self._allowance = _Sum(), _Sum(), None
        return Shift(
            since[0].at, earlier[-1].at if earlier else since[0].at, before, after,
            back=was_slow and not slow, gauges=_gauges(earlier, since),
        )  # fmt: skip


def _gauges(before: list[Figure], after: list[Figure]) -> tuple[tuple[str, float, float], ...]:
    """Medians of each gauge that was read on both sides; the figures next to the shift belong to
    neither."""
    good, bad = before[:-SLACK] or before, after[SLACK:] or after
    names = sorted({name for figure in good for name in figure.gauges})
    medians = []
    for name in names:
        sides = [
            [figure.gauges[name] for figure in side if name in figure.gauges]
            for side in (good, bad)
        ]
        if all(sides):
            medians.append((name, median(sides[0]), median(sides[1])))
    return tuple(medians)
