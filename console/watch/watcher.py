"""The watch over one baseline: looks, what follows from them, and when to look again.

`Watcher.tick` is one look and all that follows from it. Time, looks, fingerprints and restores are
passed in, so that a week is tested in seconds. Whatever a tick decides stands in the state before
it is over; an event is told once, by its key, whenever the watch is killed and started again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from console.common.clock import Clock
from console.common.text import one_line
from console.common.units import format_duration, plural
from console.journal import watch_record as record
from console.journal.watch_record import (
    CUT_OVER,
    DOWN,
    GARBLED,
    LOADING,
    NOT_SERVING,
    PLANNED,
    SERVING,
    SUSPECT,
    UNJUDGED,
    UP,
    WatchState,
)
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.observe import ELSE
from console.runtime import probe
from console.watch import fingerprint as prints
from console.watch.fingerprint import Print
from console.watch.look import Holder, Look
from console.watch.plan import WatchPlan
from console.watch.speed import SLACK, Figure, Interval, Shift, Speed

MARGIN_S = 120.0
"""For what a look does beside its two answers: health, load, fingerprint, and a busy machine."""
AGAIN = 0.5
"""Of the interval: when a baseline that did not answer is looked at again."""
MAX_CHANGES = 100
UNWRITTEN = "what the watch knows cannot be written down"
DOWN_KIND, BACK_KIND, SLOWER, FASTER = "baseline-down", "baseline-back", "slower", "faster"
STALE = 3.0
"""Intervals after which what an earlier watch doubted says nothing any more."""
REFUSES = (
    "HTTP 3", "HTTP 4", probe.REFUSES, probe.BUSY, probe.FAILS, probe.TLS, probe.NO_HTTP
)  # fmt: skip
"""How an answer begins that refuses or fails a request: the server is there."""
DEAD = "dead engine"
BESIDE = "the baseline is not restored beside a run of another site"
REFUSED = (
    ", and may be in its outage or need the memory alone: nobody asked for its end; the watch "
    "restores the baseline when that is over, and omni-console rollback --site FILE does so now"
)
_TITLES = {DOWN: "does not answer", GARBLED: "answers garbage"}


_STATES = {
    LOADING: Word.LOADING, SUSPECT: Word.UNKNOWN, DOWN: Word.DOWN, GARBLED: Word.GARBLED,
}  # fmt: skip
"""What a look's word says of the baseline, where it is the same for all of its details."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that an operator is told once; `key` names this very occurrence."""

    kind: str
    key: str
    title: str
    text: str
    at: float
    site: str


@dataclass(frozen=True, slots=True)
class Restored:
    """How a restore ended: whether the baseline serves, and the rollback's words. One that has not
    `begun`, as its program cannot be run, has changed nothing."""

    serving: bool
    detail: str
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Hands:
    """What a watch works with. `look` looks at the baseline; `fingerprint` gives what it runs on
    now, with gauges; `restore` rolls back and returns when that is over; `interval` is that of
    `console.bench.statistics`."""

    clock: Clock
    look: Callable[[], Look]
    fingerprint: Callable[[], tuple[Print, dict[str, float]]]
    restore: Callable[[], Restored]
    interval: Interval
    held: Callable[[], Holder | None] = lambda: None
    """Which run or rollback has the baseline now."""


