"""A run as a viewer sees it: the fold of its journal's events. Pure; every screen reads this."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from console.common.text import one_line
from console.journal.state import ENDS, Decision, RunState, StepState
from console.journal.store import Event, senseless

MOST_TROUBLE = 20
"""Most lines of a journal's trouble that are printed."""


@dataclass(slots=True)
class StepView:
    """One step: `started` and `ended` in Unix seconds, `duration_s` of the last attempt."""

    id: str
    title: str
    phase: str
    kind: str
    takes_s: float | None = None
    implicit: bool = False
    final: bool = False
    state: StepState = StepState.PENDING
    attempt: int = 0
    cause: str = ""
    detail: str = ""
    warned: bool = False
    """It succeeded, and not all of it went well: `detail` says what."""
    lines: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    lessons: list[str] = field(default_factory=list)
    """Lessons that apply to it, `F-013 its title – why`."""
    said: str = ""
    started: float = 0.0
    duration_s: float | None = None
    exit_code: int | None = None


@dataclass(slots=True)
class Verdicts:
    """What a gate decided: `criteria` are {metric, verdict, why}, and `lacks`, the step that
    measured too few samples for it, if one did."""

    step: str
    verdict: str
    outcome: str
    criteria: list[dict[str, str]]
    overridden: str = ""


@dataclass(frozen=True, slots=True)
class GuardEvent:
    """A message of the sentinel or its watcher: `kind` is watching, warn, act, clear, restarted,
    gone or breach; a breach's `data` is that of console.journal.breach.Breach. Unix seconds."""

    at: float
    kind: str
    words: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RunView:
    """Everything the journal says. `metrics`: step id or `STEP.baseline` → name → figures."""

    run_id: str = ""
    title: str = ""
    playbook: str = ""
    site: str = ""
    owner: str = ""
    created: float = 0.0
    ended: float = 0.0
    inputs: dict[str, Any] = field(default_factory=dict)
    state: RunState = RunState.PENDING
    reason: str = ""
    detail: str = ""
    offer: str = ""
    """What a paused run can measure again, in words: `measure the baseline again`; or ""."""
    until: float = 0.0
    """When a pending approval expires, Unix seconds; 0.0 if none is pending."""
    outage: bool = False
    restore_s: float | None = None
    """How long a restore takes: from an earlier run until this run has measured it."""
    down_since: float = 0.0
    proof_before: float | None = None
    """Unix time of the newest proof that the baseline served when its outage began, 0.0 for none;
    None in an old journal without this record."""
    down_url: str = ""
    """Address of the baseline that the run took down; "" in an old journal."""
    down_s: float = 0.0
    """Total of finished outages, in seconds; a current one began at `down_since`."""
    back_at: float = 0.0
    """When the baseline was seen to serve after the runner had died, Unix seconds; the journal of a
    dead runner cannot know it (see console.journal.run_files.settle)."""
    restored_s: float | None = None
    """How long the restore took in this run; None if the baseline was not down."""
    steps: list[StepView] = field(default_factory=list)
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)
    soaks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What happened in a soak (file, gaps, restarts, errors, hangs, critical), by step id."""
    tunings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The points that a tuning step tried, and its winner, by step id."""
    verdicts: list[Verdicts] = field(default_factory=list)
    envelopes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What a checkpoint step predicts a load will take, by step id."""
    peaks: dict[str, Any] = field(default_factory=dict)
    """The machine's peaks since the run began, as console.runner.peaks says; `at` is when they were
    recorded, Unix seconds. Empty without samples."""
    guards: tuple[GuardEvent, ...] = ()
    moved: list[dict[str, Any]] = field(default_factory=list)
    """Thresholds that a retry changed: {gate, words, who, why}; a GO on one is an override."""
    doubts: list[dict[str, Any]] = field(default_factory=list)
    """GO verdicts not confirmed by the restored baseline's figures: {gate, verdict, words}."""
    verbs: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    serving: dict[str, Any] = field(default_factory=dict)
    cutover: dict[str, Any] = field(default_factory=dict)
    """What clients of the baseline reach instead: {what, service, url, to, at, step}; `what` is
    switched, proven, stays or promoted. Empty while they reach the baseline, or nobody."""
    header: dict[str, Any] = field(default_factory=dict)
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    """Nonsense in the journal, a line each; see console.journal.store."""
    latest: str = ""
    """The id of the step whose state changed last."""
    at: float = 0.0
    """When the newest event was written, Unix seconds."""
    finished: bool = False
    """Whether the last event is there: `finally` steps and report included."""
    seq: int = 0

    @property
    def breach(self) -> GuardEvent | None:
        """The newest breach; None while no guard has acted."""
        return next((e for e in reversed(self.guards) if e.kind == "breach"), None)

    @property
    def over(self) -> bool:
        return self.state in ENDS

    @property
    def worst(self) -> str:
        """The worst verdict so far; a later gate does not excuse an earlier one."""
        found = {v.verdict for v in self.verdicts} | ({"HOLD"} if self.doubts else set())
        return next((one for one in ("NO-GO", "HOLD", "GO") if one in found), "")

    @property
    def decision(self) -> Decision:
        """The decision by the worst verdict; no GO for a run that ended before all its gates were
        judged."""
        if self.worst == "GO" and self.over and self.open_gates:
            return Decision.NONE
        return Decision(self.worst.lower().replace("-", "_"))

    @property
    def open_gates(self) -> list[str]:
        """Gates without a verdict: not reached, failed or cancelled. While there is one, a GO is
        only a part of the answer."""
        said = {v.step for v in self.verdicts}
        return [
            s.id for s in self.steps
            if s.kind == "gate" and s.id not in said and s.state is not StepState.SKIPPED
        ]  # fmt: skip

    @property
    def outcome(self) -> str:
        """The named outcome of the gate that decided."""
        wanted = self.decision.word
        named = [v.outcome for v in self.verdicts if v.verdict == wanted and v.outcome]
        return named[-1] if named else ""

    @property
    def overridden(self) -> str:
        """Who overrode a gate and why, which marks the whole run; "" if nobody did."""
        return "; ".join(v.overridden for v in self.verdicts if v.overridden)

    @property
    def mark(self) -> str:
        """The word that must accompany the decision everywhere: REHEARSAL, OVERRIDDEN, DOUBTFUL or
        "". REHEARSAL wins, as a rehearsal decides nothing."""
        if self.rehearsal:
            return "REHEARSAL"
        return "DOUBTFUL" if self.doubts else "OVERRIDDEN" if self.overridden else ""

    @property
    def rehearsal(self) -> dict[str, Any]:
        """`fault`, `speed` and `notes` of a rehearsal; empty for a real run."""
        found = self.header.get("rehearsal")
        return found if isinstance(found, dict) else {}

    def step(self, step_id: str) -> StepView | None:
        return next((s for s in self.steps if s.id == step_id), None)

    @property
    def current(self) -> StepView | None:
        """The step whose state changed last; it may be an earlier one, when it is done again."""
        touched = [s for s in self.steps if s.state is not StepState.PENDING]
        last = touched[-1] if touched else None
        return next((s for s in touched if s.id == self.latest), last)


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
                view.trouble.append(senseless(event.kind, words))
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
    known = {one.name for one in fields(StepView)}
    rows = data.get("steps", [])
    view.steps = [StepView(**{k: v for k, v in row.items() if k in known}) for row in rows]


