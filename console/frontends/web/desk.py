"""What the status page asks for: the watchers of the screens, and the verbs that it may send.

The watchers run only while a page looks. A verb is for the run, step, attempt and evidence that the
page showed; where something newer is there, it is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from console.common.clock import Clock, SystemClock
from console.common.text import clean
from console.frontends.tui.watch.actions import ask, why_not
from console.frontends.tui.watch.baseline import BaselineView
from console.frontends.tui.watch.emergency import Press
from console.frontends.tui.watch.run import UNREADABLE, Snapshot
from console.frontends.tui.watch.watchers import Watchers, load
from console.frontends.web.facts import MAX_TYPED, Seen, bound_to, facts
from console.host import process  # noqa: F401: a press may come when no file is there
from console.host.sample import Sample
from console.journal.run_dir import RunDir
from console.recovery.rollback import records

THERE_S = 10.0
"""Seconds after a look for which somebody counts as looking, which renews a lease."""
REST_S = 60.0
"""Seconds without a look after which the watchers end."""
VERBS = ("approve", "reject", "rollback")
READONLY = "read-only: `omni-console web --write` lets this page answer and roll back"
NEWER = "something newer is there: look at it, then answer"
UNREAD = Snapshot(word=UNREADABLE, trouble="the disk has not answered yet")
"""Shown before the first look has ended, which a disk may hold up for long: whether a run lives is
not known then."""


class Desk:
    """Looks and verbs of every page together; its methods may be called in any thread."""

    def __init__(
        self, *, site: str | None, write: bool, clock: Clock | None = None,
        watch: Callable[..., Watchers] = Watchers,
    ) -> None:  # fmt: skip
        load()  # now: an emergency may come when the program's files are gone
        self.write = write
        self._site, self._watch = site, watch
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._watchers: Watchers | None = None
        self._snapshot = UNREAD
        self._baseline: BaselineView | None = None
        self._sample: Sample | None = None
        self._press: Press | None = None
        self._pressed_for: str | None = None
        self._looked = float("-inf")

    # -- watching ----------------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        """Everything that the page shows now."""
        watchers, shot = self._awake(), self._snapshot
        seen = Seen(
            shot, self._baseline, self._sample, watchers.guard.latest, self._answered(shot),
            self._clock.now(), self._looked,
        )  # fmt: skip
        return facts(seen, write=self.write)

    def _answered(self, shot: Snapshot) -> Press | None:
        """The rollback that a page asked for; None once it is over and something newer is there: it
        would say that the baseline serves while another rollback brings it back."""
        press = self._press
        if press is None or not press.progress.over:
            return press
        newer = shot.is_rolling_back or bound_to(shot)["run"] != self._pressed_for
        return None if newer else press

    def _awake(self) -> Watchers:
        """The watchers, begun if need be; they stay for a while."""
        with self._lock:
            self._looked = self._clock.monotonic()
            if self._watchers is None:
                made = self._watch(
                    site=self._site, readonly=not self.write, there=self._somebody_looks
                )
                self._snapshot = made.first() or UNREAD
                self._watchers = made
                made.start(
                    self._run_seen, self._baseline_seen, self._sample_seen, lambda recorded: None
                )
            return self._watchers

    def _somebody_looks(self) -> bool:
        return self._clock.monotonic() - self._looked < THERE_S

    def _run_seen(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if self._watchers is not None:
            self._watchers.follow(snapshot)

    def _baseline_seen(self, view: BaselineView) -> None:
        self._baseline = view

    def _sample_seen(self, sample: Sample) -> None:
        self._sample = sample

    def rest(self) -> None:
        """End the watchers if nobody has looked for long, and no rollback is being answered."""
        with self._lock:
            idle = self._clock.monotonic() - self._looked >= REST_S
            if not idle or (self._press is not None and not self._press.progress.over):
                return
            watchers = self._forget()
        if watchers is not None:
            watchers.close()

    def close(self) -> None:
        """End the watchers; runs and rollbacks go on."""
        with self._lock:
            watchers = self._forget()
        if watchers is not None:
            watchers.close()

    def _forget(self) -> Watchers | None:
        watchers, self._watchers = self._watchers, None
        self._baseline = self._sample = self._press = None
        return watchers

    # -- verbs -------------------------------------------------------------------------------

    def tell(self, message: Mapping[str, Any]) -> str:
        """Send a verb of a page; "" when it was accepted, else why not, clean."""
        verb = message.get("verb")
        if not self.write:
            return READONLY
        if verb not in VERBS:
            return "only approve, reject and rollback can be asked for here"
        shown = self._watchers is not None
        watchers, snapshot = self._awake(), self._snapshot
        if verb == "rollback":
            return self._roll_back(watchers, snapshot, message.get("run"), shown=shown)
        seen = bound_to(snapshot)
        if any(message.get(name) != seen[name] for name in seen):
            return NEWER
        if no := why_not(snapshot, verb, keys=False):
            return clean(no, 300)
        why, confirm = (
            clean(str(message.get(name) or ""), MAX_TYPED) for name in ("why", "confirm")
        )
        no = ask(snapshot, verb, why=why, confirm=confirm)
        watchers.watch.look()
        return no

    def _roll_back(
        self, watchers: Watchers, snapshot: Snapshot, run: object, *, shown: bool
    ) -> str:
        """Roll back as the emergency key does, unless another run than the one shown would be
        ended. Where no run can be read, and pages were shown that, there may be one."""
        unread = shown and snapshot.word == UNREADABLE
        if run != bound_to(snapshot)["run"] or (not unread and _live() not in (None, run)):
            return NEWER
        self._press = watchers.emergency.press()
        self._pressed_for = bound_to(snapshot)["run"]
        return ""


def _live() -> str | None:
    """The id of this user's live run, which a rollback would end."""
    mine = records.read(os.getuid())
    if mine is None or not process.alive(mine.pid, mine.start):
        return None
    return RunDir(Path(mine.run_dir)).id
