"""Ok, warn or act: a look held against limits and forecast. Pure: time comes in with the look, and
the replay of an incident runs this very code.

One breach an arming: it stays until `arm` is called anew. While nothing is armed and while a
rollback climbs it only warns, and says so.

A commit-confirmed trial: with the baseline down, somebody has to stay attached, or it comes
back. Pure countdown, monotonic seconds.

The curve of the figure that made a breach: of RAM and swap the samples are kept anyway; of
services, cards, disks and logs the looks of the last two minutes are asked again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from console.common.text import one_line
from console.models.sizing.load_curve import Envelope
from console.recovery.guard.config import NOTHING_PREDICTED, OF_CARD, Defaults, Limit
from console.recovery.guard.decide.forecast import Base, Forecast, Slopes
from console.recovery.guard.decide.limit_state import Track
from console.recovery.guard.decide.metrics import FAST_GRACE_S, Sight, reader
from console.recovery.guard.observe.snapshot import Look, Memory

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


POLL_S, NEAR_POLL_S = 0.05, 0.02
NEAR_FACTOR = 2.0
NEAR_S = 20.0
"""Looked at more often below twice the highest level of RAM that kills, and with less time left."""
SLOW_S = 0.25
"""Slow figures are judged when one of them changed, and this often for their age."""
OUTSIDE_S = 1.0
NO_SLOPES = Slopes()
Level = Literal["ok", "warn", "act"]


@dataclass(frozen=True, slots=True)
class Breach:
    """What was passed, at which monotonic second it was judged, with all the reasons of that look.

    `crossed_at`: when the sample was taken that passed the limit first, plus the time it had to be
    passed for; `gap_s`: how long before that sample nobody had looked. `index`: see `Track`."""

    at: float
    limit: Limit
    reason: str
    reasons: tuple[str, ...] = ()
    value: float | None = None
    of: str = ""
    tte_s: float | None = None
    rate: float = 0.0
    crossed_at: float = 0.0
    gap_s: float = 0.0
    index: int = -1


@dataclass(frozen=True, slots=True)
class Judgement:
    """`tte_s`: seconds until RAM is full (less the reserve) at the pace of now; inf while it does
    not fill or ends as predicted, None while not known. `breach`: the one of this arming, `fresh`
    at the look that found it. `unknown`: what is not known, in words. `wait_s`: when to look next.
    """

    level: Level
    reasons: tuple[str, ...] = ()
    tte_s: float | None = None
    slopes: Slopes = NO_SLOPES
    breach: Breach | None = None
    fresh: bool = False
    unknown: tuple[str, ...] = ()
    wait_s: float = POLL_S
    on_course: bool = False


class Judge:
    """`limits` are those of the sheet (site's and playbook's), judged beside the defaults: they
    can only tighten. `gpus` are the cards of the sheet."""

    def __init__(
        self,
        limits: Sequence[Limit],
        defaults: Defaults,
        envelope: Envelope = NOTHING_PREDICTED,
        gpus: tuple[str, ...] = (),
    ) -> None:
        """Raises ValueError for a limit that is none."""
        self.defaults = defaults
        self.armed = self.advised = False
        self.breach: Breach | None = None
        self.forecast = Forecast(defaults, envelope)
        self.sight = Sight(self.forecast, gpus)
        self.tracks = [Track(limit, index) for index, limit in enumerate(limits)]
        self.tracks += [Track(limit, -1) for limit in defaults.limits]
        self.tracks.sort(key=lambda track: not track.kills)
        self.fast = [track for track in self.tracks if track.fast]
        self._slow = [track for track in self.tracks if not track.fast]
        self._slow_due = self._outside_at = -math.inf
        self._parts: tuple[object, ...] = ()
        self._outside = ""
        self.highest = self._highest("host.ram_available")
        """The highest level of RAM that kills, bytes."""
        self.bound_floor = self._highest("host.bound_left")

    def _highest(self, metric: str) -> float:
        kills = (one.limit for one in self.tracks if one.kills and one.limit.metric == metric)
        return max((one.below or 0.0 for one in kills), default=0.0)

    def is_near(self, memory: Memory) -> bool:
        """Whether RAM is near a level that kills."""
        bound = memory.bound is not None and memory.bound < NEAR_FACTOR * self.bound_floor
        return bound or memory.available < NEAR_FACTOR * self.highest

    def room(self, memory: Memory) -> float:
        """Bytes until RAM is down to a level that kills."""
        left = memory.available - self.highest
        return left if memory.bound is None else min(left, memory.bound - self.bound_floor)

    def arm(self, look: Look) -> None:
        """Something of the run came alive: it may be killed, once. What swap grew by and what the
        load has taken count from the first arming until `disarm`, and for how long a limit has been
        passed until `disarm` or a kill: a step that begins beside a load makes it no new one."""
        again = self.armed and self.breach is None
        self.armed, self.breach = True, None
        self.sight.take(look)
        memory = self.sight.memory
        if self.sight.grown_from is None and memory is not None:
            self.sight.grown_from = memory.swap_used
        if not self.forecast.started:
            self.forecast.start(memory, look.cards)
        if again:
            return
        for track in self.tracks:
            track.forget()
        self._slow_due = -math.inf

    @property
    def base(self) -> dict[str, Any] | None:
        """What is counted from, for a judge that goes on; None while nothing is."""
        base = self.forecast.base
        if base is None:
            return None
        return {**base._asdict(), "grown_from": self.sight.grown_from}

    def resume(self, base: object) -> None:
        """Count from where another judge did (its `base`), as long as something lives."""
        match base:
            case {
                "available": int(available),
                "swap_used": int(swap),
                "cards": dict(cards),
                "grown_from": int(grown),
            }:
                self.forecast.resume(Base(available, swap, cards))
                self.sight.grown_from = grown

    def disarm(self) -> bool:
        """Nothing of the run is alive any more; whether something was."""
        before, self.armed = self.armed, False
        self.breach = None
        self.sight.grown_from = None
        self.forecast.stop()
        return before

    def advisory(self, on: bool) -> None:
        """A rollback climbs: warn, never act."""
        self.advised = on

    def look(self, look: Look) -> Judgement:
        """Judge what is seen. Looks come in order of time."""
        sight = self.sight
        sight.take(look)
        if self.armed and sight.grown_from is None and sight.memory is not None:
            # memory was not known when it was armed
            sight.grown_from = sight.memory.swap_used
            self.forecast.start(sight.memory, look.cards)
        for track in self.fast:
            track.look(sight)
        parts = (look.loads, look.cards, look.disks, look.hits, look.swap)
        if parts != self._parts or look.at >= self._slow_due:
            self._parts = parts
            for track in self._slow:
                track.look(sight)
            due = [track.due(look.at) for track in self._slow]
            self._slow_due = min([look.at + SLOW_S, *due])
        if look.at - self._outside_at >= OUTSIDE_S:
            self._outside_at = look.at
            self._outside = self._deviation(look)
        fresh = self._latch(look)
        return self._judgement(look, fresh)

    def _deviation(self, look: Look) -> str:
        memory = self.sight.memory
        found = self.forecast.outside(memory, look.cards) if memory and self.armed else None
        return f"not as predicted: {found}" if found else ""

    def _latch(self, look: Look) -> bool:
        """The first limit that kills makes the breach; True when it is new."""
        if not self.armed or self.advised or self.breach is not None:
            return False
        first = next((track for track in self.tracks if track.kills and track.fired), None)
        if first is None:
            return False
        reasons = tuple(one.words(self.sight) for one in self.tracks if one.shown)
        self.breach = Breach(
            at=look.at, limit=first.limit, reason=first.words(self.sight), reasons=reasons,
            value=first.value, of=first.of, tte_s=self.forecast.tte_s, rate=self.forecast.rate,
            crossed_at=min(look.at, first.crossed_at + first.limit.for_s), gap_s=first.gap_s,
            index=first.index,
        )  # fmt: skip
        return True

    def _judgement(self, look: Look, fresh: bool) -> Judgement:
        sight, reasons, unknown = self.sight, [], []
        blind = would = passing = False
        for track in self.tracks:
            if track.shown:
                reasons.append(track.words(sight))
                would = would or (track.kills and track.fired)
            if track.unknown:
                unknown.append(track.unknown)
                blind = blind or (track.blind and track.kills and track.index >= 0)
            passing = passing or (track.kills and track.since is not None)
        memory = sight.memory
        if memory is None or look.at - memory.at > FAST_GRACE_S:
            why = one_line(look.why, 120) or "its figures stand still"
            reasons.append(f"RAM is not known: {why}")
        if self._outside:
            reasons.append(self._outside)
        if would and self.breach is None:
            reasons.append(self._only_watched())
        level: Level = "act" if self.breach else "warn" if reasons or blind or passing else "ok"
        forecast = self.forecast
        return Judgement(
            level, tuple(reasons), forecast.tte_s, forecast.slopes, self.breach, fresh,
            tuple(dict.fromkeys(unknown)), self._wait(passing), forecast.on_course,
        )  # fmt: skip

    def _only_watched(self) -> str:
        if not self.armed:
            return "only watched: nothing of the run is alive"
        return "only watched: a rollback is on its way"

    def _wait(self, passing: bool) -> float:
        memory, tte_s = self.sight.memory, self.forecast.tte_s
        near = passing or memory is None or self.is_near(memory)
        if near or (tte_s is not None and tte_s < NEAR_S):
            return NEAR_POLL_S
        return POLL_S


KEPT = 128
COLUMNS = {
    "host.ram_available": 1, "host.time_to_full": 1, "host.swap_used": 2, "host.swap_free": 2,
    "host.swap_growth": 2, "host.pressure": 3,
}  # fmt: skip
"""Of these the window's rows have the curve."""


