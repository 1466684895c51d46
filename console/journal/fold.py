"""Makes the view of a run out of its journal's events, one after the other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from console.common.progress import Figures, advanced
from console.journal import events
from console.journal.run_view import (
    BaselineServes,
    ClientsElsewhere,
    GateDoubt,
    GateVerdict,
    GuardEvent,
    PeaksSoFar,
    RunView,
    StepView,
    VerbGiven,
)
from console.journal.state import ENDS, StepState
from console.journal.store import Event

PARTS = ("benchmark", "soak", "tune", "contract", "quality")
"""Of `Metrics`: how its figures came about."""


def fold(journal_events: Iterable[Event], view: RunView | None = None) -> RunView:
    """Apply events to a view (or a new one), in order; an odd event becomes a line of trouble."""
    view = view or RunView()
    for event in journal_events:
        if event.body is None:
            view.trouble.append(event.odd)
        elif (handler := _HANDLERS.get(event.kind)) is not None:
            handler(view, event, event.body)
        view.seq, view.at = max(view.seq, event.seq), max(view.at, event.at)
    return view


def _created(view: RunView, event: Event, body: events.RunCreated) -> None:
    view.run_id, view.title = body.run_id, body.title
    view.playbook, view.site = body.playbook, body.site
    view.owner, view.created = body.owner, event.at
    view.inputs = dict(body.inputs)
    view.restore_s = body.restore_s
    view.header = body
    view.steps = [
        StepView(
            step.id, step.title, step.phase, step.kind, step.takes_s, step.takes_from,
            step.limit_s, step.implicit, step.final, effects=step.effects, lessons=step.lessons,
        )
        for step in body.steps
    ]  # fmt: skip


def _note(view: RunView, event: Event, body: events.RunNote) -> None:
    if body.by_others:
        view.by_others.append((event.at, body.text))


def _targets(view: RunView, event: Event, body: events.Targets) -> None:
    """Update thresholds, which a retry with other inputs may change."""
    view.header = view.header.changed(targets=body.targets)
    view.moved += body.moved


def _doubt(view: RunView, event: Event, body: events.Doubt) -> None:
    others = [doubt for doubt in view.doubts if doubt.gate != event.step]
    view.doubts = [*others, GateDoubt(gate=event.step, **body.fields())]


def _peaks(view: RunView, event: Event, body: events.Peaks) -> None:
    view.peaks = PeaksSoFar(**body.fields(), at=event.at)


def _state(view: RunView, event: Event, body: events.RunStateChange) -> None:
    view.state = body.state
    view.reason, view.detail = body.reason, body.detail
    view.until, view.offer = body.until, body.offer
    if view.state in ENDS:
        view.ended = event.at


def _step(view: RunView, event: Event, body: events.StepStateChange) -> None:
    step = view.step(event.step)
    if step is None:
        return
    step.state, step.attempt, view.latest = body.state, event.attempt, step.id
    if step.state is StepState.RUNNING:
        step.started, step.duration_s, step.message = event.at, None, ""
        step.effects = list(body.effects)
        step.lines, step.exit_code, step.progress, step.runs = [], None, None, []
    else:
        # an intent to try again says nothing of how long the last attempt took
        step.duration_s = body.duration_s if "duration_s" in body.given else step.duration_s
        step.exit_code = body.exit_code
        step.lines = list(body.lines)
    step.cause, step.detail, step.warned = body.cause, body.detail, body.warned


def _again(view: RunView, event: Event, body: events.Again) -> None:
    """Open steps again, all in one event: what they measured is measured anew, and a gate among
    them has decided nothing any more."""
    wanted = set(body.steps)
    for step in view.steps:
        if step.id in wanted:
            step.state, step.cause, step.detail, step.warned = StepState.PENDING, "", "", False
            step.duration_s, step.exit_code, step.lines = None, None, []
    view.verdicts = [verdict for verdict in view.verdicts if verdict.step not in wanted]


def _say(view: RunView, event: Event, body: events.StepSay) -> None:
    step = view.step(event.step)
    if step is not None:
        step.message = body.text
        if body.run is not None:
            step.runs.append(body.run)
        _take_figures(step, event.at, body)


def _take_figures(step: StepView, at: float, body: events.StepSay | events.Rung) -> None:
    """Take the figures of an event that has some; words alone leave the last ones."""
    if body.done is not None:
        figures = Figures(float(body.done), body.total, body.unit)
        step.progress = advanced(step.progress, figures, at)


def _rung(view: RunView, event: Event, body: events.Rung) -> None:
    """A line of a rollback; of a load there, only the step keeps the figures."""
    step = view.step(event.step)
    if step is not None and step.state is StepState.RUNNING:
        step.message = f"{body.rung}: {body.detail}".removesuffix(": ")
        _take_figures(step, event.at, body)
    if body.done is None:
        view.stages.append(body)


def _metrics(view: RunView, event: Event, body: events.Metrics) -> None:
    key = body.scope or event.step
    view.metrics.setdefault(key, {}).update(body.metrics)
    parts = {name: getattr(body, name) for name in PARTS if getattr(body, name)}
    if parts:
        view.measured[key] = replace(view.measurement(key), **parts)


def _envelope(view: RunView, event: Event, body: events.Envelope) -> None:
    before = view.measurement(event.step)
    view.measured[event.step] = replace(before, envelope=body.envelope)


def _verdict(view: RunView, event: Event, body: events.Verdict) -> None:
    before = [v.verdict for v in view.verdicts if v.step == event.step]
    view.verdicts = [v for v in view.verdicts if v.step != event.step]
    view.doubts = [doubt for doubt in view.doubts if doubt.gate != event.step]
    overridden = body.overridden
    if body.verdict == "GO" and not overridden:
        overridden = _moved_words(view, event.step, before)
    fields = {**body.fields(), "step": event.step, "overridden": overridden}
    view.verdicts.append(GateVerdict(**fields))


def _moved_words(view: RunView, gate: str, before: list[str]) -> str:
    """Who moved this gate's thresholds in this run, and their earlier values."""
    moves = [move for move in view.moved if move.gate == gate]
    suffix = f"; before that it said {before[-1]}" if moves and before else ""
    return "; ".join(f"{move.who}: {move.why} ({move.words})" for move in moves) + suffix


