"""What happened in a run, a line each with its time: steps, verdicts, the guard, verbs. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator

from console.common.text import clean, one_line
from console.journal.run_view import RunView, StepView
from console.journal.state import StepState
from console.render.cells import Glyphs, Row, cut
from console.render.facts.step import facts_of
from console.render.facts.words import state_words
from console.render.guard import event_words

GUARD = {"warn": "warn", "act": "bad", "breach": "bad", "gone": "bad", "lease": "warn"}
Line = tuple[float, str, str, str]
"""Unix seconds, sign, tone, words."""


def feed(view: RunView, width: int, most: int, signs: Glyphs) -> list[Row]:
    """The newest `most` lines, the newest last."""
    lines = sorted(_lines(view, signs), key=lambda line: line[0])[-most:]
    return [
        cut(
            (
                (time.strftime("%H:%M:%S", time.localtime(at)), "dim"), (f" {sign} ", tone),
                (words, "bad" if tone == "bad" else ""),
            ), width, signs,
        )
        for at, sign, tone, words in lines
    ]  # fmt: skip


def _lines(view: RunView, signs: Glyphs) -> Iterator[Line]:
    for step in view.steps:
        yield from _of_step(view, step, signs)
    for event in view.guards:
        tone = GUARD.get(event.kind, "")
        yield event.at, "!" if tone else signs.dot, tone, one_line(event_words(event), 300)
    for verb in view.verbs:
        why = f": {one_line(verb.why, 200)}" if verb.why else ""
        words = f"{clean(verb.verb, 20)} by {clean(verb.who, 40)}{why}"
        yield verb.at, signs.arrow, "accent", words
    if view.outage and view.down_since:
        yield view.down_since, signs.down, "warn", "the baseline is down for this run"
    if view.ended:
        yield view.ended, signs.dot, "", f"the run has ended: {state_words(view.state)}"


def _of_step(view: RunView, step: StepView, signs: Glyphs) -> Iterator[Line]:
    if not step.started or step.state is StepState.PENDING:
        return
    name = clean(step.id)
    if step.state is StepState.RUNNING or step.duration_s is None:
        message = f": {one_line(step.message, 200)}" if step.message else ""
        yield step.started, signs.step("running"), "accent", f"{name} began{message}"
        return
    facts, ended = facts_of(view, step), step.started + step.duration_s
    yield ended, signs.step(facts.standing), facts.tone, f"{name}: {facts.result}"
