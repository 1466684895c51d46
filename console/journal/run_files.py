"""A run from its files: its view, its state in one word and its logs; read once, or followed, each
file being read again only when it changed.

The files are journal, live list, rollback lines and sealed plan. Whoever can write one can forge
it, so foreign values are made harmless as they are read.
"""

from __future__ import annotations

import contextlib
import os
import time
from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.errors import ConsoleError
from console.common.logs.output import of_process
from console.common.text import clean, cleaned, one_line
from console.host import process
from console.journal.fold import fold
from console.journal.lock import ladder_busy, runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_view import ClientsElsewhere, RunView
from console.journal.state import RunState
from console.journal.store import Reader, read_events
from console.recovery.rollback import evidence, live, restores
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.look import in_its_place
from console.recovery.rollback.progress import is_of_runner, read_lines
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runtime import proxy

INTERRUPTED = "interrupted"
NEVER_BEGAN = "never began"
NO_RESUME = "its runner died before it began: start a new run"

AT_LEAST_S = 2.0
"""Seconds after which the journal is read even if its files look unchanged."""
LOGS_S = 1.0
"""Least seconds between two searches for log files."""

Line = dict[str, Any]
Stamp = tuple[int, ...]

STEP, SERVICE, CONSOLE = "step", "service", "console"
WRITERS = ("run", "script", "build", "check")
"""Kinds of step whose own output matters more than the services' logs."""


def stamp(*paths: Path) -> Stamp:
    """Times and sizes of files; zero for missing ones."""
    figures: list[int] = []
    for path in paths:
        try:
            info = os.stat(path)
        except OSError:
            figures += [0, 0, 0]
        else:
            figures += [info.st_mtime_ns, info.st_size, info.st_ino]
    return tuple(figures)


class Source:
    """One run, read by one thread; `view` is that thread's own, `copy_of` makes others."""

    def __init__(self, run: RunDir, clock: Clock) -> None:
        self.run = run
        self.view = RunView()
        self.trouble = ""
        self.alive = False
        self.stages: tuple[Line, ...] = ()
        self.is_rolling_back = False
        self.sealed: SealedPlan | None = None
        self.restore_s: float | None = None
        self.logs: tuple[LogFile, ...] = ()
        self._clock = clock
        self._reader = Reader(run.journal, harmless=True)
        self._files = (run.journal, run.path / "journal.db-wal")
        self._stamps: dict[str, Stamp] = {}
        self._asked_at = self._listed = float("-inf")
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
            self._asked_at = float("-inf")  # its last word is there, whatever the file times say

    def _look_journal(self) -> None:
        now = self._clock.monotonic()
        changed = self._changed("journal", *self._files)
        if not changed and now - self._asked_at < AT_LEAST_S:
            return
        self._asked_at = now
        try:
            fresh = self._reader.since(self.view.seq)
        except ConsoleError as error:
            self.trouble = one_line(str(error))
            return
        fold(fresh, self.view)
        self.trouble = one_line(self.view.trouble[-1], 200) if self.view.trouble else ""

    def _look_ladder(self) -> None:
        changed = self._changed("ladder", self.run.ladder)
        if not (changed or self.is_rolling_back):
            return
        if changed:
            if stamp(self.run.ladder)[1] < self._offset:
                self._lines, self._offset = [], 0
            more, self._offset = read_lines(self.run.ladder, self._offset)
            self._lines = _newest([*self._lines, *cleaned(more)])
            self.stages = tuple(self._lines)
        self.is_rolling_back = ladder_busy(self.run)

    def _look_sealed(self) -> None:
        if self._changed("sealed", self.run.sealed):
            with contextlib.suppress(ConsoleError):
                self.sealed = sealed.read(self.run.sealed)
        if self.view.restore_s is not None:
            self.restore_s = self.view.restore_s
        elif self.sealed is not None and self.sealed.memory_file:
            memory = Path(self.sealed.memory_file)
            if self._changed("memory", memory):
                self.restore_s = restores.expected_restore(memory, self.sealed.baseline.name)

    def _look_logs(self) -> None:
        """Look which logs there are; an empty one may fill without any event."""
        now = self._clock.monotonic()
        if now - self._listed < LOGS_S:
            return
        key = (self.view.seq, id(self.sealed))
        if key == self._listed_for and not (self.alive or self.is_rolling_back):
            return
        # a last time after the end: what is written late counts as well
        self._listed_for = key if not (self.alive or self.is_rolling_back) else None
        self._listed = now
        self.logs = log_files(self.run, self.view, self.sealed)


