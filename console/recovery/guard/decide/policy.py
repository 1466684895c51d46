"""Decides ok, warn or act from a snapshot, the limits and the forecast.

The code is pure: time comes in with the snapshot, and the replay of an incident runs this very
code. Each arming allows one breach, which stays until `arm` is called again. While nothing is
armed, and while a rollback runs, the policy only warns and says so.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from console.common.text import one_line
from console.models.sizing.load_curve import Envelope
from console.recovery.guard.config import NOTHING_PREDICTED, Defaults, Limit
from console.recovery.guard.decide.forecast import Base, Forecast
from console.recovery.guard.decide.limit_state import LimitState, Metrics
from console.recovery.guard.metrics import FAST_GRACE_S, METRICS, OF_CARD, reader
from console.recovery.guard.observe.snapshot import Memory, Snapshot

ATTENDED_S = 5.0
"""An operator counts as attached for this long after each message; one comes every second."""


class Lease:
    """How long the baseline may be down with nobody attached, as in a commit-confirmed trial. All
    times are monotonic seconds. With `length_s` 0 there is no lease, and it never expires."""

    def __init__(self, length_s: float) -> None:
        self.length_s = max(0.0, length_s)
        self._down_since: float | None = None
        self._attended: float | None = None

    def outage(self, on: bool, at: float) -> None:
        """Take note that the baseline went down, or is back. Repeating it changes nothing."""
        if not on:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = at

    def attended(self, at: float) -> None:
        """Take note that an operator is attached, which restarts the countdown."""
        if self._attended is None or at > self._attended:
            self._attended = at

    def is_attended(self, now: float) -> bool:
        """Return whether the run has a lease and an operator is attached."""
        return (
            self.length_s > 0 and self._attended is not None and now - self._attended < ATTENDED_S
        )

    def left(self, now: float) -> float | None:
        """Return the seconds left, 0 when the lease has expired; None while nothing counts down."""
        if not self.length_s or self._down_since is None:
            return None
        begun = max(self._down_since, self._attended or self._down_since)
        return max(0.0, begun + self.length_s - now)

    def expired(self, now: float) -> bool:
        """Return whether the lease has expired, which happens only while the baseline is down."""
        return self.left(now) == 0.0


POLL_S, NEAR_POLL_S = 0.05, 0.02
NEAR_FACTOR = 2.0
NEAR_S = 20.0
"""Readings are taken more often while RAM is below NEAR_FACTOR times the highest level that kills,
or while the forecast leaves less than NEAR_S."""
SLOW_S = 0.25
"""Slow metrics are checked when one of them changed, and this often for their age."""
DEVIATION_S = 1.0
Level = Literal["ok", "warn", "act"]


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was breached, the monotonic second `at` of the decision, and all reasons in that
    snapshot.

    `crossed_at` is when the first sample past the limit was taken, plus the time for which the
    limit had to be passed. `gap_s` is how long before that sample nothing was read. For `index` see
    `LimitState`.
    """

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
class Decision:
    """What the policy decided. `tte_s` is the number of seconds until RAM is full (less the
    reserve) at the current rate; inf while RAM does not fill or the load ends as predicted, None
    while not known. `breach` is the breach of this arming, and `fresh` is true only in the decision
    that found it. `unknown` says in words what is not known. `wait_s` is the time to the next
    reading."""

    level: Level
    reasons: tuple[str, ...] = ()
    tte_s: float | None = None
    breach: Breach | None = None
    fresh: bool = False
    unknown: tuple[str, ...] = ()
    wait_s: float = POLL_S
    on_course: bool = False