class Watcher:
    """Goes on where an earlier watch of the site ended."""

    def __init__(self, plan: WatchPlan, hands: Hands, identity: tuple[int, int] = (0, 0)) -> None:
        """`identity`: pid and start time of this process."""
        self.plan, self.hands, self.clock = plan, hands, hands.clock
        base, settings = plan.sealed.baseline, plan.settings
        saved_state = record.read_all(plan.site)
        self.state, own = saved_state if saved_state is not None else (WatchState(), {})
        self.state.pid, self.state.start = identity
        self.state.at_most = settings.at_most if settings.restore else 0
        self.state.interval_s, self.state.trouble = settings.interval_s, ""
        self.state.site_reference = base.reference_tok_s
        try:
            self.speed = Speed(
                base.tolerance, base.reference_tok_s, own.get("speed"), hands.interval
            )
        except (KeyError, TypeError, ValueError):
            self.speed = Speed(base.tolerance, base.reference_tok_s, None, hands.interval)
        self.print: Print = dict(own.get("print") or {})
        self.changes: list[list[Any]] = list(own.get("changes") or [])
        self.doubtful_since = float(own.get("doubtful_since") or 0.0)
        self.down_since = float(own.get("down_since") or 0.0)
        self.loading_since = float(own.get("loading_since") or 0.0)
        self.restored_for = str(own.get("restored_for") or "")
        """What its answers said when it was last restored for it: another restart mends no more.
        "" once it was well since."""
        self._event_keys = record.event_keys(plan.site)
        self._gauges: dict[str, float] = {}
        if self.clock.now() - self.state.at > STALE * settings.interval_s:
            # the machine may have been off meanwhile: what was doubted then says nothing now
            self.doubtful_since = self.down_since = self.loading_since = 0.0

    def tick(self) -> float:
        """Look, judge, act and write down; return the seconds until the next look."""
        begun, state = self.clock.monotonic(), self.state
        seen = self.hands.look()
        at = self.clock.now()
        state.at, state.looks = at, state.looks + 1
        state.asks += seen.requested
        # what is there else is not the baseline
        if seen.word not in (PLANNED, CUT_OVER) and not seen.stranger and not seen.life:
            self._fingerprint(at)
        word = self._judged(seen, at)
        if word != state.word:
            state.word, state.since = word, at
        state.detail = seen.detail
        self._figures(seen, at)
        self._remember(
            at, "look", word=word, detail=seen.detail, tok_s=seen.tok_s,
            ttft_s=seen.ttft_s,
        )  # fmt: skip
        if (observation := evidence_of(replace(seen, word=word), at)) is not None:
            of_candidate = replace(observation, life=seen.life, cut_over=bool(seen.life))
            evidence.record(self.plan.sealed, of_candidate if seen.life else observation)
        self._availability(seen, word, at)
        if seen.other:
            self._tell_of_another(seen, at)
        interval = self.plan.settings.interval_s
        wait = interval * (AGAIN if word == SUSPECT else 1.0)
        left = max(0.0, wait - (self.clock.monotonic() - begun))
        state.next_at = self.clock.now() + left
        state.due_by = state.next_at + self._longest_look_s()
        self.save()
        return left

    def _longest_look_s(self) -> float:
        """The proof's two answers and the requests around them, each up to its timeout."""
        return 2 * self.plan.sealed.baseline.completion.timeout_s + MARGIN_S

    def save(self) -> None:
        own = {
            "speed": self.speed.to_json(), "print": self.print, "changes": self.changes,
            "doubtful_since": self.doubtful_since, "down_since": self.down_since,
            "loading_since": self.loading_since, "restored_for": self.restored_for,
        }  # fmt: skip
        with self._despite_the_disk():
            record.write(self.plan.site, self.state, own)
            if self.state.trouble.startswith(UNWRITTEN):
                self.state.trouble = ""

    @contextlib.contextmanager
    def _despite_the_disk(self) -> Iterator[None]:
        """A disk that takes nothing costs the record, never the restore."""
        try:
            yield
        except OSError as error:
            self.state.trouble = one_line(f"{UNWRITTEN}: {error.strerror or error}")

    def _remember(self, at: float, kind: str, **more: Any) -> None:
        with self._despite_the_disk():
            record.remember(self.plan.site, at, kind, **more)

    def _judged(self, seen: Look, at: float) -> str:
        """The word of a look in the light of those before it: two without an answer are down, and
        so is a load that takes longer than it may. The second one that answers garbage makes it
        garbled. A few symbols, or one token without a text, begin no doubt and confirm none."""
        if seen.word == GARBLED and seen.weak:
            return SUSPECT
        if seen.word == LOADING:
            self.loading_since = self.loading_since or at
            late = at - self.loading_since > self.plan.sealed.baseline.ready_timeout_s
            if not late:
                return LOADING  # whoever started it, a restore could only wait for it
        elif seen.word not in (SUSPECT, GARBLED):
            self.loading_since = self.doubtful_since = 0.0
            return seen.word
        doubted, self.doubtful_since = self.doubtful_since, self.doubtful_since or at
        if not doubted and seen.word != LOADING:
            return SUSPECT
        return GARBLED if seen.word == GARBLED else DOWN

    def _availability(self, seen: Look, word: str, at: float) -> None:
        if word in UP:
            self.restored_for = ""
        if word in NOT_SERVING:
            self.down_since = self.down_since or self.doubtful_since or at
            self._down(seen, at)
        elif self.down_since and (word in UP or (word == CUT_OVER and seen.requested)):
            since, self.down_since = self.down_since, 0.0
            after = f"after {format_duration(at - since)}"
            title, text = "the baseline serves again", after
            if word == CUT_OVER:
                title, text = "clients are served again", f"{after}: {seen.detail}"
                self.doubtful_since, self.restored_for = 0.0, ""
            self._tell(BACK_KIND, f"{since:.0f}", title, text, at)
        elif word in (PLANNED, CUT_OVER):
            # A run or a rollback has it: what follows is judged anew when that is over. Whoever was
            # told that it is down is told of its return, by whose hand ever.
            self.doubtful_since = 0.0
            if not self._told_down():
                self.down_since = 0.0
        elif word == UNJUDGED and _answers(self.state.detail):
            self.down_since = 0.0  # it answers, whatever it answers

    def _down(self, seen: Look, at: float) -> None:
        # what is wrong with what it answers; "" for one that gives no answer
        answers = DEAD if seen.dead else GARBLED if self.state.word == GARBLED else ""
        held = self.hands.held()
        if held is not None and held.stopped:
            # a run may have begun while this look waited for an answer, and stopped the baseline
            self.state.word, self.state.since, self.state.detail = PLANNED, at, held.words
            self.doubtful_since = 0.0
            if not self._told_down():
                self.down_since = 0.0
            return
        since = self.down_since
        when = _time(since, at)
        who = "the candidate in the baseline's place" if seen.life else "the baseline"
        self.save()  # the key of what is told is in it: a watch that is killed tells it once
        self._tell(
            DOWN_KIND, f"{since:.0f}", f"{who} {_TITLES[self.state.word]}",
            f"since {when}: {self.state.detail}", at,
        )  # fmt: skip
        allowed, today = self.state.at_most, self.state.restores_today(at)
        if not allowed or (held is not None and not held.other):
            return  # a restore would roll that run back
        if seen.stranger:
            return  # it would find its port taken
        if answers and self.restored_for == answers:
            return  # it was restored once for this, and a restart has not mended it
        if held is not None and held.alone:
            text = f"{held.words}{REFUSED}"
            self._tell(DOWN_KIND, f"{since:.0f}/beside", BESIDE, text, at)
            return
        if today >= allowed:
            self._tell(
                DOWN_KIND, f"{since:.0f}/left", "the baseline stays down",
                f"it was restored {plural(today, 'time')} within 24 hours, as often as the site "
                "allows: omni-console rollback brings it back", at,
            )  # fmt: skip
            return
        self._restore(answers, since, at)

    def _restore(self, answers: str, since: float, at: float) -> None:
        """First written down, then done: a watch that is killed meanwhile has used this one up."""
        self.state.restores = [*self.state.restores, at][-50:]
        self.state.restored += 1
        self._remember(at, "restore", detail="begun")
        self.restored_for = answers
        base = self.plan.sealed.baseline
        self.state.due_by = at + 2 * (base.ready_timeout_s + self._longest_look_s())
        self.save()
        done = self.hands.restore()
        ended = self.clock.now()
        self._remember(
            ended, "restore", detail=done.detail, seconds=round(ended - at, 1),
            serving=done.serving,
        )  # fmt: skip
        self.state.at, self.state.detail = ended, done.detail
        if not done.begun:  # the next look tries again
            self.state.restores, self.restored_for = self.state.restores[:-1], ""
            self.state.restored -= 1
            words = "the baseline stays down: it cannot be restored"
            self._tell(DOWN_KIND, f"{since:.0f}/cannot", words, done.detail, ended)
            return
        if not done.serving:
            self._tell(
                DOWN_KIND, f"{since:.0f}/failed/{self.state.restored}",
                "the baseline is still down: its restore failed", done.detail, ended,
            )  # fmt: skip
            return
        self.doubtful_since = self.loading_since = self.down_since = 0.0
        self.restored_for = ""
        self.state.word, self.state.since = SERVING, ended
        self._tell(
            BACK_KIND, f"{since:.0f}", "the baseline serves again, restored by the watch",
            f"after {format_duration(ended - since)}: {done.detail}", ended,
        )  # fmt: skip

    def _tell_of_another(self, seen: Look, at: float) -> None:
        """Another process answers; it is known by its pid, which the words begin with. That it
        answers garbage is told for itself, whenever that begins."""
        who, title = seen.other.partition(",")[0], "another process answers in the baseline's place"
        if seen.garbage:
            text = f"{seen.detail}; it is left alone: omni-console rollback says what can be done"
            self._tell(DOWN_KIND, f"other/{who}/garbage", f"{title}, and answers garbage", text, at)
            return
        from console.runtime.discovery import adoption  # memory, for as long as nobody else answers

        base = self.plan.sealed.baseline
        advice = adoption.advice(base.process, base.url)
        text = f"{seen.other}; it is left alone: {advice}"
        self._tell(DOWN_KIND, f"other/{who}", title, text, at)

    def _told_down(self) -> bool:
        return f"{DOWN_KIND}@{self.plan.site}@{self.down_since:.0f}" in self._event_keys

    def _fingerprint(self, at: float) -> None:
        """What differs from the look before; kept with the time of the look that saw it."""
        new, self._gauges = self.hands.fingerprint()
        changes = prints.changes(self.print, new) if self.print else {}
        for name, (old, now) in changes.items():
            self.changes = [*self.changes, [at, name, old, now]][-MAX_CHANGES:]
            self._remember(at, "change", name=name, old=old, new=now)
        if changes:
            words = [prints.change_words(name, *sides) for name, sides in changes.items()]
            self.state.changed, self.state.changed_at = one_line("; ".join(words), 400), at
        # What cannot be read at a moment (a server that is down) keeps its last value, but files
        # are those of the process that was read last.
        self.print = _merged(self.print, new)

    def _figures(self, seen: Look, at: float) -> None:
        state = self.state
        if seen.requested and seen.tok_s:
            state.tok_s, state.ttft_s, state.asked_at = seen.tok_s, seen.ttft_s, at
            shift = self.speed.add(Figure(at, seen.tok_s, self._gauges))
            if shift is not None:
                self._shifted(shift, at)
        state.level, state.slow_since = self.speed.level, self.speed.slow_since
        state.reference, state.learning = self.speed.accepted, self.speed.lacking

    def _shifted(self, shift: Shift, at: float) -> None:
        if shift.good is None:
            self.state.why = ["it was when the watch began: nothing is known of the time before"]
            rates = f"{shift.after:.2f} tok/s, and the reference is {shift.before:g}"
            title = "the baseline is slower than the site's reference"
            self._tell(SLOWER, f"{shift.since:.0f}", title, rates, at)
            return
        why = self._why(shift)
        self.state.why = why
        kind = SLOWER if shift.slower else FASTER
        again = " again" if shift.back else ""
        rates = f"{shift.before:.2f} → {shift.after:.2f} tok/s"
        title = f"the baseline is {kind}{again} since {_time(shift.since, at)}"
        self._tell(kind, f"{shift.since:.0f}", title, f"{rates}: {'; '.join(why)}", at)

    def _why(self, shift: Shift) -> list[str]:
        """What changed between the last good figures and the first ones of the new level."""
        slack = SLACK * self.plan.settings.interval_s
        first = (shift.good or shift.since) - slack
        near = [row for row in self.changes if first <= row[0] <= shift.since + slack]
        ends: dict[str, tuple[str, str]] = {}
        for _, name, old, new in near:
            ends[name] = (ends[name][0] if name in ends else old, new)
        reasons = [
            prints.change_words(name, old, new) for name, (old, new) in ends.items() if old != new
        ]
        reasons += prints.gauge_words(shift.gauges)
        return reasons or ["nothing that the watch looks at has changed"]

    def _tell(self, kind: str, occurrence: str, title: str, text: str, at: float) -> None:
        key = f"{kind}@{self.plan.site}@{occurrence}"
        if key in self._event_keys:
            return
        with self._despite_the_disk():  # what cannot be written down now is told by a later look
            record_event(Event(kind, key, title, one_line(text, 600), at, self.plan.site))
            self._event_keys.add(key)
            self.state.events[kind] = self.state.events.get(kind, 0) + 1