def _outage(view: RunView, event: Event, body: events.Outage) -> None:
    view.outage = body.down
    if view.outage:
        view.down_since = view.down_since or event.at
        view.proof_before = body.proof if body.proof is not None else view.proof_before
        view.down_url = body.url or view.down_url
    elif view.down_since:
        view.down_s, view.down_since = view.down_s + event.at - view.down_since, 0.0
    if body.restore_s is not None:
        view.restore_s = view.restored_s = body.restore_s


def _guard(view: RunView, event: Event, body: events.Guard) -> None:
    view.guards = (*view.guards, GuardEvent(event.at, body.sign, body.words, body))


def _serving(view: RunView, event: Event, body: events.Serving) -> None:
    if "looked" in body.given:  # it answered: nothing was measured, and nothing was proven
        view.serving = view.serving.changed(looked_at=event.at)
    else:
        view.serving = BaselineServes(**body.fields(), at=event.at)


def _cutover(view: RunView, event: Event, body: events.Cutover) -> None:
    before = view.cutover
    if body.what in ("back", "rolled back"):
        if before:
            view.was_cut_over = before.changed(back_s=event.at - before.since)
        view.cutover = ClientsElsewhere()
        return
    step = {"step": event.step} if event.step else {}
    since = before.since if before else event.at
    view.cutover = before.changed(**body.fields(), at=event.at, since=since, **step)


def _service(view: RunView, event: Event, body: events.Service) -> None:
    if body.alive:
        view.services[body.service] = body
    else:
        view.services.pop(body.service, None)


def _verb(view: RunView, event: Event, body: events.Verb) -> None:
    view.verbs.append(VerbGiven(**body.fields(), at=event.at, step=event.step))


def _input(view: RunView, event: Event, body: events.Input) -> None:
    view.inputs[body.name] = body.value


def _finished(view: RunView, event: Event, body: events.RunFinished) -> None:
    view.finished = True


_HANDLERS: dict[str, Callable[[RunView, Event, Any], None]] = {
    "run.created": _created,
    "run.state": _state,
    "run.note": _note,
    "run.finished": _finished,
    "step.state": _step,
    "step.say": _say,
    "metrics": _metrics,
    "verdict": _verdict,
    "again": _again,
    "envelope": _envelope,
    "peaks": _peaks,
    "targets": _targets,
    "doubt": _doubt,
    "verb": _verb,
    "input": _input,
    "outage": _outage,
    "rung": _rung,
    "guard": _guard,
    "serving": _serving,
    "service": _service,
    "cutover": _cutover,
}