def _newest(lines: list[Line]) -> list[Line]:
    """The lines from the newest emergency on; empty if only the runner rolled back."""
    triggers = [str(line.get("trigger", "")) for line in lines]
    emergencies = [t for t in triggers if not is_of_runner(t)]
    return lines[triggers.index(emergencies[-1]) :] if emergencies else []


def copy_of(view: RunView) -> RunView:
    """An independent copy of a view. Data of events (figures, lines, effects) is shared: it never
    changes."""
    held = {field.name: getattr(view, field.name) for field in fields(view)}
    lists = {
        name: attribute for name, attribute in held.items() if isinstance(attribute, list | dict)
    }
    own: dict[str, Any] = {name: copy(collection) for name, collection in lists.items()}
    own["steps"] = [replace(step) for step in view.steps]
    own["metrics"] = {scope: dict(figures) for scope, figures in view.metrics.items()}
    return replace(view, **own)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log; `name` is clean. `kind`: step, service or console (the runner's own). `step`: the id
    of the step whose output it is, else "". `filled`: it is not empty. `note`: what a reader has to
    know, clean."""

    name: str
    path: Path
    kind: str
    step: str = ""
    filled: bool = False
    note: str = ""


def log_files(run: RunDir, view: RunView, plan: SealedPlan | None) -> tuple[LogFile, ...]:
    """The current step's output, the services, then older outputs, newest first; reads the disk.

    A baseline that is a host process counts as a service. The runner's log is the last.
    """
    outputs: list[LogFile] = []
    for step in sorted(view.steps, key=lambda s: s.started, reverse=True):
        path = run.attempt_log(step.id, step.attempt)
        if step.attempt and (size := _size(path)) is not None:
            outputs.append(
                LogFile(f"output of {clean(step.id, 40)}", path, STEP, step.id, size > 0)
            )
    services = _services(run, view)
    if plan is not None and plan.baseline.log:
        services.append(baseline_log(plan))
    runner = _log("the runner's own log", Path(run.runner_log), CONSOLE)
    current = view.current
    if current is not None and current.kind not in WRITERS:
        return (*services, *outputs, runner)
    return (*outputs[:1], *services, *outputs[1:], runner)


def baseline_log(plan: SealedPlan) -> LogFile:
    """The log of a baseline that is a host process: where the process that runs writes to, whoever
    started it; while none is known to run, the file that the console starts it with. Reads /proc.
    """
    base, own = plan.baseline, Path(plan.baseline.log)
    known = process.read_record(plan.records_dir, base.name, base.process)
    if known is None:
        return _log("baseline", own, SERVICE)
    output = of_process(known[0])
    if output.path is None:
        return LogFile("baseline", Path(f"/proc/{known[0]}/fd/none"), SERVICE, note=output.words)
    return replace(_log("baseline", output.path, SERVICE), note=output.words)


def _services(run: RunDir, view: RunView) -> list[LogFile]:
    """Services, those alive first."""
    try:
        service_logs = sorted((run.path / "logs").glob("*.log"))
    except OSError:
        return []
    service_logs.sort(key=lambda path: path.stem not in view.services)
    return [_log(clean(path.stem, 40), path, SERVICE) for path in service_logs]


def _log(name: str, path: Path, kind: str) -> LogFile:
    return LogFile(name, path, kind, filled=bool(_size(path)))


def _size(path: Path) -> int | None:
    """Bytes in the file; None if there is none."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def read_view(run: RunDir) -> RunView:
    """Everything the journal says now, filled up with run.json if it does not name the run. Raises
    JournalError."""
    view = fold(read_events(run.journal))
    if not view.run_id and run.readable:
        meta = run.meta()
        view.created, view.owner, view.playbook = meta.created, meta.owner, Path(meta.playbook).stem
    return view


def word_of(run: RunDir, view: RunView, alive: bool) -> str:
    """The state in one word; an unfinished run without a runner is `interrupted` or `never began`.
    With a lost journal, it has begun if its rollback plan was sealed."""
    if view.over or alive:
        return str(view.state)
    begun = view.state is not RunState.PENDING or not (view.run_id or not run.script.exists())
    return INTERRUPTED if begun else NEVER_BEGAN


def view_of(run: RunDir) -> tuple[RunView, str]:
    """The run's view and its state in one word. Raises JournalError."""
    view, alive = read_view(run), runner_alive(run)
    settle(view, served_since(run, view, alive), relay_state(view, alive))
    return view, word_of(run, view, alive)


def left_down(run: RunDir, *, unknown: bool) -> bool:
    """Whether a run stopped the baseline and did not bring it back; `unknown` if that cannot be
    told. Errors of disk or journal never raise, because a rollback depends on the answer."""
    try:
        return view_of(run)[0].outage
    except Exception:
        return unknown


def unrecorded_end(run: RunDir, view: RunView) -> Line:
    """The last line of a rollback that ended the run and that its journal does not know, or {}.

    `rollback.sh` writes to no journal, and nothing resumes what a rollback has ended. A rollback
    that the runner asked for is its own restore, which goes on.
    """
    lines, _ = read_lines(run.ladder)
    done = [line for line in lines if line.get("rung") == "done"]
    trigger = done[-1].get("trigger") if done else None
    known = any(line.trigger == trigger for line in view.stages)
    return done[-1] if done and not known and not is_of_runner(trigger) else {}


def served_since(run: RunDir, view: RunView, alive: bool) -> float:
    """When the baseline answered a completion after the run took it down, Unix seconds, or 0.0: the
    journal of a dead runner cannot know that. Reads two files.

    A proof that existed before the outage does not count, whatever the clock says.
    """
    if not view.outage or alive:
        return 0.0
    end = unrecorded_end(run, view)
    at = end.get("at")
    if end.get("serving") is True and isinstance(at, int | float) and at > 0:
        return float(at)
    url = view.down_url
    if not url:  # an old journal does not name it
        with contextlib.suppress(ConsoleError, OSError):
            url = sealed.of_run(run.path).baseline.url
    served = evidence.last_proof(view.site, url)
    if served is None:
        return 0.0
    known = served.at > time.time() if view.proof_before is None else served.at == view.proof_before
    return served.at if served.at > view.down_since and not known else 0.0


def relay_state(view: RunView, alive: bool) -> str:
    """For a run whose runner is dead: `gone` if its relay is, `unwatched` if nobody watches a
    candidate that was not proven to the end; "" if the journal is right."""
    if alive or not view.cutover:
        return ""
    relay = view.services.get(proxy.NAME)
    if relay is not None and relay.pid and not process.alive(relay.pid, relay.start):
        return "gone"
    return "unwatched" if view.cutover.what in ("switched", "proven") else ""


def silence_of(run: RunDir) -> str:
    """That nobody, or not the run's candidate, answers at the address of its baseline, in words; ""
    also where it is not known. Asks that address, and waits for it."""
    try:
        plan = sealed.read(run.sealed)
        switched = proxy.recorded(plan.records_dir, plan.baseline.url)
        return in_its_place(plan, switched)[1]
    except (ConsoleError, OSError):
        return ""


def settle(view: RunView, back_at: float, relay_is: str = "") -> None:
    """Update the view by `served_since` (the baseline is back) and `relay_state`."""
    if back_at:
        view.outage, view.back_at = False, back_at
    if relay_is == "gone" and not view.outage:
        view.cutover = ClientsElsewhere()
    elif relay_is:
        view.cutover = view.cutover.changed(what=relay_is)