def evidence_of(seen: Look, at: float) -> Evidence | None:
    """What a look says of the baseline, to whoever shows its state; None for one that says nothing
    of it: somebody else has it, or it computes in silence."""
    if seen.word == SERVING and seen.requested:
        return Evidence(Kind.PROOF, Word.SERVING, at, Witness.WATCH, seen.detail, seen.tok_s)
    if seen.word in UP:
        return Evidence(Kind.ANSWERS, Word.SERVING, at, Witness.WATCH, seen.detail)
    if seen.word == CUT_OVER and seen.requested:
        return Evidence(Kind.AWAY, Word.CUT_OVER, at, Witness.WATCH, seen.detail)
    if seen.word == UNJUDGED and seen.slow:
        detail = f"it computes, slower than its reference: {seen.detail}"
        return Evidence(
            Kind.ANSWERS, Word.SERVING, at, Witness.WATCH, detail, degraded=True
        )  # fmt: skip
    if seen.other:
        return _of_another(seen, at)
    if seen.stranger:
        return Evidence(Kind.AWAY, Word.DOWN, at, Witness.WATCH, seen.detail)
    if seen.word == UNJUDGED and seen.detail.startswith(ELSE):
        # whatever answered has proven nothing of the baseline, and failed nothing for it
        return Evidence(Kind.AWAY, Word.UNKNOWN, at, Witness.WATCH, seen.detail)
    refuses = seen.word == UNJUDGED and seen.detail.startswith(REFUSES)
    word = _STATES.get(seen.word) or (Word.REFUSING if refuses else None)
    if word is None:
        return None
    kind = Kind.FAILED if seen.requested else Kind.AWAY
    return Evidence(kind, word, at, Witness.WATCH, seen.detail, dead=seen.dead)


