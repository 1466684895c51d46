"""Limits over time: what is known of the metrics now, and for each limit since when it has been
passed, whether it is clear again, and what is not known."""

from __future__ import annotations

import math

from console.common.text import one_line
from console.common.units import format_bytes, format_number
from console.recovery.guard.config import Limit
from console.recovery.guard.decide.forecast import Countdown, Forecast, Stall
from console.recovery.guard.metrics import FAST_GRACE_S, METRICS, Reading, figure, rate, reader
from console.recovery.guard.observe.snapshot import Memory, Snapshot

CLEAR_S, CLEAR_FACTOR = 10.0, 1.25
"""A breached limit is clear again once the value has kept a distance of CLEAR_FACTOR from the level
for CLEAR_S."""


class Metrics:
    """The current snapshot, and what was computed from earlier ones. Readings are taken from
    here."""

    def __init__(self, forecast: Forecast, gpus: tuple[str, ...]) -> None:
        self.forecast: Forecast = forecast
        self.gpus = gpus
        self.countdown = Countdown()
        self.some: Stall = Stall()
        self.full: Stall = Stall()
        self.snapshot = Snapshot(0.0, None)
        self.fresh: Memory | None = None
        """The snapshot's memory; None if it is not known, or too old."""
        self.read_at = 0.0
        self.before_at: float | None = None
        """When memory was read last, and the time before that."""
        self.memory: Memory | None = None
        """The last known memory; whether it is still valid depends on its age."""
        self.grown_from: int | None = None
        """Swap in use when something of the run came alive, in bytes."""

    def take(self, snapshot: Snapshot) -> None:
        self.snapshot, self.fresh = snapshot, None
        memory = snapshot.memory
        if memory is None:
            return
        self.fresh = memory if snapshot.at - memory.at <= FAST_GRACE_S else None
        if self.memory is None or memory.at != self.memory.at:
            self.before_at = None if self.memory is None else self.read_at
            self.memory, self.read_at = memory, memory.at
            self.forecast.update(memory)
            self.countdown.update(memory, self.forecast)
            self.some.update(memory.at, memory.some_us)
            self.full.update(memory.at, memory.full_us)


