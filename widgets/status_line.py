"""The run in one line: state, where it is, decision, elapsed time."""

from __future__ import annotations

from console.common.text import clean
from console.journal.run_view import RunView
from console.journal.state import ENDS, RunState
from console.render.cutover import cut_over
from console.render.glyph import glyphs
from widgets.rows import Part, Row, Rows, spread
from widgets.step_text import progress_words, short

STATE_TONE = {
    "running": "accent", "paused": "warn", "waiting_approval": "warn", "succeeded": "good",
    "failed": "bad", "cancelled": "warn", "rolled_back": "warn", "rollback_failed": "alarm",
    "interrupted": "bad", "rolling_back": "warn", "stopping": "warn", "unreadable": "bad",
}  # fmt: skip
STANDING = (RunState.PAUSED, RunState.WAITING_APPROVAL)
TENS = 10
DECISION_TONE = {"go": "good", "no_go": "bad", "hold": "warn"}


def status(
    view: RunView, word: str, mode: str, now: float, width: int, at: str = "", lease: str = ""
) -> Row:
    """`RUNNING bench · auto  decision GO migrate  4/12 steps  12:05  …-trial-41ce`."""
    dot = f" {glyphs().pending} "
    state = word.replace("_", " ").upper()
    # first, where no width cuts it off
    left: list[Part] = [("REHEARSAL ", "warn")] if view.rehearsal else []
    left.append((state, STATE_TONE.get(word, "")))
    if view.reason:
        left.append((f" {view.reason.replace('_', ' ')}", "warn"))
    current = view.current
    if at and view.step(at) is not None and (current is None or at != current.id):
        left.append((f" before {clean(at)}", "bold"))
    elif current is not None and view.state not in ENDS:
        left.append((f" {clean(current.id)}", "bold"))
    if view.cutover:
        left.append((f"{dot}{cut_over(view)}", "warn"))
    elif view.outage:
        # its journal ends with its runner: how it is now the badge says
        was = "baseline was down then" if word == "interrupted" else "BASELINE DOWN"
        left.append((f"{dot}{was}", "bad"))
    if lease:
        left.append((f"{dot}{lease}", "warn"))
    decision = str(view.decision)
    if decision:
        text = decision.upper().replace("_", "-")
        left += [(f"{dot}decision ", "dim"), (text, DECISION_TONE.get(decision, ""))]
        if view.outcome:
            left.append((f" {clean(view.outcome)}", "bold"))
        if view.mark and not view.rehearsal:
            left.append((f" {view.mark}", "warn"))
    if mode and view.state in (RunState.RUNNING, RunState.PAUSED):
        left.append((f"{dot}{MODES.get(mode, mode)}", "dim"))
    took = (view.ended or now) - view.created if view.created else 0.0
    shown = standing(took) if view.state in STANDING else short(took)
    right: Row = ((f"{progress_words(view)}{dot}{shown}", "dim"),)
    return spread(tuple(left), right, width, glyphs().ellipsis)


def standing(took: float) -> str:
    """The age of a run that waits for a person: in tens of seconds, so that nothing is sent to
    the terminal while nothing happens."""
    tens = -int(-took // TENS) * TENS  # up: a clock does not run backwards at a pause
    return f"{tens}s" if tens < 100 else short(tens)


MODES = {
    "step": "step by step", "gate": "to the gate", "all": "to the end", "pausing": "then pauses",
}  # fmt: skip


class StatusLine(Rows):
    """One row."""