def _of_another(seen: Look, at: float) -> Evidence | None:
    """What a process with other flags has shown of itself; None where it was not asked."""
    if seen.garbage:
        return Evidence(
            Kind.FAILED, Word.GARBLED, at, Witness.WATCH, seen.garbage, other=seen.other
        )  # fmt: skip
    if not seen.requested:
        return None
    return Evidence(Kind.ANSWERS, Word.SERVING, at, Witness.WATCH, other=seen.other)


def _answers(detail: str) -> bool:
    """Whether the words about an unjudged server say that an answer, or a part of one, has come."""
    return detail.startswith((*REFUSES, probe.SLOW)) or probe.ALL_THE_SAME in detail


def record_event(event: Event) -> None:
    """Write an event down, once; the loop has it posted from there. Raises OSError."""
    record.remember(
        event.site, event.at, "event", event=event.kind, key=event.key, title=event.title,
        text=event.text,
    )  # fmt: skip


def _merged(old: Print, new: Print) -> Print:
    if "program" in new:
        old = {k: v for k, v in old.items() if k != "program" and not k.startswith("library ")}
    return {**old, **new}


def _time(at: float, now: float) -> str:
    """The time of day; with the date where that is not today's."""
    then, today = (time.strftime("%Y-%m-%d", time.localtime(moment)) for moment in (at, now))
    clock = time.strftime("%H:%M", time.localtime(at))
    return clock if then == today else f"{then} {clock}"
