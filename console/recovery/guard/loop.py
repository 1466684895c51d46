"""What the sentinel does between its first tick and its last; time and waiting are handed in."""

from __future__ import annotations

import gc
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.text import one_line
from console.host import process
from console.recovery.guard import config as sheets
from console.recovery.guard.breach import Aftermath, Page, Scribe, held, lease_page, page_of, reap
from console.recovery.guard.config import SHEET, Inbox, Sheet, defaults
from console.recovery.guard.decide.policy import POLL_S, Breach, Judge, Judgement, Lease
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import Alive, deny_of
from console.recovery.guard.observe.collect import Calm, Watch
from console.recovery.guard.observe.memory import FastReader
from console.recovery.guard.observe.quick import gap_s
from console.recovery.guard.observe.snapshot import Look
from console.recovery.guard.record import status
from console.recovery.guard.record.recorder import Recorder
from console.recovery.guard.self_protection import Protections
from console.recovery.rollback import trigger

SECOND_S = 1.0
COLLECT_S = 60.0
ADVISED_S = 5.0
"""A rollback says once a second that it climbs; a word that nobody repeats disarms nothing."""
LEFT_S = 60.0
"""With runner and ladder gone and nothing alive it watches for this long, and then ends."""
Wait = Callable[[list[int], float], bool]
"""Wait for something to read, so many seconds at most; whether there is something."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a sentinel works with; `spawn` starts `omni-console rollback` for a sheet, if it can."""

    inbox: Inbox
    watch: Watch
    ring: Recorder
    killer: Killer
    alive: Alive
    clock: Clock
    spawn: Callable[[Sheet], bool]


def poll(descriptors: list[int], seconds: float) -> bool:
    """See `Wait`."""
    return bool(select.select(descriptors, [], [], max(0.0, seconds))[0])


def judge_of(sheet: Sheet, fast: FastReader, now: float) -> Judge:
    """Raises OSError where memory is not known, ValueError for a limit that is none."""
    memory = fast.read(now)
    if memory is None:
        raise OSError(fast.why)
    found = defaults(memory.total, memory.swap_total, fast.bound.least)
    return Judge(sheet.limits, found, sheet.envelope, sheet.gpus)


def limits_of(judge: Judge, sheet: Sheet) -> list[dict[str, Any]]:
    """Everything that is judged, for the page."""
    return [one.to_json() for one in (*judge.defaults.limits, *sheet.limits)]


def go_on(judge: Judge, before: Judge, look: Look) -> Judge:
    """A new judge goes on where the one before stood."""
    judge.advisory(before.advised)
    if before.armed:
        judge.sight.grown_from = before.sight.grown_from
        if judge.forecast.envelope == before.forecast.envelope:
            judge.resume(before.base)
        judge.arm(look)
        judge.breach = before.breach
    return judge


def ladder_gone(directory: Path) -> bool:
    """Whether no ladder waits; one that does is asked to go, and goes if the baseline serves."""
    if not trigger.is_warm(directory):
        return True
    trigger.trigger(directory, trigger.LEAVE)
    return False


