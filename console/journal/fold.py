"""Makes the view of a run out of its journal's events, one after the other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields

from console.common.progress import Figures, advanced
from console.common.text import one_line
from console.journal.run_view import GuardEvent, RunView, StepView, Verdicts
from console.journal.state import ENDS, RunState, StepState
from console.journal.store import Event, odd_words


def fold(events: Iterable[Event], view: RunView | None = None) -> RunView:
    """Apply events to a view (or a new one), in order; an odd event becomes a line of trouble, and
    so does one that fits the schema but that no reader can use."""
    view = view or RunView()
    for event in events:
        handler = _HANDLERS.get(event.kind)
        if event.odd:
            view.trouble.append(event.odd)
        elif handler is not None:
            try:
                handler(view, event)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                words = one_line(f"{type(error).__name__} {error}", 120)
                view.trouble.append(odd_words(event.kind, words))
        view.seq, view.at = max(view.seq, event.seq), max(view.at, event.at)
    return view


def _created(view: RunView, event: Event) -> None:
    data = event.data
    view.run_id, view.title = data.get("run_id", ""), data.get("title", "")
    view.playbook, view.site = data.get("playbook", ""), data.get("site", "")
    view.owner, view.created = data.get("owner", ""), event.at
    view.inputs = dict(data.get("inputs", {}))
    view.restore_s = data.get("restore_s")
    view.header = data
    known = {field.name for field in fields(StepView)}
    rows = data.get("steps", [])
    view.steps = [StepView(**{k: v for k, v in row.items() if k in known}) for row in rows]


def _targets(view: RunView, event: Event) -> None:
    """Update thresholds, which a retry with other inputs may change."""
    view.header = {**view.header, "targets": event.data.get("targets", [])}
    view.moved += event.data.get("moved", [])


def _doubt(view: RunView, event: Event) -> None:
    others = [doubt for doubt in view.doubts if doubt["gate"] != event.step]
    view.doubts = [*others, {"gate": event.step, **event.data}]


def _peaks(view: RunView, event: Event) -> None:
    view.peaks = {**event.data, "at": event.at}


def _state(view: RunView, event: Event) -> None:
    view.state = RunState(event.data["state"])
    view.reason = event.data.get("reason", "")
    view.detail = event.data.get("detail", "")
    view.until = event.data.get("until", 0.0)
    view.offer = event.data.get("offer", "")
    if view.state in ENDS:
        view.ended = event.at


def _step(view: RunView, event: Event) -> None:
    step, data = view.step(event.step), event.data
    if step is None:
        return
    step.state, step.attempt, view.latest = StepState(data["state"]), event.attempt, step.id
    if step.state is StepState.RUNNING:
        step.started, step.duration_s, step.cause, step.message = event.at, None, "", ""
        step.effects = list(data.get("effects", []))
        step.lines, step.exit_code, step.progress, step.runs = [], None, None, []
    else:
        step.duration_s = data.get("duration_s", step.duration_s)
        step.exit_code = data.get("exit_code")
        step.lines = list(data.get("lines", []))
    step.cause = data.get("cause", "")
    step.detail = data.get("detail", "")
    step.warned = data.get("warned", False)


def _again(view: RunView, event: Event) -> None:
    """Open steps again, all in one event: what they measured is measured anew, and a gate among
    them has decided nothing any more."""
    wanted = set(event.data["steps"])
    for step in view.steps:
        if step.id in wanted:
            step.state, step.cause, step.detail, step.warned = StepState.PENDING, "", "", False
            step.duration_s, step.exit_code, step.lines = None, None, []
    view.verdicts = [verdict for verdict in view.verdicts if verdict.step not in wanted]


def _say(view: RunView, event: Event) -> None:
    step = view.step(event.step)
    if step is not None:
        step.message = event.data.get("text", "")
        step.runs += [event.data["run"]] if "run" in event.data else []
        _take_figures(step, event)


def _take_figures(step: StepView, event: Event) -> None:
    """Take the figures of an event that has some; words alone leave the last ones."""
    data = event.data
    if "done" in data:
        figures = Figures(float(data["done"]), data.get("total"), data.get("unit", ""))
        step.progress = advanced(step.progress, figures, event.at)


def _rung(view: RunView, event: Event) -> None:
    """A line of a rollback; of a load there, only the step keeps the figures."""
    data, step = event.data, view.step(event.step)
    if step is not None and step.state is StepState.RUNNING:
        step.message = f"{data.get('rung', '')}: {data.get('detail', '')}".removesuffix(": ")
        _take_figures(step, event)
    if "done" not in data:
        view.stages.append(data)


def _metrics(view: RunView, event: Event) -> None:
    key = event.data.get("scope") or event.step
    view.metrics.setdefault(key, {}).update(event.data.get("metrics", {}))
    if "benchmark" in event.data:
        view.benchmarks[key] = event.data["benchmark"]
    if "soak" in event.data:
        view.soaks[key] = event.data["soak"]
    if "contract" in event.data:
        view.contracts[key] = event.data["contract"]
    if "tune" in event.data:
        view.tunings[key] = event.data["tune"]
    if "quality" in event.data:
        view.qualities[key] = event.data["quality"]


def _verdict(view: RunView, event: Event) -> None:
    data = event.data
    before = [v.verdict for v in view.verdicts if v.step == event.step]
    view.verdicts = [v for v in view.verdicts if v.step != event.step]
    view.doubts = [doubt for doubt in view.doubts if doubt["gate"] != event.step]
    overridden = data.get("overridden", "")
    if data["verdict"] == "GO" and not overridden:
        overridden = _moved_words(view, event.step, before)
    view.verdicts.append(
        Verdicts(
            event.step, data["verdict"], data.get("outcome", ""), list(data.get("criteria", [])),
            overridden,
        )
    )  # fmt: skip


def _moved_words(view: RunView, gate: str, before: list[str]) -> str:
    """Who moved this gate's thresholds in this run, and their earlier values."""
    moves = [move for move in view.moved if move["gate"] == gate]
    suffix = f"; before that it said {before[-1]}" if moves and before else ""
    return "; ".join(f"{move['who']}: {move['why']} ({move['words']})" for move in moves) + suffix