class Policy:
    """Decides from snapshots. `limits` are those of the guard config (site and playbook), which are
    checked beside the defaults and so can only tighten them. `gpus` are the GPUs of the guard
    config."""

    def __init__(
        self,
        limits: Sequence[Limit],
        defaults: Defaults,
        envelope: Envelope = NOTHING_PREDICTED,
        gpus: tuple[str, ...] = (),
    ) -> None:
        """Raises ValueError for an invalid limit."""
        self.defaults = defaults
        self.armed = self.advised = False
        self.breach: Breach | None = None
        self.forecast = Forecast(defaults, envelope)
        self.metrics = Metrics(self.forecast, gpus)
        self.states = [LimitState(limit, index) for index, limit in enumerate(limits)]
        self.states += [LimitState(limit, -1) for limit in defaults.limits]
        self.states.sort(key=lambda state: not state.kills)
        self.fast = [state for state in self.states if state.fast]
        self._slow = [state for state in self.states if not state.fast]
        self._slow_due = self._deviation_at = -math.inf
        self._parts: tuple[object, ...] = ()
        self._deviation = ""
        self.highest = self._highest("host.ram_available")
        """The highest level of RAM that kills, in bytes."""
        self.bound_floor = self._highest("host.bound_left")

    def _highest(self, metric: str) -> float:
        kills = (
            state.limit for state in self.states if state.kills and state.limit.metric == metric
        )
        return max((limit.below or 0.0 for limit in kills), default=0.0)

    def is_near(self, memory: Memory) -> bool:
        bound = memory.bound is not None and memory.bound < NEAR_FACTOR * self.bound_floor
        return bound or memory.available < NEAR_FACTOR * self.highest

    def room(self, memory: Memory) -> float:
        """Return the bytes until RAM reaches a level that kills."""
        left = memory.available - self.highest
        return left if memory.bound is None else min(left, memory.bound - self.bound_floor)

    def arm(self, snapshot: Snapshot) -> None:
        """Take note that something of the run came alive; it may be killed, once. Swap growth and
        what the load has taken are counted from the first arming until `disarm`. How long a limit
        has been passed is counted until `disarm` or a kill, because a step that begins beside a
        load does not make it a new load."""
        again = self.armed and self.breach is None
        self.armed, self.breach = True, None
        self.metrics.take(snapshot)
        memory = self.metrics.memory
        if self.metrics.grown_from is None and memory is not None:
            self.metrics.grown_from = memory.swap_used
        if self.forecast.base is None:
            self.forecast.start(memory, snapshot.cards)
        if again:
            return
        for state in self.states:
            state.forget()
        self._slow_due = -math.inf

    @property
    def base(self) -> dict[str, Any] | None:
        """The start values of growth, for a policy that takes over; None while there are none."""
        base = self.forecast.base
        if base is None:
            return None
        return {**base._asdict(), "grown_from": self.metrics.grown_from}

    def resume(self, base: object) -> None:
        """Count from the `base` of another policy, as long as something is alive."""
        match base:
            case {
                "available": int(available),
                "swap_used": int(swap),
                "cards": dict(cards),
                "grown_from": int(grown),
            }:
                self.forecast.resume(Base(available, swap, cards))
                self.metrics.grown_from = grown

    def disarm(self) -> bool:
        """Take note that nothing of the run is alive any more. Returns whether something was."""
        before, self.armed = self.armed, False
        self.breach = None
        self.metrics.grown_from = None
        self.forecast.stop()
        return before

    def advisory(self, on: bool) -> None:
        """While a rollback runs, warn and never kill."""
        self.advised = on

    def decide(self, snapshot: Snapshot) -> Decision:
        """Decide on a snapshot. Snapshots must come in order of time."""
        metrics = self.metrics
        metrics.take(snapshot)
        if self.armed and metrics.grown_from is None and metrics.memory is not None:
            # memory was not known when it was armed
            metrics.grown_from = metrics.memory.swap_used
            self.forecast.start(metrics.memory, snapshot.cards)
        for state in self.fast:
            state.update(metrics)
        parts = (snapshot.loads, snapshot.cards, snapshot.disks, snapshot.hits, snapshot.swap)
        if parts != self._parts or snapshot.at >= self._slow_due:
            self._parts = parts
            for state in self._slow:
                state.update(metrics)
            due = [state.due(snapshot.at) for state in self._slow]
            self._slow_due = min([snapshot.at + SLOW_S, *due])
        if snapshot.at - self._deviation_at >= DEVIATION_S:
            self._deviation_at = snapshot.at
            self._deviation = self._deviation_words(snapshot)
        fresh = self._find_breach(snapshot)
        return self._decision(snapshot, fresh)

    def _deviation_words(self, snapshot: Snapshot) -> str:
        memory = self.metrics.memory
        deviation = self.forecast.outside(memory, snapshot.cards) if memory and self.armed else None
        return f"not as predicted: {deviation}" if deviation else ""

    def _find_breach(self, snapshot: Snapshot) -> bool:
        """Make a breach of the first limit that kills and has fired. Returns True if it is new."""
        if not self.armed or self.advised or self.breach is not None:
            return False
        first = next((state for state in self.states if state.kills and state.fired), None)
        if first is None:
            return False
        reasons = tuple(state.words(self.metrics) for state in self.states if state.shown)
        self.breach = Breach(
            at=snapshot.at, limit=first.limit, reason=first.words(self.metrics), reasons=reasons,
            value=first.value, of=first.of, tte_s=self.forecast.tte_s, rate=self.forecast.rate,
            crossed_at=min(snapshot.at, first.crossed_at + first.limit.for_s), gap_s=first.gap_s,
            index=first.index,
        )  # fmt: skip
        return True

    def _decision(self, snapshot: Snapshot, fresh: bool) -> Decision:
        metrics, reasons, unknown = self.metrics, [], []
        blind = would_kill = passing = False
        for state in self.states:
            if state.shown:
                reasons.append(state.words(metrics))
                would_kill = would_kill or (state.kills and state.fired)
            if state.unknown:
                unknown.append(state.unknown)
                blind = blind or (state.blind and state.kills and state.index >= 0)
            passing = passing or (state.kills and state.since is not None)
        memory = metrics.memory
        if memory is None or snapshot.at - memory.at > FAST_GRACE_S:
            why = one_line(snapshot.why, 120) or "its figures do not change any more"
            reasons.append(f"RAM is not known: {why}")
        if self._deviation:
            reasons.append(self._deviation)
        if would_kill and self.breach is None:
            why = "a rollback is under way" if self.armed else "nothing of the run is alive"
            reasons.append(f"nothing is killed: {why}")
        level: Level = "act" if self.breach else "warn" if reasons or blind or passing else "ok"
        forecast = self.forecast
        return Decision(
            level, tuple(reasons), forecast.tte_s, self.breach, fresh,
            tuple(dict.fromkeys(unknown)), self._wait(passing), forecast.on_course,
        )  # fmt: skip

    def _wait(self, passing: bool) -> float:
        memory, tte_s = self.metrics.memory, self.forecast.tte_s
        near = passing or memory is None or self.is_near(memory)
        if near or (tte_s is not None and tte_s < NEAR_S):
            return NEAR_POLL_S
        return POLL_S


