"""What is said of a run as a whole: its decision, how it left the baseline, how long that was down,
and whatever else each face gives a line of its own. What is added to `notes` appears in `show`, in
the report and in the panel. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from console.common.text import clean
from console.common.units import format_duration, format_number
from console.journal.run_view import RunView
from console.journal.state import Pause, RunState, stands
from console.render.cutover import cut_over
from console.render.facts.words import VERDICT_TONE, Fact, state_words, when

DOWN, IS_DOWN = "BASELINE DOWN", "the baseline is DOWN"
"""Of a run that has it down: it may be up again since, which only a look at it tells."""
TURNED = (RunState.ROLLED_BACK, RunState.ROLLBACK_FAILED)
"""Ends that are in capitals."""
NOT_SERVING = "NOT SERVING"
"""How a run that has it down left it."""


def decision(view: RunView) -> Fact:
    """`GO (migrate)`, with the word and the outcome apart; all are "" while no gate has judged."""
    word, outcome = view.decision.word, clean(view.outcome, 80)
    named = f"{word} ({outcome})" if outcome else word
    return Fact("decision", "decision", named, VERDICT_TONE.get(word, ""), outcome, word)


def news(view: RunView) -> str:
    """What a person has to hear of a run, said behind its playbook's name: that it has ended, and
    how, or what it waits for; "" for a run that needs nobody."""
    step = clean(view.current.id, 60) if view.current is not None else ""
    if view.over:
        return f" has ended: {_ended(view)}"
    if view.state is RunState.WAITING_APPROVAL:
        return f" asks you: {step}"
    if view.state is RunState.PAUSED and view.reason != Pause.OPERATOR:
        return f": {stands(view.state, view.reason, step) or state_words(view.reason)}"
    return ""


def _ended(view: RunView) -> str:
    """`NO-GO (retain)`, `failed after GO`, `ROLLED BACK`: some ends say more than the decision."""
    decided, state = decision(view).value, state_words(view.state)
    if view.state is RunState.SUCCEEDED:
        return decided or state
    state = state.upper() if view.state in TURNED else state
    return f"{state} after {decided}" if decided else state


def notes(view: RunView) -> Iterator[Fact]:
    """What else is known of a run; a table heads a row of it with its key."""
    if held := clean(view.allocation, 240):
        job = f"in {clean(held.partition(':')[0], 40)}"
        yield Fact("allocation", "in", held, brief=job, joint=" ")


def baseline_after(view: RunView) -> Fact:
    """How the run left the baseline: `label` leads the value, `brief` is a sentence, `detail` what
    explains that. Its tone is "" or "good" where nothing has to be done."""
    serving = view.serving
    if words := cut_over(view):
        return Fact("cutover", words, words, "warn", brief=words)
    if view.outage:
        return Fact("down", NOT_SERVING, NOT_SERVING, "bad", brief=f"the baseline is {NOT_SERVING}")
    if not serving:
        return Fact("untouched", "not touched", "not touched")
    if garbage := clean(serving.garbled, 600):
        value = f"GARBLED {_witness(view)}: {garbage}"
        return Fact("garbled", "GARBLED", value, "bad", garbage, "the baseline answers GARBAGE")
    rate, key = serving.tok_s, "DEGRADED" if serving.degraded else "serving"
    value = key
    if rate or serving.by:
        value += f", {format_number(rate, 'tok/s') if rate else 'proven'} {_witness(view)}"
    value += "".join(f"; {clean(note, 600)}" for note in serving.notes)
    if view.restored_s:
        value += f", back {format_duration(view.restored_s)} after it was asked for"
    if serving.looked_at:
        value += f"; its health path answered at {when(serving.looked_at)}, after the last step"
    if not serving.degraded:
        return Fact("serving", key, value, "good", brief="the baseline serves")
    return Fact("degraded", key, value, "warn", _slower(view), "the baseline is DEGRADED")


def _slower(view: RunView) -> str:
    """How far the baseline is below its reference speed."""
    rate, known = view.serving.tok_s, view.serving.reference
    if rate is None:
        return "it serves, below its reference"
    tail = f", reference {format_number(known, 'tok/s')}" if known is not None else ""
    return f"{format_number(rate, 'tok/s')} {_witness(view)}{tail}"


def _witness(view: RunView) -> str:
    """By what the baseline was proven or measured last, and when."""
    by, at = clean(view.serving.by, 600), view.serving.at
    # a journal of an earlier version names no witness
    return f"by {by} at {when(at)}" if by else "in its proof (one short completion)"


def outage_words(view: RunView) -> str:
    """How long the run had the baseline down."""
    if view.fell_after_end:
        own = format_duration(view.down_s) if view.down_s else "never"
        return f"{own}; a rollback after the run's end failed, {when(view.down_since)}"
    if view.down_since:
        return f"since {when(view.down_since)}, and still"
    if view.outage:
        return "yes, still"
    return format_duration(view.down_s) if view.down_s else "never"