class LimitState:
    """The state of one limit. `fired`: it is passed now, for as long as the limit says. `shown`: it
    fired, and is not clear again yet."""

    def __init__(self, limit: Limit, index: int) -> None:
        """`index` is the limit's place in the guard config, -1 for a default. Raises ValueError for
        an invalid limit."""
        self.limit, self.index = limit, index
        self.read, self.grace_s = reader(limit, index)
        self._now = METRICS[limit.metric].now if limit.metric else None
        self.fast = self._now is not None
        self.kills = limit.act == "kill"
        self._ignored_on_course = index < 0 and limit.metric == "host.swap_growth"
        self._below = -math.inf if limit.below is None else limit.below
        self._above = math.inf if limit.above is None else limit.above
        if limit.log:
            self._above = limit.count - 1
        self._level = self._above if limit.below is None else self._below
        if math.isinf(self._level):
            raise ValueError(f"{limit.metric}: either below or above must be set")
        self.value: float | None = None
        self.of = ""
        self.unknown = ""
        self.blind = False
        """True if the metric is not known although it was before, or for longer than its grace; at
        the start nothing is known yet."""
        self._ever_known = False
        self._known_at: float | None = None
        self._known_before_at: float | None = None
        self.crossed_at, self.gap_s = 0.0, 0.0
        """When the first reading past the limit was taken, monotonic, and how long before it
        nothing was read."""
        self.forget()

    def forget(self) -> None:
        """Start a new arming: what was passed before no longer counts. What is known stays
        known."""
        self.since: float | None = None
        self.fired = self.shown = False
        self._clear_since: float | None = None

    def update(self, metrics: Metrics) -> None:
        """Take one snapshot. If nothing exists that the limit is about, the state is cleared."""
        memory, now_of = metrics.fresh, self._now
        fresh = now_of(metrics, memory) if now_of is not None and memory is not None else None
        if fresh is not None:
            self.value, self.unknown, self.blind = fresh, "", False
            self._known_at, self._known_before_at = metrics.read_at, metrics.before_at
            passed = fresh < self._below or fresh > self._above
            if passed or self.shown or self.since is not None:
                self._apply(metrics.snapshot.at, self._passed(metrics))
            return
        reading = self.read(metrics)
        if reading is None:
            self.value, self.unknown, self._known_at, self.blind = None, "", None, False
            self.forget()
            return
        now = metrics.snapshot.at
        if reading.value is not None:
            if reading.at != self._known_at:
                self._known_before_at = self._known_at
            self.value, self.of, self._known_at = reading.value, reading.of, reading.at
        elif self._known_at is None:
            self._known_at = now  # the grace begins with the first snapshot
        age = now - (self._known_at or 0.0)
        self.unknown = ""
        if age > self.grace_s or (reading.value is None and not self.fast):
            self.unknown = self._missing(reading, age)
        self.blind = bool(self.unknown) and (self._ever_known or age > self.grace_s)
        self._ever_known = self._ever_known or reading.value is not None
        if age > self.grace_s:
            self.value = None
        self._apply(now, self._passed(metrics))

    def due(self, now: float) -> float:
        """Return the next monotonic moment at which the state may change without a new reading; inf
        if there is none."""
        moments = []
        if self.since is not None and not self.fired:
            moments.append(self.since + self.limit.for_s)
        if self._known_at is not None and not self.fast:
            moments.append(self._known_at + self.grace_s)
        if self.limit.metric == "runner.silent" and self.value is not None:
            moments.append((self._known_at or now) - self.value + self._above)
        return min((moment for moment in moments if moment >= now), default=math.inf)

    def _passed(self, metrics: Metrics) -> bool:
        limit, value = self.limit, self.value
        if value is None:
            if limit.missing != "breach" or not self.unknown:
                return False
            return (
                self._known_at is not None and metrics.snapshot.at - self._known_at > self.grace_s
            )
        if self._ignored_on_course and metrics.forecast.on_course:
            return False  # the load took no more than predicted: only cold pages were swapped out
        if limit.scarce and metrics.memory is not None and metrics.memory.available >= limit.scarce:
            return False
        return value < self._below or value > self._above

    def _apply(self, now: float, passed: bool) -> None:
        if passed:
            if self.since is None:
                self.since = now
                self._mark_crossing(now)
            # The time between two snapshots counts as passed: on a machine that thrashes they come
            # late.
            self.fired = now - self.since >= self.limit.for_s
            self.shown = self.shown or self.fired
            self._clear_since = None
            return
        self.since, self.fired = None, False
        if not self.shown:
            return
        if self._is_near():
            self._clear_since = None
        elif self._clear_since is None:
            self._clear_since = now
        elif now - self._clear_since >= CLEAR_S:
            self.shown = False

    def _mark_crossing(self, now: float) -> None:
        known = self._known_at if self.value is not None else None
        self.crossed_at = now if known is None else min(known, now)
        before = self._known_before_at
        self.gap_s = 0.0 if known is None or before is None else max(0.0, known - before)

    def _is_near(self) -> bool:
        """Return whether the value is still too near the level for the limit to be clear again."""
        value = self.value
        if value is None:
            return False
        return value < self._below * CLEAR_FACTOR or value > self._above / CLEAR_FACTOR

    def _missing(self, reading: Reading, age: float) -> str:
        why = one_line(reading.why, 120) if reading.value is None else ""
        if age > self.grace_s:
            why = f"no figure for {age:.0f} s" + (f", {why}" if why else "")
        return f"{self.name}: {why or 'not known'}"

    @property
    def name(self) -> str:
        """The limit's metric and subject in words: `VRAM used (sum)`, `OOM kills of candidate`."""
        limit = self.limit
        if limit.log:
            return f"log of {limit.log}"
        name, of = METRICS[limit.metric].words, one_line(self.of or limit.of, 60)
        if limit.metric.startswith("service."):
            return f"{name} of {of}" if of else f"{name} of a service"
        return f"{name} ({of})" if of else name

    def words(self, metrics: Metrics) -> str:
        """Return the reason in words, with the value and the source of the limit."""
        limit, value = self.limit, self.value
        if limit.log and value is not None:
            line = f": {one_line(self.of, 150)}" if self.of else ""
            count = f"{value:.0f} fatal line{'s' if value != 1 else ''}"
            return f"{count} in the log of {limit.log}{line} ({limit.source})"
        if value is None:
            return f"{self.unknown or self.name} ({limit.source})"
        if limit.metric == "host.time_to_full":
            return f"{self._filling(metrics, value)} ({limit.source})"
        now, level = figure(limit.metric, value), figure(limit.metric, self._level)
        if now == level and limit.unit == "B":  # rounded, both look the same
            now, level = f"{value / 2**20:,.0f} MiB", f"{self._level / 2**20:,.0f} MiB"
        side = "below" if limit.below is not None else "above"
        held = f" for {format_number(limit.for_s, 's')}" if limit.for_s else ""
        if not self.fired:
            return f"{self.name} {now}, not clear of {level} yet ({limit.source})"
        return f"{self.name} {now}, {side} {level}{held} ({limit.source})"

    def _filling(self, metrics: Metrics, value: float) -> str:
        if math.isinf(value):
            return "RAM was filling up a moment ago"
        kept = format_bytes(metrics.forecast.defaults.reserve)
        speed = rate(metrics.forecast.rate)
        if not value:
            return f"RAM full: less than the reserve of {kept} left, and filling at {speed}"
        if self.kills and self.fired:
            return f"RAM full in {value:.1f} s at {speed}, with {kept} kept"
        steady = metrics.countdown
        if steady.tte_s is None or math.isinf(steady.tte_s):
            return f"RAM is filling at {speed}, not for long yet"
        return f"RAM full in {steady.tte_s:.0f} s at {rate(steady.rate)}, with {kept} kept"
