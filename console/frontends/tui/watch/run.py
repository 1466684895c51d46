"""The run on show: a thread reads its journal and delivers frozen snapshots.

It follows a chosen run, or the most relevant one: this user's live one, else the newest. What is
slow or may hang (asking the runner) has a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.clock import SystemClock
from console.common.errors import ConsoleError
from console.common.text import cleaned, one_line
from console.common.units import number
from console.frontends.tui.watch.watch import Watch
from console.host import process
from console.journal.breach import tell
from console.journal.lock import closer_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import (
    INTERRUPTED,
    LogFile,
    Source,
    copy_of,
    relay_state,
    served_since,
    settle,
    silence_of,
    stamp,
    word_of,
)
from console.journal.run_view import RunView
from console.journal.state import STANDING, RunState
from console.recovery.rollback import records as pointers
from console.recovery.rollback.progress import is_of_runner
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runner.control import send

NONE, UNREADABLE = "none", "unreadable"
POINTER_S = 1.0
DESK_S = 2.0
CONTROL_LIMIT_S = 1.0
AGAIN_S = 0.05
SELDOM = 4
SILENCE_S = 4.0
"""Seconds between two questions whether the candidate of a cutover answers; the first frame waits
for none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The run on show at one moment; immutable.

    `word`: the state, or `interrupted` (the runner is gone and it is not over; `rolling_back` while
    the rollback that ended it goes on), `unreadable`, or `none`. `live`: it is this user's live
    run. `control`: the runner's own word on where it stands (state, reason, step, attempt,
    evidence, mode, confirm), {} without an answer; `silent`: it lives but gave none. `rungs`: the
    newest emergency's lines. `trouble`: why the journal cannot be read. `logs`: the log files, the
    most interesting first. All text is clean.
    """

    run: RunDir | None = None
    view: RunView = field(default_factory=RunView)
    word: str = NONE
    alive: bool = False
    live: bool = False
    control: dict[str, Any] = field(default_factory=dict)
    stages: tuple[dict[str, Any], ...] = ()
    is_rolling_back: bool = False
    restore_s: float | None = None
    sealed: SealedPlan | None = None
    trouble: str = ""
    silent: bool = False
    logs: tuple[LogFile, ...] = ()

    def clock(self, now: float) -> float:
        """Until when clocks of steps count, Unix seconds: a step ends with its runner."""
        if self.alive:
            return now
        ended = number(self.stages[0].get("at")) if self.stages else None
        return min(now, ended or self.view.at or now)

    @property
    def at(self) -> str:
        """The step before which a paused run stands; "" while one runs."""
        return str(self.control.get("step") or "") if self.word == "paused" else ""

    @property
    def rollback(self) -> str:
        """A rollback under way: `rolling back` after an alarm, `restoring` if the runner brings the
        baseline back as planned; "" for none."""
        if not self.is_rolling_back:
            return ""
        trigger = str(self.stages[-1].get("trigger", "")) if self.stages else ""
        return "restoring" if is_of_runner(trigger) else "rolling back"


class RunWatch(Watch[Snapshot]):
    """Delivers a Snapshot whenever something changed."""

    def __init__(
        self,
        deliver: Callable[[Snapshot], None] = lambda snapshot: None,
        run: RunDir | None = None,
        poll_s: float = 0.2,
        attended: Callable[[], bool] = lambda: False,
    ) -> None:
        """`attended`: whether an operator who may act is there, which renews the run's lease."""
        super().__init__("run-watch", deliver, poll_s)
        self._choice = _Choice(run)
        self._source: Source | None = None
        self._asker = _Asker(self._wake.set, attended)
        self._wanted: list[RunDir | None] = []
        self._key: tuple[object, ...] = ()
        self._silent, self._asked_at = "", time.monotonic()

    def show(self, run: RunDir | None) -> None:
        """Show this run from now on; None: the most relevant one."""
        self._wanted.append(run)
        self._wake.set()

    def look(self) -> None:
        """Look now, not at the next turn: a verb was sent."""
        self._asker.forget()
        super().look()

    def _run(self) -> None:
        super()._run()
        self._drop()

    def _look(self) -> None:
        try:
            self._read()
        except Exception as error:  # the thread's last line of defence: it must go on looking
            words = one_line(f"{type(error).__name__}: {error}")
            self._say(Snapshot(word=UNREADABLE, trouble=words), (words,))

    def _pause(self) -> float:
        """Wait long for a finished run; the runner's answers wake it for a waiting one."""
        source = self._source
        still = source is None or not _goes_on(source) or source.view.state in STANDING
        return self._poll_s * (SELDOM if still else 1)

    def _read(self) -> None:
        while self._wanted:
            self._choice.fix(self._wanted.pop(0))
        self._choice.look(self._source)
        run = self._choice.run
        if self._source is None or run is None or self._source.run.path != run.path:
            self._drop()
            self._source = Source(run, SystemClock()) if run is not None else None
        source = self._source
        if source is None:
            self._say(Snapshot(), (None,))
            return
        source.look()
        self._asker.look(source)
        self._say_source(source)

    def _say_source(self, source: Source) -> None:
        unread = source.trouble and not source.view.seq
        word = UNREADABLE if unread else word_of(source.run, source.view, source.alive)
        if word == INTERRUPTED and (source.is_rolling_back or closer_alive(source.run)):
            word = str(RunState.ROLLING_BACK)
        live = source.alive and self._choice.is_live(source.run)
        control, silent = self._asker.answer(source)
        back_at = served_since(source.run, source.view, source.alive)
        relay_is = relay_state(source.view, source.alive)
        silent_at = self._silence(source)
        key = (
            source.run.path, source.view.seq, word, source.alive, live, str(control), silent,
            source.stages, source.is_rolling_back, source.restore_s, source.trouble,
            id(source.sealed), source.logs, back_at, relay_is, silent_at,
        )  # fmt: skip
        if key == self._key:
            return
        view = copy_of(source.view)
        settle(view, back_at, relay_is)
        if silent_at and view.cutover:
            view.cutover = view.cutover.changed(silent=silent_at)
        snapshot = Snapshot(
            run=source.run, view=view, word=word, alive=source.alive, live=live,
            control=control, stages=source.stages, is_rolling_back=source.is_rolling_back,
            restore_s=source.restore_s, sealed=source.sealed, trouble=source.trouble, silent=silent,
            logs=source.logs,
        )  # fmt: skip
        self._say(snapshot, key)

    def _silence(self, source: Source) -> str:
        """Whether the candidate of a cutover is silent whose runner is gone: nobody else tells."""
        if source.alive or not source.view.cutover:
            self._silent = ""
        elif time.monotonic() - self._asked_at >= SILENCE_S:
            self._silent = silence_of(source.run)
            self._asked_at = time.monotonic()
        return self._silent

    def _say(self, snapshot: Snapshot, key: tuple[object, ...]) -> None:
        if key != self._key:
            self._key = key
            self._publish(snapshot)

    def _drop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source, self._silent = None, ""
        self._asker.forget()


