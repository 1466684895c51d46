"""What happens next in a run, or what it asks of a person, in one line. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from console.common.text import clean
from console.journal.run_view import RunView, StepView
from console.journal.state import ASKING, Pause, RunState, StepState
from console.render.cells import Row
from console.render.keymap import EMERGENCY, action

"""Kinds of steps that wait for a person."""
WAITS = {
    Pause.STEP_FAILED: "'{step}' failed: {retry} retries, {skip} skips it, {abort} aborts",
    Pause.HOLD: "gate '{step}' undecided: {retry} judges again, {approve} overrides, {abort} "
    "aborts",
    Pause.FEW_SAMPLES: "gate '{step}' undecided: {retry} measures again, {approve} overrides, "
    "{abort} aborts",
    Pause.IN_DOUBT: "nobody saw how '{step}' ended: {retry} does it again, {skip} skips it",
    Pause.APPROVAL_EXPIRED: "nobody answered '{step}' in time: {retry} asks again, {abort} aborts",
}  # fmt: skip
"""What can be done about a pause, by its reason; any other is the operator's own."""


class ShownBaseline(NamedTuple):
    """Whose baseline is on show: its site's name, and its address; "" where that is not known. Two
    sites may have one name."""

    site: str = ""
    url: str = ""


NOTHING = ShownBaseline()


def upcoming(
    view: RunView, word: str, at: str, mode: str, now: float, alarm: str = "", above: str = "",
    *, readonly: bool = False, shown: ShownBaseline = NOTHING,
) -> Row:  # fmt: skip
    """`NEXT  nothing to do: gate go in about 5 min, where the run stops`. `word`, `at` and `mode`:
    the run's word, the step before which it stands, and how far it runs, as the screens have them;
    `now` in Unix seconds; `alarm`: what a guard warns of, which goes before everything else;
    `above`: what a dialog over the screen says of itself, as it has the keys; `readonly`: whether
    no key changes anything; `shown`: whose baseline is on show."""
    if alarm and not view.over:
        way = "" if readonly else f"; {EMERGENCY.first} rolls back now"
        words = f"the guard acts soon: {alarm}{way}"
        return ((" NEXT ", "alarm"), (f" {words}", "bad"))
    advice = _next_action(view, word, at, mode, now)
    words, tone = advice.fact if readonly else advice.words, advice.tone
    words = of_site(on_site(view, shown), words)
    if above:
        words, tone = above, "bold"
    return ((" NEXT ", tone or "bold"), (f" {words}", tone))


def fact(view: RunView, word: str, at: str, mode: str, now: float) -> str:
    """The same for a reader who has no keys: what is next, without what can be done about it."""
    return _next_action(view, word, at, mode, now).fact


def on_site(view: RunView, shown: ShownBaseline) -> str:
    """`on site four` for a run of another site than the one whose baseline is on show, `on site
    four at http://…` if that has the same name; "" for one of that site, or where either is not
    known."""
    if not shown.site or not view.site:
        return ""
    words = f"on site {clean(view.site, 30)}"
    if view.site != shown.site:
        return words
    url = str(view.header.baseline.get("url") or "")
    other = bool(url and shown.url) and url.rstrip("/") != shown.url.rstrip("/")
    return f"{words} at {clean(url, 60)}" if other else ""


def of_site(where: str, words: str) -> str:
    """What is said of a run, with its site, as `on_site` has it, where that is another one."""
    return f"{where}: {words}" if where and words else words


@dataclass(frozen=True, slots=True)
class _NextAction:
    """`fact` says what is next, and `words` the same with the keys that do something about it."""

    fact: str
    words: str
    tone: str = ""


