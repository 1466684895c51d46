"""A run read from its journal alone: its view, and its state in one word."""

from __future__ import annotations

from console.journal.store import Reader
from console.rollback.proof import last, proof_file
from console.run.directory import RunDir
from console.run.liveness import runner_alive
from console.run.view import RunView, fold
from console.services import process, relay

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
    settle(view, served_since(view, alive), relay_state(view, alive))
    return view, word_of(view, view.over or alive)


def served_since(view: RunView, alive: bool) -> float:
    """When the baseline answered a completion after the run took it down, Unix seconds, or 0.0:
    what a journal cannot know whose runner is dead. Reads one small file."""
    if not view.outage or alive:
        return 0.0
    served = last(proof_file(view.site))
    return served.at if served is not None and served.at > view.down_since else 0.0


def relay_state(view: RunView, alive: bool) -> str:
    """Of a run whose runner is dead: `gone` when the relay to its candidate is, `unwatched` when
    nobody looks any more at what was not proven to the end; "" when it is as the journal says."""
    if alive or not view.cutover:
        return ""
    one = view.services.get(relay.NAME) or {}
    if one.get("pid") and not process.alive(one["pid"], one.get("start", 0)):
        return "gone"
    return "unwatched" if view.cutover.get("what") in ("switched", "proven") else ""


def settle(view: RunView, back_at: float, relay_is: str = "") -> None:
    """Take note of what `served_since` found (that baseline is not down) and `relay_state`."""
    if back_at:
        view.outage, view.back_at = False, back_at
    if relay_is == "gone" and not view.outage:
        view.cutover = {}
    elif relay_is:
        view.cutover = {**view.cutover, "what": relay_is}