class Duty:
    """One sentinel at work; `run` returns when it is over."""

    def __init__(self, sheet: Sheet, means: Means, wait: Wait = poll) -> None:
        """Raises ValueError for limits that cannot be judged, OSError without figures of memory."""
        self.sheet = sheet
        self.protections = Protections()
        self.over = False
        self._means, self._wait = means, wait
        self._clock = means.clock
        self._judge = judge_of(sheet, means.watch.fast, means.clock.monotonic())
        self._judge.resume(means.ring.last.get("base"))
        self._limits = limits_of(self._judge, self.sheet)
        self._lease = Lease(sheet.lease_s)
        self._scribe, self._calm = Scribe(means.ring, means.clock), Calm()
        self._aftermath: Aftermath | None = None
        self._known: set[str | tuple[int, int]] = set()
        self._error, self._wait_s = "", 0.0
        self._asked_to_arm = self._outage = False
        self._second_at = self._advised_at = float("-inf")
        self._collect_at = self._left_at = self._clock.monotonic()

    def run(self) -> None:
        """Until it is over; a tick that came late is not made up for."""
        due = self._clock.monotonic()
        while not self.over:
            self._go_on_after(self.tick)
            due = max(due + self._wait_s, self._clock.monotonic())
            while (left := due - self._clock.monotonic()) > 0 and not self.over:
                if not self._go_on_after(self._hear, left):
                    self._clock.sleep(min(left, POLL_S))

    def _hear(self, seconds: float) -> None:
        if self._wait([self._means.inbox.descriptor, *self._means.watch.descriptors()], seconds):
            self._listen()

    def close(self) -> None:
        """Let go of what it opened itself; its means are their owner's."""
        self._scribe.close()

    def _go_on_after(self, act: Callable[..., None], *given: float) -> bool:
        """A guard that stumbles goes on. Its page grows old meanwhile, which others see."""
        try:
            act(*given)
        except Exception as error:
            self._wait_s = POLL_S
            words = one_line(f"{type(error).__name__}: {error}")
            if words != self._error:
                self._error = words
                self._means.ring.event("error", words)
            return False
        return True

    def rehearse(self) -> None:
        """Walk every ordinary path once, so that its pages are there when memory is locked."""
        self._reread()
        self._listen()
        self.tick()

    # -- one tick --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look, judge, record; act where it has to."""
        means, now = self._means, self._clock.monotonic()
        if means.alive.tick(now):
            self._targets_changed()
        if now - self._second_at >= SECOND_S:
            self._second(now)
        memory = means.watch.memory()
        over = means.watch.quick.tick(memory.at if memory is not None else now)
        if not over and self._aftermath is None and self._calm.holds(memory):
            self._scribe.sample(memory)
        else:
            self._look(means.watch.look(memory))
        self._wait_s = means.watch.quick.wait_s(self._calm.wait_s)

    def _look(self, look: Look) -> None:
        self._arm(look)
        judged = self._judge.look(look)
        self._calm.judged(self._judge, look.memory, judged)
        if judged.fresh and judged.breach is not None:
            self._strike(judged.breach, look)
        self._scribe.record(look, judged, lambda: self._page(look, judged))
        if self._aftermath is not None and not self._aftermath.over:
            self._aftermath.look()

    def _page(self, look: Look, judged: Judgement) -> dict[str, Any]:
        copied = self._means.watch.outer.copied_at
        left = None if self._judge.advised else self._lease.left(look.at)
        return status.status(
            look, judged,
            countdown=self._judge.sight.countdown,
            limits=self._limits,
            protections=self.protections,
            lease=(left, self._lease.is_attended(look.at)),
            more={
                "advisory": self._judge.advised, "armed": self._judge.armed,
                "acted": self._aftermath is not None, "outage": self._outage,
                "own": self._scribe.own, "base": self._judge.base,
                "targets": [one.title for one in self._means.alive.targets],
                "spared": list(self._means.alive.refused),
                "trouble": list(self._means.watch.outer.troubles),
                "copied_s": None if copied is None else status.age(look.at, copied),
            },
        )  # fmt: skip

    # -- once a second ---------------------------------------------------------------------------

    def _second(self, now: float) -> None:
        means, self._second_at = self._means, now
        self._calm.forget()
        means.watch.tend()
        reap(means.killer, means.ring.event)
        if means.alive.grew():
            self._reread()
        elif means.alive.second(now):
            self._targets_changed()
        means.watch.second()
        if self._judge.advised and now - self._advised_at > ADVISED_S:
            self._judge.advisory(False)
            means.ring.event("acting", "nobody says any more that a rollback climbs")
        if self._lease.expired(now) and not (self._judge.advised or self._aftermath):
            self._begin(what := lease_page(self.sheet.lease_s, now, self._clock.now()))
            means.ring.event("lease", one_line(what.reason))
        self._scribe.second(means.watch.look())
        if now - self._collect_at >= COLLECT_S:
            self._collect_at = now
            gc.collect()  # what was there at the start is frozen: little is left to look at
        self._maybe_end(now)

    def _maybe_end(self, now: float) -> None:
        """Nobody needs it any more: no runner, nothing alive, no lease, and no ladder."""
        means, runner = self._means, self.sheet.runner
        counting = self._lease.left(now) is not None and not self._aftermath
        busy = self._aftermath is not None and not self._aftermath.over
        if process.alive(*runner) or means.alive.any or counting or busy:
            self._left_at = now
        elif now - self._left_at >= LEFT_S and ladder_gone(self.sheet.rollback_dir):
            self._end("nothing is left to watch")

    def _end(self, words: str) -> None:
        self._means.ring.event("end", words)
        self.over = True

    # -- what is alive ---------------------------------------------------------------------------

    def _reread(self) -> None:
        """The records anew."""
        alive, killer = self._means.alive, self._means.killer
        killer.deny = alive.read(lambda all: deny_of(self.sheet, all), self._clock.monotonic())
        self._targets_changed()

    def _targets_changed(self) -> None:
        means = self._means
        self._calm.forget()
        means.watch.tell(self.sheet, means.ring.path, means.alive.targets)
        means.watch.second()

    def _arm(self, look: Look) -> None:
        """One kill an arming; a new arming begins when something new of the run lives, and after
        a breach only when the runner says so and the ladder has been called."""
        alive = self._means.alive
        if not alive.armed(look.at):
            struck = self._judge.breach and self._aftermath and not self._aftermath.over
            if not struck and self._judge.disarm():
                self._means.ring.event("disarmed", "nothing of the run is alive")
            self._known.clear()
            self._asked_to_arm = False
            return
        now = {one.container or (one.pid, one.start) for one in alive.targets}
        before = self._aftermath
        if now <= self._known or (before and not (self._asked_to_arm and before.over)):
            return
        self._known = now
        self._aftermath, self._asked_to_arm = None, False
        self._judge.arm(look)
        self._means.ring.event("armed", one_line(", ".join(one.title for one in alive.targets)))

    def _strike(self, breach: Breach, look: Look) -> None:
        """The first blow. Before it only what costs some 50 µs and no disk: what is about to
        happen, since whoever is killed a moment later says nothing any more."""
        means, wall = self._means, self._clock.now()
        what = page_of(breach, wall)
        aftermath = self._begin(what)
        try:
            means.ring.event("breach", one_line(what.reason))
            what.held = held(means.alive.targets, look.loads, look.at, means.watch.quick.held)
        finally:
            aftermath.strike(means.killer, means.alive.targets)
        more = means.watch.quick.points(breach.limit, breach.of)
        what.data["curve"] = self._scribe.curves.of(breach, self._judge.sight, more, wall)
        what.data["gap_s"] = round(gap_s(more, breach), 4)

    def _begin(self, what: Page) -> Aftermath:
        self._asked_to_arm = False
        self._aftermath = Aftermath(
            self.sheet, what, self._scribe.window, self._clock, self._means.ring.event,
            lambda: self._means.spawn(self.sheet),
        )  # fmt: skip
        return self._aftermath

    def _listen(self) -> None:
        if self._means.watch.tend():
            self._calm.forget()
        for message in self._means.inbox.read():
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        now, word, on = self._clock.monotonic(), message["do"], message.get("on") is True
        if word == "beat":  # the one word that nothing has to be judged for
            self._means.watch.beat_at = now
            return
        self._calm.forget()
        if word == "arm":
            # what begins while a ladder is being called is the ladder's to end
            self._asked_to_arm = self._aftermath is None or self._aftermath.over
            self._reread()
        elif word == "sheet":
            self._take_sheet()
        elif word == "advisory":
            self._advised_at = now
            self._judge.advisory(on)
        elif word == "outage":
            self._outage = on
            self._lease.outage(on, now)
        elif word == "attended":
            self._lease.attended(now)
        elif word == "quit":
            self._end("the run is over")

    def _take_sheet(self) -> None:
        """A sheet that cannot be used is said, and the one of before goes on."""
        try:
            fresh = sheets.read(self.sheet.directory / SHEET)
            if fresh.run_id != self.sheet.run_id:
                raise ValueError("the sheet is another run's")
            same = (fresh.limits, fresh.envelope, fresh.gpus) == (
                self.sheet.limits, self.sheet.envelope, self.sheet.gpus,
            )  # fmt: skip
            judge = self._judge
            if not same:
                made = judge_of(fresh, self._means.watch.fast, self._clock.monotonic())
                judge = go_on(made, self._judge, self._means.watch.look())
        except (OSError, ValueError) as error:
            self._means.ring.event("refused", one_line(f"a new sheet: {error}"))
            return
        self.sheet, self._judge = fresh, judge
        self._limits = limits_of(self._judge, self.sheet)
        self._lease.length_s = max(0.0, fresh.lease_s)
        self._reread()
