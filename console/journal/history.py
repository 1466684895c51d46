"""How long the steps of a playbook usually take: the median of this user's last runs of it.

Only steps that succeeded count, and none that waited for a person. Reads journals, so it does not
belong on the UI loop; a journal that has not changed is read once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from console.common.errors import ConsoleError
from console.journal.events import RunCreated, StepStateChange
from console.journal.run_dir import STAMP_LENGTH, RunDir, all_runs
from console.journal.run_files import Stamp, stamp
from console.journal.state import ASKING, StepState
from console.journal.store import Event, read_events

RUNS = 20
"""The newest runs of a playbook that are looked at."""
LAST = 5
"""So many of a step's newest durations count: an engine, a disk and a model change over time."""
KINDS = ("run.created", "step.state")
NAME_END = -5
"""How long the last part of a run's name is, with its dash."""

Durations = dict[str, float]


@dataclass(frozen=True, slots=True)
class Usual:
    """How long a step takes, in seconds, and in how many earlier runs that was seen."""

    seconds: float
    runs: int

    @property
    def words(self) -> str:
        """Where the figure is from."""
        return f"median of {self.runs} earlier runs" if self.runs > 1 else "as in the last run"


_cache: dict[Path, tuple[Stamp, str, Durations]] = {}
_lock = threading.Lock()


def usual(playbook: str, site: str, *, but: str = "") -> dict[str, Usual]:
    """Usual durations by step id, of this user's runs of `playbook` on `site`; `but`: a run that
    does not count. Rehearsals have a playbook of their own name. Never raises for a broken run."""
    durations: dict[str, list[float]] = {}
    mine = [run for run in all_runs() if run.id[STAMP_LENGTH + 1 : NAME_END] == playbook]
    for run in [own_run for own_run in mine if own_run.id != but][:RUNS]:
        of, took = _read(run)
        for step, seconds in took.items() if of == site else ():
            durations.setdefault(step, []).append(seconds)
    return {
        step: Usual(median(seconds[:LAST]), len(seconds[:LAST]))
        for step, seconds in durations.items()
    }


def _read(run: RunDir) -> tuple[str, Durations]:
    """The site of a run, and how long each of its steps took."""
    # reading alone may make an empty log beside the journal
    now = (*stamp(run.journal), stamp(run.path / "journal.db-wal")[1])
    with _lock:
        known = _cache.get(run.path)
    if known is not None and known[0] == now:
        return known[1:]
    try:
        read = _durations(read_events(run.journal, KINDS))
    except ConsoleError:
        read = "", {}
    with _lock:
        _cache[run.path] = (now, *read)
    return read


def _durations(journal_events: list[Event]) -> tuple[str, Durations]:
    site, personal, took = "", set[str](), Durations()
    for event in journal_events:
        match event.body:
            case RunCreated() as created:
                site = created.site
                personal = {step.id for step in created.steps if step.kind in ASKING}
            case StepStateChange(state=StepState.SUCCEEDED, duration_s=seconds):
                if seconds is not None and seconds >= 0 and event.step not in personal:
                    took[event.step] = float(seconds)
    return site, took
