"""A run read from its journal alone: its view, and its state in one word."""

from __future__ import annotations

import time
from pathlib import Path

from console.host import process
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView, fold
from console.journal.state import RunState
from console.journal.store import events
from console.recovery.rollback.proof import last, proof_file
from console.runtime import proxy

INTERRUPTED = "interrupted"
NEVER_BEGAN = "never began"
NO_RESUME = "its runner died before it began: start a new run"


def read_view(run: RunDir) -> RunView:
    """Everything the journal says now, and of a run that it does not name, what it was started
    with. Raises JournalError."""
    view = fold(events(run.journal))
    if not view.run_id and run.readable:
        meta = run.meta()
        view.created, view.owner, view.playbook = meta.created, meta.owner, Path(meta.playbook).stem
    return view


def word_of(run: RunDir, view: RunView, alive: bool) -> str:
    """The state in one word, without a runner `interrupted` or `never began` where it is not over:
    a run whose journal is lost has begun if its way back was sealed."""
    if view.over or alive:
        return str(view.state)
    begun = view.state is not RunState.PENDING or not (view.run_id or not run.script.exists())
    return INTERRUPTED if begun else NEVER_BEGAN


def view_of(run: RunDir) -> tuple[RunView, str]:
    """The run's view and its state in one word. Raises JournalError."""
    view, alive = read_view(run), runner_alive(run)
    settle(view, served_since(view, alive), relay_state(view, alive))
    return view, word_of(run, view, alive)


def left_down(run: RunDir, *, unknown: bool) -> bool:
    """Whether a run took the baseline down and never saw it back; `unknown` where nobody can tell:
    whatever the disk or the journal is like, the way back does not die of it."""
    try:
        return view_of(run)[0].outage
    except Exception:
        return unknown


def served_since(view: RunView, alive: bool) -> float:
    """When the baseline answered a completion after the run took it down, Unix seconds, or 0.0:
    what a journal cannot know whose runner is dead. Reads one small file.

    Another proof than that of before the outage was written since, whatever the clock says.
    """
    served = last(proof_file(view.site)) if view.outage and not alive else None
    if served is None:
        return 0.0
    if view.proof_before is None:
        return served.at if view.down_since < served.at <= time.time() else 0.0
    return served.at if served.at != view.proof_before else 0.0


def relay_state(view: RunView, alive: bool) -> str:
    """Of a run whose runner is dead: `gone` when the relay to its candidate is, `unwatched` when
    nobody looks any more at what was not proven to the end; "" when it is as the journal says."""
    if alive or not view.cutover:
        return ""
    one = view.services.get(proxy.NAME) or {}
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
