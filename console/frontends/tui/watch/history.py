"""Every run of this user as a row, newest first, from the journals; only changes are read again."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import Stamp, read_view, stamp, view_of, word_of
from console.journal.run_view import RunView
from console.journal.state import RunState

if TYPE_CHECKING:
    from console.render.report.compare import Comparison

UNREADABLE = "unreadable"
STRANGE = "not a journal of this version"
UNREAD = (ConsoleError, KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run; texts are clean. `created` in Unix seconds, `took_s` None while it is not over.

    `state` is the run's state, `interrupted`, `never began` or `unreadable`; then `problem` says
    why.
    """

    id: str
    playbook: str = ""
    title: str = ""
    state: str = ""
    decision: str = ""
    outcome: str = ""
    created: float = 0.0
    took_s: float | None = None
    owner: str = ""
    problem: str = ""
    mark: str = ""
    """OVERRIDDEN, DOUBTFUL or "": shown beside the decision."""
    path: Path = Path()
    """Its directory: the name there is not always the id, which is clean."""


_cache: dict[Path, tuple[Stamp, RunRow, str]] = {}
_lock = threading.Lock()


def rows() -> list[RunRow]:
    """One row per run; reads files, so not on the UI loop. Never raises for a broken run."""
    runs = all_runs()
    with _lock:
        run_rows = [_row(run) for run in runs]
        for path in _cache.keys() - {run.path for run in runs}:
            del _cache[path]
    return run_rows


def earlier(playbook: str, run_id: str) -> list[RunRow]:
    """The other runs of a playbook that can be read. Reads files, so not on the UI loop."""
    other_rows = [row for row in rows() if row.playbook == clean(playbook, 80) and row.id != run_id]
    return [row for row in other_rows if row.state not in (UNREADABLE, RunState.PENDING)]


def side_by_side(ids: Iterable[str]) -> tuple[Comparison, list[str]]:
    """Some runs compared, and why others could not be read. Reads files, so not on the UI loop."""
    from console.render.report.compare import compare  # a list of runs compares none

    wanted = set(ids)
    views: list[tuple[RunView, str]] = []
    broken: list[str] = []
    for run in all_runs():
        if run.id not in wanted:
            continue
        try:
            views.append(view_of(run))
        except UNREAD as error:
            broken.append(f"{clean(run.id, 80)}: {_why(error)}")
    return compare(views), broken


def _why(error: Exception) -> str:
    """Why a journal cannot be read."""
    known = isinstance(error, ConsoleError)
    return one_line(str(error)) if known else f"{STRANGE}: {one_line(str(error), 80)}"


def _row(run: RunDir) -> RunRow:
    now = stamp(run.journal, run.path / "journal.db-wal")
    known = _cache.get(run.path)
    if known is None or known[0] != now:
        known = (now, *_read(run))
        _cache[run.path] = known
    _, row, gone = known
    # a runner dies without a word in the journal
    return row if not gone or runner_alive(run) else replace(row, state=gone)


def _read(run: RunDir) -> tuple[RunRow, str]:
    """The row, and its state if its runner is gone; "" if that changes nothing."""
    try:
        view = read_view(run)
    except UNREAD as error:
        return _unreadable(run, _why(error)), ""
    return _of(run, view), "" if view.over else word_of(run, view, False)


def _of(run: RunDir, view: RunView) -> RunRow:
    return RunRow(
        id=run.id,
        playbook=clean(view.playbook, 80),
        title=clean(view.title, 200),
        state=str(view.state),
        decision=str(view.decision),
        outcome=clean(view.outcome, 80),
        mark=view.mark,
        created=view.created,
        took_s=view.ended - view.created if view.ended else None,
        owner=clean(view.owner, 60),
        problem=one_line(view.trouble[0], 160) if view.trouble else "",
        path=run.path,
    )


def _unreadable(run: RunDir, problem: str) -> RunRow:
    row = RunRow(run.id, state=UNREADABLE, problem=problem, path=run.path)
    try:
        meta = run.meta()
        return replace(
            row, playbook=clean(Path(meta.playbook).stem, 80), created=float(meta.created),
            owner=clean(meta.owner, 60),
        )  # fmt: skip
    except (ConsoleError, TypeError, ValueError, AttributeError):
        return row
