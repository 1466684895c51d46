"""Reading one run's files, each only when it changed: journal, live list, ladder, sealed plan."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.host import process
from console.journal.cleaned import cleaned, cleaned_event
from console.journal.liveness import ladder_busy
from console.journal.logs import LogFile, log_files
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView, fold
from console.journal.store import Reader
from console.recovery.rollback import live, restore
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.progress import is_runners, read_lines
from console.recovery.rollback.sealed_plan import SealedPlan

AT_LEAST_S = 2.0
"""The journal is asked this often whatever its files look like: a change may leave no mark."""
LOGS_S = 1.0
"""How often it is looked which logs there are, at most."""
"""How the trigger of a ladder begins that the runner itself asked for: no emergency."""
Line = dict[str, Any]
Stamp = tuple[int, ...]


def stamp(*paths: Path) -> Stamp:
    """Times and sizes of files; what is not there counts as zero."""
    found: list[int] = []
    for path in paths:
        try:
            info = os.stat(path)
        except OSError:
            found += [0, 0, 0]
        else:
            found += [info.st_mtime_ns, info.st_size, info.st_ino]
    return tuple(found)


class Source:
    """One run, read by one thread; `view` is that thread's own, `copy_of` makes others."""

    def __init__(self, run: RunDir, clock: Clock) -> None:
        self.run = run
        self.view = RunView()
        self.trouble = ""
        self.alive = False
        self.rungs: tuple[Line, ...] = ()
        self.climbing = False
        self.sealed: SealedPlan | None = None
        self.restore_s: float | None = None
        self.logs: tuple[LogFile, ...] = ()
        self._clock = clock
        self._reader = Reader(run.journal)
        self._files = (run.journal, run.path / "journal.db-wal")
        self._stamps: dict[str, Stamp] = {}
        self._asked = self._listed = float("-inf")
        self._runner: tuple[int, int] | None = None
        self._listed_for: tuple[int, int] | None = None
        self._lines: list[Line] = []
        self._offset = 0

    def look(self) -> None:
        """Read what changed since the last look."""
        # first: a runner that ends after this look has written its end before the next one
        self._look_alive()
        self._look_journal()
        self._look_ladder()
        self._look_sealed()
        self._look_logs()

    def close(self) -> None:
        self._reader.close()

    def _changed(self, name: str, *paths: Path) -> bool:
        now = stamp(*paths)
        if self._stamps.get(name) == now:
            return False
        self._stamps[name] = now
        return True

    def _look_alive(self) -> None:
        if self._changed("live", self.run.live):
            runners = [e for e in live.read(self.run.live) if e.kind == "runner"]
            self._runner = (runners[-1].pid, runners[-1].start) if runners else None
        before = self.alive
        self.alive = self._runner is not None and process.alive(*self._runner)
        if before and not self.alive:
            self._asked = float("-inf")  # its last word is there, whatever the file times say

    def _look_journal(self) -> None:
        now = self._clock.monotonic()
        changed = self._changed("journal", *self._files)
        if not changed and now - self._asked < AT_LEAST_S:
            return
        self._asked = now
        try:
            events = self._reader.since(self.view.seq)
        except ConsoleError as error:
            self.trouble = one_line(str(error))
            return
        fold(map(cleaned_event, events), self.view)
        self.trouble = one_line(self.view.trouble[-1], 200) if self.view.trouble else ""

    def _look_ladder(self) -> None:
        changed = self._changed("ladder", self.run.ladder)
        if not (changed or self.climbing):
            return
        if changed:
            if stamp(self.run.ladder)[1] < self._offset:
                self._lines, self._offset = [], 0
            more, self._offset = read_lines(self.run.ladder, self._offset)
            self._lines = _newest([*self._lines, *cleaned(more)])
            self.rungs = tuple(self._lines)
        self.climbing = ladder_busy(self.run)

    def _look_sealed(self) -> None:
        if self._changed("sealed", self.run.sealed):
            with contextlib.suppress(ConsoleError):
                self.sealed = sealed.read(self.run.sealed)
        if self.view.restore_s is not None:
            self.restore_s = self.view.restore_s
        elif self.sealed is not None and self.sealed.memory_file:
            memory = Path(self.sealed.memory_file)
            if self._changed("memory", memory):
                self.restore_s = restore.expected(memory, self.sealed.baseline.name)

    def _look_logs(self) -> None:
        """Which logs there are; while it goes on an empty one may fill without any event."""
        now = self._clock.monotonic()
        if now - self._listed < LOGS_S:
            return
        key = (self.view.seq, id(self.sealed))
        if key == self._listed_for and not (self.alive or self.climbing):
            return
        # a last time after the end: what is written late counts as well
        self._listed_for = key if not (self.alive or self.climbing) else None
        self._listed = now
        self.logs = log_files(self.run, self.view, self.sealed)


def _newest(lines: list[Line]) -> list[Line]:
    """From the first line of the newest emergency on; empty when the runner alone climbed."""
    triggers = [str(line.get("trigger", "")) for line in lines]
    emergencies = [t for t in triggers if not is_runners(t)]
    return lines[triggers.index(emergencies[-1]) :] if emergencies else []


def copy_of(view: RunView) -> RunView:
    """A view of one's own. What events bring (figures, lines, effects) is shared: it never
    changes."""
    return replace(
        view,
        inputs=dict(view.inputs),
        steps=[replace(step) for step in view.steps],
        metrics={scope: dict(found) for scope, found in view.metrics.items()},
        benchmarks=dict(view.benchmarks),
        verdicts=list(view.verdicts),
        verbs=list(view.verbs),
        trouble=list(view.trouble),
        rungs=list(view.rungs),
        services=dict(view.services),
    )