KEPT = 128


class Curves:
    """The snapshots of the last two minutes, one a second, for the curves of services, GPUs, disks
    and logs. Those of RAM and swap come from the window of breach.json."""

    def __init__(self) -> None:
        self._snapshots: deque[Snapshot] = deque(maxlen=KEPT)

    def add(self, snapshot: Snapshot) -> None:
        self._snapshots.append(snapshot)

    def of(
        self, breach: Breach, metrics: Metrics, more: Iterable[tuple[float, float]], wall: float
    ) -> dict[str, Any]:
        """Return the curve of a breached limit: `metric` (or `log`), `of`, and either the `column`
        of the window's rows or `points`, [wall, value] in the limit's unit, that of the breach
        among them. `more` are further points in monotonic time. `wall` is when the breach was
        found."""
        limit, shift = breach.limit, wall - breach.at
        if limit.log:
            curve: dict[str, Any] = {"log": limit.log, "of": limit.log}
        else:
            curve = {"metric": limit.metric, "of": breach.of or limit.of}
        if not limit.log and (column := METRICS[limit.metric].column):
            return {**curve, "column": column}
        if breach.of and not limit.log and limit.of in ("", *OF_CARD):
            limit = replace(limit, of=breach.of)
        read, points = reader(limit, breach.index)[0], dict(more)
        for snapshot in (*self._snapshots, metrics.snapshot):
            past = Metrics(metrics.forecast, metrics.gpus)
            past.snapshot = snapshot
            reading = read(past)
            if reading is not None and reading.value is not None:
                points.setdefault(reading.at, reading.value)
        rows = [[round(at + shift, 3), points[at]] for at in sorted(points)]
        return {**curve, "points": rows}
