"""The watch over the baseline in words: what `watch status` prints. Pure."""

from __future__ import annotations

import time

from console.common.text import clean
from console.common.units import format_duration, plural
from console.journal.watch_record import NOT_SERVING, UP, WatchState
from console.recovery.rollback.baseline_state import BaselineState

LABEL = 11


def lines(
    state: WatchState | None, running: str, now: float, known: BaselineState | None = None
) -> list[str]:
    """`running`: whether and as what the watch runs, in words; `known`: how the baseline is by all
    that its witnesses saw, as every other face says it."""
    rows = [("watch", running)]
    if known is not None:
        rows.append(("baseline", "; ".join([str(known.word), *known.facts(now)])))
    if state is not None and state.at:
        rows += [("last look", _last_look(state, now)), ("speed", _speed(state, now))]
        if state.slow_since:
            why = "; ".join(state.why)
            rows.append(("slower", f"since {when(state.slow_since)}: {why}"))
        changed = f"{when(state.changed_at)}: {state.changed}" if state.changed else "nothing yet"
        rows += [("changed", changed), ("restores", _restores(state, now))]
        if state.trouble:
            rows.append(("trouble", state.trouble))
    return [f"{label:<{LABEL}} {clean(text, 600)}" for label, text in rows]


def _last_look(state: WatchState, now: float) -> str:
    words = f"{state.word} since {when(state.since)}" if state.since else state.word
    if state.detail:
        words += f" ({state.detail})"
    if state.at > now:
        return f"{words}; at {when(state.at)}, by a clock that was ahead of this one"
    words += f"; {format_duration(now - state.at)} ago"
    if state.next_at > now and state.looks_on(now):
        words += f", next in {format_duration(state.next_at - now)}"
    return words


def _speed(state: WatchState, now: float) -> str:
    if state.level is None:
        return "not measured yet: the server was never found idle"
    # what does not serve, or is not looked at, has no speed now: the last figures are of before
    is_known = state.word in UP and state.looks_on(now)
    at = "now" if is_known else f"when it served, {when(state.asked_at)}"
    words = f"{state.level:.2f} tok/s {at}"
    if state.reference is not None:
        words += f", usual {state.reference:.2f}"
    if state.site_reference is not None:
        words += f", reference of the site {state.site_reference:g}"
    if state.ttft_s is not None:
        words += f"; first token after {format_duration(state.ttft_s)}"
    if state.learning:
        words += f"; nothing is judged before {plural(state.learning, 'more figure')}"
    return words


def _restores(state: WatchState, now: float) -> str:
    if not state.at_most:
        return "off: a baseline that does not answer is told, and left as it is"
    words = f"{state.restores_today(now)} within 24 hours, of {state.at_most} allowed"
    if state.word in NOT_SERVING and state.restores_today(now) >= state.at_most:
        words += "; it stays down: omni-console rollback brings it back"
    return words


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else "never"
