"""A run read from its journal alone: its view, and its state in one word."""

from __future__ import annotations

from console.journal.store import Reader
from console.rollback.proof import last, proof_file
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
    view, alive = read_view(run), runner_alive(run)
    settle(view, served_since(view, alive))
    return view, word_of(view, view.over or alive)


def served_since(view: RunView, alive: bool) -> float:
    """When the baseline answered a completion after the run took it down, Unix seconds, or 0.0:
    what a journal cannot know whose runner is dead. Reads one small file."""
    if not view.outage or alive:
        return 0.0
    served = last(proof_file(view.site))
    return served.at if served is not None and served.at > view.down_since else 0.0


def settle(view: RunView, back_at: float) -> None:
    """Take note of what `served_since` found: that baseline is not down."""
    if back_at:
        view.outage, view.back_at = False, back_at
