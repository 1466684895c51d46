"""The runner's client of the sentinel: starts it, tells it what happens, and watches it.

A thread of the runner sends a beat once a second. A sentinel that is dead or silent is restarted at
once, and again only after a quiet minute. When none has lived for GONE_S, no load starts, and a run
with anything up rolls back.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from console.common.errors import ConsoleError
from console.common.text import clean
from console.common.units import format_duration
from console.config.playbook.steps import KINDS
from console.host import cgroup, process
from console.journal import events
from console.journal.breach import Seen, breach_of, look, step_cause, tell
from console.journal.state import Cause, RunState
from console.notify.event import LEASE
from console.recovery.guard.record.recorder import sweep
from console.recovery.rollback import live
from console.recovery.rollback.shell import sealed_copy
from console.runner.context import Attempt, Context, StepFailed
from console.runner.control import Verb
from console.runner.guard import limits
from console.runner.guard.process import READY_S, SILENT_S, SentinelProcess, dismiss
from console.runner.prepare.plan import PlannedStep

TICK_S = 0.25
BEAT_S = 1.0
QUIET_S = 60.0
"""A sentinel that has watched for this long may be restarted once more."""
GONE_S = 5.0
ATTACHED_S = 5.0
"""A viewer that asked within this many seconds counts as attached."""
FENCE_S = 5.0
"""How long a breach's fence may take to reach this runner, which then rolls back itself."""
LEASE_ENDS_S = 300.0
"""A lease of which less than this and than a quarter is left runs out soon."""
MAX_EVENTS = 500
WHO, WATCHER = "the sentinel", "the runner"
HALTABLE = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.WAITING_APPROVAL})


