"""A run read from its journal alone: its view, and its state in one word."""

from __future__ import annotations

from console.journal.store import Reader
from console.run.directory import RunDir
from console.run.liveness import runner_alive
from console.run.view import RunView, fold

INTERRUPTED = "interrupted"


def read_view(run: RunDir) -> RunView:
    """Everything the journal says now. Raises JournalError."""
    reader = Reader(run.journal)
    try:
        return fold(reader.since(0))
    finally:
        reader.close()


def word_of(view: RunView, alive: bool) -> str:
    """The state in one word; `interrupted` when it is not over and its runner is gone."""
    return str(view.state) if view.over or alive else INTERRUPTED


def view_of(run: RunDir) -> tuple[RunView, str]:
    """The run's view and its state in one word. Raises JournalError."""
    view = read_view(run)
    return view, word_of(view, view.over or runner_alive(run))