def _outage(view: RunView, event: Event) -> None:
    view.outage = bool(event.data.get("down"))
    if view.outage:
        view.down_since = view.down_since or event.at
        view.proof_before = event.data.get("proof", view.proof_before)
        view.down_url = event.data.get("url", view.down_url)
    elif view.down_since:
        view.down_s, view.down_since = view.down_s + event.at - view.down_since, 0.0
    if event.data.get("restore_s") is not None:
        view.restore_s = view.restored_s = event.data["restore_s"]


def _guard(view: RunView, event: Event) -> None:
    data = {k: v for k, v in event.data.items() if k not in ("kind", "words")}
    kind, words = str(event.data.get("kind", "")), str(event.data.get("words", ""))
    view.guards = (*view.guards, GuardEvent(event.at, kind, words, data))


def _serving(view: RunView, event: Event) -> None:
    if "looked" in event.data:  # it answered: nothing was measured, and nothing was proven
        view.serving["looked_at"] = event.at
    else:
        view.serving = {**event.data, "at": event.at}


def _cutover(view: RunView, event: Event) -> None:
    gone = event.data.get("what") in ("back", "rolled back")
    if gone and (since := view.cutover.get("since")) is not None:
        view.was_cut_over = {**view.cutover, "back_s": event.at - since}
    since = view.cutover.get("since", event.at)
    view.cutover = {} if gone else {**view.cutover, **event.data, "at": event.at, "since": since}
    if event.step and not gone:
        view.cutover["step"] = event.step


def _service(view: RunView, event: Event) -> None:
    if event.data.get("alive"):
        view.services[event.data["service"]] = event.data
    else:
        view.services.pop(event.data["service"], None)


def _finished(view: RunView, event: Event) -> None:
    view.finished = True


_HANDLERS: dict[str, Callable[[RunView, Event], None]] = {
    "run.created": _created,
    "run.state": _state,
    "step.state": _step,
    "step.say": _say,
    "metrics": _metrics,
    "verdict": _verdict,
    "again": _again,
    "envelope": lambda view, event: view.envelopes.update(
        {event.step: dict(event.data.get("envelope", {}))}
    ),
    "peaks": _peaks,
    "targets": _targets,
    "doubt": _doubt,
    "verb": lambda view, event: view.verbs.append(
        {**event.data, "at": event.at, "step": event.step}
    ),
    "input": lambda view, event: view.inputs.update({event.data["name"]: event.data["value"]}),
    "outage": _outage,
    "rung": _rung,
    "guard": _guard,
    "serving": _serving,
    "service": _service,
    "cutover": _cutover,
    "run.finished": _finished,
}