class Guard:
    """The sentinel of one run, as its runner knows it. Methods may be called from any thread."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.clock = context.clock
        self.sentinel = SentinelProcess(context.run, context.clock, sealed_copy.place())
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._starts = 1
        self._seen_at = self._beat_at = self._tried_at = self.clock.monotonic()
        self._level = "ok"
        self._events = 0
        self._gone = self._lease_ends = False
        self._advising = context.view.state is RunState.ROLLING_BACK
        self._old: events.Guard | None = None
        self._breach_at: float | None = None

    # -- begin and end ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Adopt a live sentinel, or start one and wait until it is ready."""
        self._old = breach_of(self.context.run)
        sweep(self.clock.now())
        cgroup.sweep()
        self._write_config()
        if self.sentinel.adopt():
            self._say("watching", "the running sentinel was adopted")
        else:
            self.sentinel.start()
            self.sentinel.wait_ready()
        self._inform()
        self._thread = threading.Thread(target=self._loop, name="guard", daemon=True)
        self._thread.start()

    def _inform(self) -> None:
        """Tell a sentinel that begins in the middle of a run what it has to know."""
        self._seen_at = self.clock.monotonic()
        self.tell(do="beat")
        self.tell(do="outage", on=self.context.view.outage)
        self.tell(do="advisory", on=self._advising)
        self.tell(do="arm")

    def close(self, *, over: bool) -> None:
        """Stop watching the sentinel. With `over`, end it, because it is not needed any more."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(GONE_S)
        if over:
            dismiss(self.context.run, self.clock)
            self.sentinel.end()

    # -- what the run says -----------------------------------------------------------------------

    def tell(self, **message: Any) -> None:
        """Send one message. A sentinel that does not read is noticed by its silence."""
        tell(self.context.run, message)

    def outage(self, down: bool) -> None:
        self.tell(do="outage", on=down)

    def advisory(self, on: bool) -> None:
        """Only warn while the runner itself rolls back: what fills memory then is the baseline."""
        if not on:
            self.renew()  # the baseline may be another process now
        self._advising = on
        self.tell(do="advisory", on=on)

    def renew(self) -> None:
        """Write the guard config again: the prediction or the baseline's pid has changed."""
        with contextlib.suppress(OSError, ConsoleError):
            self._write_config()
            self.tell(do="sheet")

    def require(self, planned: PlannedStep, attempt: Attempt) -> None:
        """Hold a step that loads until a sentinel watches, GONE_S at most. Raises
        StepFailed(GUARD)."""
        step = planned.step
        stops = step is not None and step.content.stops
        if not KINDS[planned.kind].loads or planned.final or stops:
            return
        deadline = self.clock.monotonic() + GONE_S
        while not self.sentinel.watches:
            if self.clock.monotonic() >= deadline:
                words = f"no sentinel guards this machine: see {self.sentinel.log}"
                raise StepFailed(Cause.GUARD, words)
            attempt.pause(TICK_S / 5)

    def struck(self, attempt: Attempt) -> bool:
        """Return whether a step failed because the sentinel killed what it depends on. The answer
        comes from a status page that is younger than the failure. If so, the fence is on its way
        and is waited for here, so that nothing else starts meanwhile."""
        now = self.clock.monotonic()
        while (seen := look(self.context.run, self.sentinel.pid)) is None or not (
            seen.acted or seen.at >= now
        ):
            if self.clock.monotonic() - now > SILENT_S:
                return False
            self.clock.sleep(TICK_S / 5)
        while seen.acted and self.clock.monotonic() - now < 2 * FENCE_S:
            if attempt.cancelled.is_set():
                break
            self.clock.sleep(TICK_S / 5)
        return seen.acted

    def again(self) -> None:
        """Allow another start of the sentinel, because the operator tries once more."""
        with self._lock:
            self._starts, self._gone = 1, False
            self._seen_at = self.clock.monotonic()

    def _write_config(self) -> None:
        plan = self.context.way_back()
        limits.write(limits.make(self.context, plan))

    # -- the thread ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._closed.wait(TICK_S):
            with contextlib.suppress(ConsoleError, OSError):
                self.tick()  # after a full disk or a closed journal the next tick tries again

    def tick(self) -> None:
        """Send a beat, and check the sentinel's state, its level, and whether there is a breach."""
        now = self.clock.monotonic()
        if now - self._beat_at >= BEAT_S:
            self._beat_at = now
            self.tell(do="beat")
            if self._advising:
                self.tell(do="advisory", on=True)  # the sentinel drops it unless it is repeated
            if self.context.control.is_attended(now, ATTACHED_S):
                self.tell(do="attended")
        with self._lock:
            seen = self._read_status(now)
        if seen is not None:
            self.context.control.set(lease=seen.lease_s)
            self._lease(seen.lease_s)
            self._levels(seen)
        self._breach(now)

    def _read_status(self, now: float) -> Seen | None:
        watches = self.sentinel.watches
        seen = look(self.context.run, self.sentinel.pid) if watches else None
        if seen is not None and now - seen.at <= SILENT_S:
            self._seen_at, self._gone = max(self._seen_at, seen.at), False
            if now - self._tried_at >= QUIET_S:
                self._starts = 1
            return seen
        self._replace_missing(now)
        return None

    def _replace_missing(self, now: float) -> None:
        """Handle a missing sentinel: a dead one is restarted at once, a silent one after SILENT_S,
        and without any for GONE_S the run gives up."""
        dead, quiet = not self.sentinel.alive, now - self._seen_at
        if self._starts > 0 and (dead or quiet > SILENT_S):
            self._starts -= 1
            self._tried_at = now
            last = look(self.context.run, self.sentinel.pid)
            self.sentinel.end()
            if last is not None and last.acted and is_same(breach_of(self.context.run), self._old):
                # it killed, and was stopped before it could report that and trigger the rollback
                self._halt(Cause.GUARD, "; ".join(last.reasons) or "the sentinel killed the load")
            self._say("restarted", "the sentinel " + (
                "was gone" if dead else f"said nothing for {quiet:.0f} s"
            ) + "; a new one was started")  # fmt: skip
            self.sentinel.start()
            return
        if self._tried_at > self._seen_at and self.sentinel.watches:
            self._inform()
        elif quiet > GONE_S and not self._may_still_start(now, dead=dead):
            if not self._gone:
                self._gone = True
                self._say("gone", f"no sentinel for {quiet:.0f} s: no load starts any more")
            if self._anything_up():  # checked each time: a start under way may have finished
                self._halt(Cause.GUARD, "no sentinel guards this machine", WATCHER)

    def _may_still_start(self, now: float, *, dead: bool) -> bool:
        """Return whether nothing is up, so that a new sentinel may start slowly."""
        return not dead and now - self._tried_at < READY_S and not self._anything_up()

    def _anything_up(self) -> bool:
        view = self.context.view
        if view.outage or view.services:
            return True
        entries = live.read(self.context.run.live)
        return any(e.kind == "step" and process.alive(e.pid, e.start) for e in entries)

    def _halt(self, cause: Cause, words: str, who: str = WHO) -> None:
        if self.context.view.state in HALTABLE:
            self.context.control.halt(Verb("rollback", who, words, cause=str(cause)))

    def _levels(self, seen: Seen) -> None:
        """Record a change of level as an event; an unchanged level is none."""
        if seen.level == self._level:
            return
        before, self._level = self._level, seen.level
        if seen.level == "ok":
            self._say("clear", f"the guard is calm again, after {before}")
        else:
            words = "; ".join(seen.reasons) or "a limit is near"
            self._say(seen.level, words, tte_s=seen.tte_s)

    def _lease(self, left: float | None) -> None:
        """Record that the lease runs out soon, once until somebody has renewed it."""
        length = limits.lease_of(self.context.plan, self.context.meta.lease_s)
        was_announced, self._lease_ends = self._lease_ends, False
        if left is not None and left <= min(LEASE_ENDS_S, length / 4):
            self._lease_ends = True
            words = f"nobody is attached, and the baseline comes back in {format_duration(left)}"
            if not was_announced:
                self._say(LEASE, words, left_s=left)

    def _breach(self, now: float) -> None:
        """Roll back after a breach whose fence does not come, since nothing else would."""
        breach = breach_of(self.context.run)
        if breach is None or is_same(breach, self._old):
            return
        if self._breach_at is None:
            self._breach_at = now
        elif now - self._breach_at > FENCE_S:
            self._old, self._breach_at = breach, None
            with contextlib.suppress(ConsoleError):
                record_breach(self.context, breach)
            self._halt(step_cause(breach), breach.words)

    def _say(self, kind: str, words: str, **data: Any) -> None:
        self._events += 1
        if self._events > MAX_EVENTS:
            return
        with contextlib.suppress(ConsoleError):  # a full disk stops no guard
            self.context.record(events.Guard(sign=kind, words=clean(words, 500), **data))


def is_same(breach: events.Guard | None, before: events.Guard | None) -> bool:
    """Whether two readings are of the same breach; the file is written again when all is dead."""
    if breach is None or before is None:
        return breach is before
    return (breach.at, breach.words, breach.cause) == (before.at, before.words, before.cause)


def record_breach(context: Context, breach: events.Guard) -> None:
    """Record the breach as an event of the run, once. Raises JournalError."""
    if breach.at not in _recorded(context):
        context.record(breach)


def _recorded(context: Context) -> set[float | None]:
    return {event.body.at for event in context.view.guards if event.kind == "breach"}


def unrecorded_breach(context: Context) -> events.Guard | None:
    """Return a breach that the journal does not know yet; None if there is none."""
    breach, known = breach_of(context.run), _recorded(context)
    return breach if breach is not None and breach.at not in known else None