def _targets(view: RunView, event: Event) -> None:
    """Update thresholds, which a retry with other inputs may change."""
    view.header = {**view.header, "targets": event.data.get("targets", [])}
    view.moved += event.data.get("moved", [])


def _doubt(view: RunView, event: Event) -> None:
    others = [one for one in view.doubts if one["gate"] != event.step]
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
        step.started, step.duration_s, step.cause, step.said = event.at, None, "", ""
        step.effects = list(data.get("effects", []))
        step.lines, step.exit_code = [], None
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
    view.verdicts = [one for one in view.verdicts if one.step not in wanted]


def _say(view: RunView, event: Event) -> None:
    step = view.step(event.step)
    if step is not None:
        step.said = event.data.get("text", "")


def _metrics(view: RunView, event: Event) -> None:
    key = event.data.get("scope") or event.step
    view.metrics.setdefault(key, {}).update(event.data.get("metrics", {}))
    if "benchmark" in event.data:
        view.benchmarks[key] = event.data["benchmark"]
    if "soak" in event.data:
        view.soaks[key] = event.data["soak"]
    if "tune" in event.data:
        view.tunings[key] = event.data["tune"]


def _verdict(view: RunView, event: Event) -> None:
    data = event.data
    before = [v.verdict for v in view.verdicts if v.step == event.step]
    view.verdicts = [v for v in view.verdicts if v.step != event.step]
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
    found = [one for one in view.moved if one["gate"] == gate]
    said = f"; before that it said {before[-1]}" if found and before else ""
    return "; ".join(f"{one['who']}: {one['why']} ({one['words']})" for one in found) + said


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
    view.serving = {**event.data, "at": event.at}


def _cutover(view: RunView, event: Event) -> None:
    gone = event.data.get("what") in ("back", "rolled back")
    view.cutover = {} if gone else {**view.cutover, **event.data, "at": event.at}
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
    "rung": lambda view, event: view.stages.append(event.data),
    "guard": _guard,
    "serving": _serving,
    "service": _service,
    "cutover": _cutover,
    "run.finished": _finished,
}