def _next_action(view: RunView, word: str, at: str, mode: str, now: float) -> _NextAction:
    back = EMERGENCY.first
    if word == "none":
        keys = f"{_key('playbooks')} picks a playbook and shows its plan; nothing starts yet"
        return _NextAction("nothing runs", keys)
    if word == "unreadable":
        return _with("the run cannot be read", f"; {back} brings the baseline back anyway", "warn")
    if word == "interrupted":
        keys = f": {_key('resume')} resumes the run, {back} brings the baseline back"
        return _with("the runner is gone", keys, "bad")
    if view.state in (RunState.STOPPING, RunState.ROLLING_BACK) or word == "rolling_back":
        return _with("nothing to do: the baseline comes back", f"; {back} shows how far it is")
    if view.over:
        return _after(view)
    if view.state is RunState.WAITING_APPROVAL:
        return _asking(view)
    if view.state is RunState.PAUSED:
        return _paused(view, at)
    return _running(view, mode, now)


def _with(fact: str, keys: str, tone: str = "") -> _NextAction:
    return _NextAction(fact, fact + keys, tone)


def _after(view: RunView) -> _NextAction:
    read = f"{_key('report')} reads the report"
    if view.outage or view.cutover:
        keys = f"{EMERGENCY.first} brings the baseline back; {read}"
        return _NextAction("the run has ended, and the baseline is not back", keys, "warn")
    return _NextAction("the run has ended", f"{read}, {_key('playbooks')} picks the next playbook")


def _asking(view: RunView) -> _NextAction:
    until = time.strftime("%H:%M", time.localtime(view.until)) if view.until else ""
    name = clean(view.current.id if view.current is not None else "the step")
    keys = f"'{name}' asks you: {_key('approve')} approves, {_key('reject')} turns it down"
    return _NextAction(
        f"'{name}' waits for an answer" + (f" until {until}" if until else ""),
        keys + (f"; expires at {until}" if until else ""), "warn",
    )  # fmt: skip


def _paused(view: RunView, at: str) -> _NextAction:
    step = view.step(at) or view.current
    name = clean(step.id) if step is not None else "what follows"
    words = WAITS.get(view.reason)  # type: ignore[call-overload]
    if words is None:
        does = f": {_key('next')} runs it, {_key('auto')} runs on to the next gate"
        return _with(f"paused before '{name}'", does, "warn")
    keys = {verb: _key(verb) for verb in ("retry", "skip", "approve", "abort")}
    short = words.partition(": ")[0]
    return _NextAction(short.format(step=name), words.format(step=name, **keys), "warn")


def _running(view: RunView, mode: str, now: float) -> _NextAction:
    current = view.current
    if current is None:
        return _with("nothing to do: the run begins", "")
    if mode in ("step", "pausing"):
        return _with(f"nothing to do: the run pauses after '{clean(current.id)}'", "")
    stop = next_stop(view)
    seconds = None if stop is None else seconds_to(view, stop, now)
    when = "" if seconds is None else f" in ~{max(1, round(seconds / 60))} min"
    pause = f"; {_key('pause')} pauses after {clean(current.id)}"
    if stop is None:
        return _with("nothing to do: the run goes on to its end", pause)
    if stop.kind == "gate":
        does = "stops the run" if mode == "gate" else "decides; HOLD and NO-GO stop the run"
        return _with(f"nothing to do: gate '{clean(stop.id)}'{when} {does}", pause)
    asks = f"nothing to do: '{clean(stop.id)}' asks"
    return _NextAction(f"{asks} for an answer{when}", f"{asks} you{when}{pause}")


def next_stop(view: RunView) -> StepView | None:
    """The next step at which the run stops or decides; None if nothing lies ahead."""
    ahead = [step for step in view.steps if step.state is StepState.PENDING and not step.final]
    return next((step for step in ahead if step.kind in (*ASKING, "gate")), None)


def seconds_to(view: RunView, stop: StepView, now: float) -> float | None:
    """How long the steps before it take, by what they are expected to; None if that is unknown of
    one of them."""
    total = 0.0
    for step in view.steps:
        if step is stop:
            return total
        if step.state is StepState.RUNNING:
            if step.takes_s is None:
                return None
            total += max(0.0, step.takes_s - (now - step.started))
        elif step.state is StepState.PENDING:
            if step.takes_s is None and step.kind not in ("gate", "check"):
                return None
            total += step.takes_s or 0.0
    return None


def _key(action_id: str) -> str:
    return action(action_id).first