class _Choice:
    """Which run is shown. One chosen after its end stays; any other is replaced, once it has ended,
    by a live run of this user."""

    def __init__(self, run: RunDir | None) -> None:
        self._live = ""
        self.fix(run)

    def fix(self, run: RunDir | None) -> None:
        """Show this one from the next look on; None: the most relevant one."""
        self.run = run
        self._asked_for = run is not None
        self._stays = False
        self._looked = float("-inf")
        self._stamp: tuple[int, ...] = ()

    def is_live(self, run: RunDir) -> bool:
        """Whether this user's pointer names it and its runner lives."""
        return self._live == run.id

    def look(self, source: Source | None) -> None:
        """Choose again, at most once in POINTER_S; `source` is the last one read."""
        on_show = source if source is not None and source.run is self.run else None
        if on_show is not None and self._asked_for:
            self._asked_for, self._stays = False, not _goes_on(on_show)
        now = time.monotonic()
        if now - self._looked < POINTER_S:
            return
        self._looked = now
        mine = pointers.read(os.getuid())
        alive = mine is not None and process.alive(mine.pid, mine.start)
        pointed = RunDir(Path(mine.run_dir)) if mine is not None else None
        self._live = pointed.id if pointed is not None and alive else ""
        ended = on_show is not None and not self._stays and not _goes_on(on_show)
        if self.run is None or (ended and not self.run.path.exists()):
            here = pointed is not None and pointed.path.exists()
            self.run = pointed if here else self._newest()
        elif ended and alive and self._live != self.run.id:
            self.run = pointed

    def _newest(self) -> RunDir | None:
        now = stamp(paths.runs_dir())
        if now == self._stamp:
            return None
        self._stamp = now
        return next((run for run in all_runs() if run.journal.exists()), None)


def _goes_on(source: Source) -> bool:
    """Whether it still changes: it runs, or a rollback is under way for it."""
    return source.alive or source.is_rolling_back


class _Asker:
    """Asks the runner where it stands, one question at a time, in a thread that may hang."""

    def __init__(self, answered: Callable[[], None], attended: Callable[[], bool]) -> None:
        self._answered = answered
        self._attended = attended
        self._asked_at = float("-inf")
        self._seq = -1
        self._busy = False
        self._of: Path | None = None
        self._control: dict[str, Any] = {}
        self._silent = False

    def forget(self) -> None:
        self._asked_at = float("-inf")

    def look(self, source: Source) -> None:
        """Ask when due: every second, and at once if the journal says that it waits. If the runner
        is gone, tell its sentinel that somebody is there."""
        if self._busy or not (source.alive or source.view.outage):
            return
        behind = source.alive and source.view.state in STANDING and self._behind(source)
        if time.monotonic() - self._asked_at < (AGAIN_S if behind else DESK_S):
            return
        self._asked_at, self._seq, self._busy = time.monotonic(), source.view.seq, True
        what = self._ask if source.alive else self._attend
        asker = threading.Thread(target=what, args=(source.run,), name="ask", daemon=True)
        try:
            asker.start()
        except RuntimeError:  # no thread left: the next look asks
            self._busy = False

    def answer(self, source: Source) -> tuple[dict[str, Any], bool]:
        """The newest answer of this run's runner, and whether it lives but did not answer."""
        if not source.alive or self._of != source.run.path:
            return {}, False
        return self._control, self._silent

    def _behind(self, source: Source) -> bool:
        """Whether an answer is older than the journal, which is written just before it."""
        state = self._control.get("state") if self._of == source.run.path else None
        return self._seq != source.view.seq or state != str(source.view.state)

    def _attend(self, run: RunDir) -> None:
        if self._attended():
            tell(run, {"do": "attended"})
        self._busy = False

    def _ask(self, run: RunDir) -> None:
        control: dict[str, Any] = {}
        with contextlib.suppress(ConsoleError, OSError):
            request = {"verb": "status", "attached": self._attended()}
            control = dict(send(run.socket, request, CONTROL_LIMIT_S))
        good = control.pop("ok", False) is True
        control.pop("error", None)
        control.pop("lease", None)  # it counts down: the guard's page says it, and redraws one line
        control = cleaned(control) if good else {}
        self._control, self._silent, self._of = control, not good, run.path
        self._busy = False
        self._answered()
