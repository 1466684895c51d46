"""The operator's verbs: why one is not possible now, and sending one bound to what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from console.common.errors import ConsoleError, ControlError
from console.common.text import clean, one_line
from console.journal.run_files import INTERRUPTED, NEVER_BEGAN, NO_RESUME
from console.journal.state import ENDS, VERBS, RunState, possible_verbs, refusal
from console.render.facts.gate import gates
from console.render.facts.words import state_words
from console.render.keymap import action
from console.render.measuring import judged_answers
from console.runner import control

if TYPE_CHECKING:
    from console.frontends.tui.watch.run import Snapshot

WHOLE = frozenset({"pause", "abort", "rollback"})
"""Verbs for the run as a whole: they mean the same at the next step."""
BINDS = ("step", "attempt", "evidence")
NO_RUN = "no run is active"


def ask(
    snapshot: Snapshot,
    verb: str,
    *,
    why: str = "",
    confirm: str = "",
    inputs: dict[str, str] | None = None,
) -> str:
    """Send a verb to the runner of the run on show; "" when accepted, else why not, clean.

    It is bound to the step, attempt and evidence of the snapshot, so that it cannot answer a later
    question; verbs for the whole run are not bound. Blocks for up to five seconds.
    """
    if snapshot.run is None:
        return f"{NO_RUN}; {_picks()}"
    message: dict[str, Any] = {
        "verb": verb, "why": why, "args": {"inputs": dict(inputs or {}), "confirm": confirm},
    }  # fmt: skip
    try:
        message |= bound(verb, snapshot.view.state, snapshot.control)
        answer = control.send(snapshot.run.socket, message)
    except (ConsoleError, OSError, TypeError, ValueError) as error:
        return one_line(str(error), 300)
    if answer.get("ok") is True:
        return ""
    return clean(str(answer.get("error", "")), 300) or "the runner refused and gave no reason"


def question_lines(snapshot: Snapshot) -> list[str]:
    """What a person decides about: the question, what the gate said of each figure, and what
    candidate and baseline answered. Clean."""
    view, lines = snapshot.view, [clean(snapshot.view.detail)]
    for gate in gates(view, view.current.id) if view.current is not None else ():
        lines += [row.line for row in gate.criteria]
        lines += judged_answers(view, gate)
    return lines


def why_not(snapshot: Snapshot, verb: str, *, keys: bool = True) -> str:
    """Why a verb is not possible now, in one calm sentence; "" if it is. Makes no request. `keys`:
    whether it names the key that helps, which only the screens have."""
    fact, way = _fact_and_key(snapshot, verb)
    return f"{fact}; {way}" if way and keys else fact


def _fact_and_key(snapshot: Snapshot, verb: str) -> tuple[str, str]:
    """Why a verb is not possible now, and which key helps; "" where there is none."""
    emergency = action("emergency").first
    if snapshot.run is None or snapshot.word == "none":
        return NO_RUN, _picks()
    if snapshot.word == "unreadable":
        return f"the run cannot be read: {snapshot.trouble}", ""
    if snapshot.is_rolling_back and (not snapshot.alive or snapshot.rollback != "restoring"):
        return "a rollback is under way", f"{emergency} shows it"
    if snapshot.word == NEVER_BEGAN:
        return NO_RESUME, ""
    if verb == "resume":
        return _why_no_resume(snapshot), ""
    if snapshot.word == INTERRUPTED:
        return "the runner is gone", f"{action('resume').first} resumes, {emergency} rolls back"
    state, reason = snapshot.view.state, snapshot.view.reason
    if state in ENDS:
        return f"the run has ended ({state_words(state)})", ""
    if verb not in possible_verbs(state, reason):
        return _not_now(snapshot, verb)
    if _for_the_whole(state, verb):
        return "", ""
    if snapshot.silent:
        way = f"{emergency} restores the baseline whatever it does"
        return "the runner lives but does not answer", way
    if state is not RunState.RUNNING and snapshot.control.get("state") != str(state):
        return "one moment: the runner has not said yet what it waits for", ""
    return "", ""


def bound(verb: str, state: RunState, control: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb is bound to: the run's `state` and the runner's own word as the operator saw
    them.

    Nothing for a verb for the whole run. Raises ControlError if the runner has not yet said where
    it stands.
    """
    if _for_the_whole(state, verb):
        return {}
    if not all(name in control for name in BINDS):
        raise ControlError("the runner has not said yet where it stands; try again")
    return {name: control[name] for name in BINDS}


def _for_the_whole(state: RunState, verb: str) -> bool:
    """Whether a verb is for the whole run and not for the current step."""
    return verb in WHOLE or (state is RunState.RUNNING and verb in ("auto", "continue"))


def _why_no_resume(snapshot: Snapshot) -> str:
    if snapshot.alive:
        return f"nothing to resume: the run is {state_words(snapshot.view.state)}"
    if snapshot.view.finished:
        return f"the run has ended ({state_words(snapshot.view.state)})"
    return ""


def _not_now(snapshot: Snapshot, verb: str) -> tuple[str, str]:
    """Why a live run does not take this verb, and the keys of what it takes."""
    state, reason = snapshot.view.state, snapshot.view.reason
    now = f"the run is {state_words(state)}" + (f" ({state_words(reason)})" if reason else "")
    if state is RunState.RUNNING:
        step = snapshot.view.current
        now = f"the run is running step {clean(step.id, 60)}" if step else "the run is starting"
        if verb in ("approve", "reject"):
            return f"nothing waits for an answer: {now}", ""
        if verb == "retry":
            return f"nothing to retry: {now}", ""
        if verb in ("next", "skip"):
            return now, f"{action('pause').first} pauses after it"
    if state in (RunState.STOPPING, RunState.ROLLING_BACK):
        return f"{now}: it accepts no more commands", ""
    if verb == "pause" and state is RunState.PAUSED:
        return f"{now} already", ""
    if verb not in VERBS:
        return refusal(verb, state, reason), ""
    others = ", ".join(f"{_key(v)} {v}" for v in possible_verbs(state, reason) if _key(v))
    return now, f"possible: {others}"


def _key(verb: str) -> str:
    try:
        return action(verb).first
    except KeyError:
        return ""  # a verb without a key of its own


def _picks() -> str:
    return f"{action('playbooks').first} picks a playbook"