class Curves:
    """Looks, one a second, as far as they are not of RAM."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=KEPT)

    def add(self, look: Look) -> None:
        self._looks.append(look)

    def of(
        self, breach: Breach, sight: Sight, more: Iterable[tuple[float, float]], wall: float
    ) -> dict[str, Any]:
        """What was on the limit that made a breach: `metric` (or `log`), `of`, and either the
        `column` of the window's rows or `points`, [wall, figure] in the limit's unit. `more`:
        points of monotonic time that are known besides; `wall`: when the breach was judged."""
        limit, shift = breach.limit, wall - breach.at
        if limit.log:
            found: dict[str, Any] = {"log": limit.log, "of": limit.log}
        else:
            found = {"metric": limit.metric, "of": breach.of or limit.of}
        if limit.metric in COLUMNS:
            return {**found, "column": COLUMNS[limit.metric]}
        if breach.of and not limit.log and limit.of in ("", *OF_CARD):
            limit = replace(limit, of=breach.of)
        read, points = reader(limit, breach.index)[0], dict(more)
        for look in self._looks:
            seen = Sight(sight.forecast, sight.gpus)
            seen.look = look
            figure = read(seen)
            if figure is not None and figure.value is not None:
                points.setdefault(figure.at, figure.value)
        rows = [[round(at + shift, 3), points[at]] for at in sorted(points)]
        return {**found, "points": rows}
