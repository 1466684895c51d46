"""A run as a viewer sees it, which console.journal.fold makes of its journal. Screens read this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from console.common.errors import Exit
from console.common.progress import Progress
from console.journal import events
from console.journal.events import Breach, MovedTarget, RunCreated, Rung, body_type
from console.journal.state import ENDS, Decision, Mark, RunState, StepState, exit_code

MAX_TROUBLE = 20
"""Most lines of a journal's trouble that are printed."""


@dataclass(slots=True)
class StepView:
    """One step: `started` and `ended` in Unix seconds, `duration_s` of the last attempt."""

    id: str
    title: str
    phase: str
    kind: str
    takes_s: float | None = None
    takes_from: str = ""
    """Where `takes_s` is from, in words; "" for the playbook."""
    limit_s: float | None = None
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
    message: str = ""
    progress: Progress | None = None
    """How far the running attempt is; None while it has told nothing."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Each run of a benchmark so far, of the current attempt: tok_s, ttft_s, void (why)."""
    started: float = 0.0
    duration_s: float | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class GuardEvent:
    """A message of the sentinel or its watcher: `kind` is watching, warn, act, clear, restarted,
    gone, lease (it runs out soon) or breach; `body` has what it says of that. Unix seconds."""

    at: float
    kind: str
    words: str
    body: Breach = field(default_factory=Breach)


# What follows has the fields of an event, and when and where it came. It is False while there was
# none.


@body_type
class BaselineServes(events.Serving):
    """What proved or measured the baseline last, and when; `notes` are what else is to be said of
    it. Unix seconds."""

    at: float = 0.0
    looked_at: float | None = None
    """When its health path answered after the last step."""


@body_type
class ClientsElsewhere(events.Cutover):
    """What clients of the baseline reach instead: `what` is switched, proven, stays or promoted,
    and where the runner is gone also unwatched or gone. False while they reach the baseline, or
    nobody. Unix seconds."""

    what: str = ""
    at: float = 0.0
    since: float = 0.0
    step: str = ""
    silent: str = ""
    """That nobody, or not the candidate, answers there, in words."""
    back_s: float = 0.0
    """Of one that is over: the seconds for which clients reached the candidate."""


@body_type
class VerbGiven(events.Verb):
    """A verb, when it was given, and at which step."""

    at: float = 0.0
    step: str = ""


@body_type
class GateVerdict(events.Verdict):
    """What the gate of a step decided last."""

    step: str = ""


@body_type
class GateDoubt(events.Doubt):
    """A verdict of `gate` that the restored baseline's figures do not confirm."""

    gate: str = ""


@body_type
class PeaksSoFar(events.Peaks):
    """The machine's peaks since the run began, and when they were recorded, Unix seconds. False
    without samples."""

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """How the figures of a step, or of the baseline beside it, came about; each part is empty where
    the step did nothing of the kind."""

    benchmark: dict[str, Any] = field(default_factory=dict)
    soak: dict[str, Any] = field(default_factory=dict)
    """What happened in a soak: file, gaps, restarts, errors, hangs, critical."""
    tune: dict[str, Any] = field(default_factory=dict)
    """The points that a tuning step tried, and its winner."""
    contract: dict[str, Any] = field(default_factory=dict)
    """What a contract step found different: the words, and a row for each fact."""
    quality: dict[str, Any] = field(default_factory=dict)
    """What a quality step compared, or which tasks it asked."""
    envelope: dict[str, Any] = field(default_factory=dict)
    """What a checkpoint step predicts a load will take."""


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
    measured: dict[str, StepMeasurement] = field(default_factory=dict)
    """How they came about, by the same names."""
    verdicts: list[GateVerdict] = field(default_factory=list)
    peaks: PeaksSoFar = field(default_factory=PeaksSoFar)
    guards: tuple[GuardEvent, ...] = ()
    moved: list[MovedTarget] = field(default_factory=list)
    """Thresholds that a retry changed; a GO on one is an override."""
    doubts: list[GateDoubt] = field(default_factory=list)
    verbs: list[VerbGiven] = field(default_factory=list)
    stages: list[Rung] = field(default_factory=list)
    serving: BaselineServes = field(default_factory=BaselineServes)
    cutover: ClientsElsewhere = field(default_factory=ClientsElsewhere)
    was_cut_over: ClientsElsewhere = field(default_factory=ClientsElsewhere)
    """The last cutover that is over; False if there was none."""
    header: RunCreated = field(default_factory=RunCreated)
    services: dict[str, events.Service] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    by_others: list[tuple[float, str]] = field(default_factory=list)
    """When it was seen, and how others have started a server again while the run went on."""
    """Nonsense in the journal, a line each; see console.journal.store."""
    latest: str = ""
    """The id of the step whose state changed last."""
    at: float = 0.0
    """When the newest event was written, Unix seconds."""
    finished: bool = False
    """Whether the last event is there: `finally` steps and report included."""
    seq: int = 0

    @property
    def fell_after_end(self) -> bool:
        """Whether the newest outage began after the run's end, by a rollback that failed: it is
        none of the run's own."""
        return 0.0 < self.ended < self.down_since

    @property
    def breach(self) -> GuardEvent | None:
        """The newest breach; None while no guard has acted."""
        return next((e for e in reversed(self.guards) if e.kind == "breach"), None)

    @property
    def over(self) -> bool:
        return self.state in ENDS

    @property
    def exit_code(self) -> Exit:
        """What a run that has ended so ends with."""
        return exit_code(self.state, self.decision, left=bool(self.serving.left))

    @property
    def worst(self) -> str:
        """The worst verdict so far; a later gate does not excuse an earlier one."""
        verdicts = {v.verdict for v in self.verdicts} | ({"HOLD"} if self.doubts else set())
        return next((verdict for verdict in ("NO-GO", "HOLD", "GO") if verdict in verdicts), "")

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
        decided_gates = {v.step for v in self.verdicts}
        return [
            s.id for s in self.steps
            if s.kind == "gate" and s.id not in decided_gates and s.state is not StepState.SKIPPED
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
        """The word that must accompany the decision everywhere, or "". That of a rehearsal wins, as
        one decides nothing."""
        if self.rehearsal:
            return Mark.REHEARSAL
        return Mark.DOUBTFUL if self.doubts else Mark.OVERRIDDEN if self.overridden else ""

    @property
    def rehearsal(self) -> dict[str, Any]:
        """`fault`, `speed` and `notes` of a rehearsal; empty for a real run."""
        return self.header.rehearsal or {}

    @property
    def allocation(self) -> str:
        """`Slurm job 12: GPUs 2` for a run inside an allocation of Slurm's; "" for any other."""
        held = self.header.allocation
        return f"Slurm job {held.get('job')}: {held.get('wish')}" if held else ""

    def measurement(self, scope: str) -> StepMeasurement:
        """How figures came about; an empty one where nothing is known of that."""
        return self.measured.get(scope) or StepMeasurement()

    def step(self, step_id: str) -> StepView | None:
        return next((s for s in self.steps if s.id == step_id), None)

    @property
    def current(self) -> StepView | None:
        """The step whose state changed last; it may be an earlier one, when it is done again."""
        touched = [s for s in self.steps if s.state is not StepState.PENDING]
        last = touched[-1] if touched else None
        return next((s for s in touched if s.id == self.latest), last)
