"""What an event of the journal says: every kind with its fields, and the version they are of.

What was written by another version, cut short or forged is told apart here, once, where rows are
read: readers get events that have the fields named here with values of these types.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

SCHEMA_VERSION = 1
DEEPEST = 12
"""No real event is nested deeper."""
LATEST = 2**36
"""No real event is later, Unix seconds: clocks and calendars end before the year 9999."""


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING_APPROVAL = "waiting_approval"
    STOPPING = "stopping"
    ROLLING_BACK = "rolling_back"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    ROLLBACK_FAILED = "rollback_failed"


class StepState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    RETRY_WAIT = "retry_wait"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"


Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e18, le=1e18)]
At = Annotated[float, Field(allow_inf_nan=False, ge=0, le=LATEST)]
Pid = Annotated[int, Field(ge=0, lt=2**31)]
Table = dict[str, Any]
Judged = Literal["GO", "NO-GO", "HOLD"]


class StepRow(TypedDict):
    id: str
    title: str
    phase: str
    kind: str
    takes_s: NotRequired[Number | None]
    implicit: NotRequired[bool]
    final: NotRequired[bool]
    effects: NotRequired[list[str]]
    lessons: NotRequired[list[str]]


class Created(TypedDict):
    run_id: NotRequired[str]
    title: NotRequired[str]
    objective: NotRequired[str]
    playbook: NotRequired[str]
    digest: NotRequired[str]
    site: NotRequired[str]
    owner: NotRequired[str]
    version: NotRequired[str]
    inputs: NotRequired[Table]
    lessons: NotRequired[list[str]]
    restore_s: NotRequired[Number | None]
    machine: NotRequired[Table]
    baseline: NotRequired[Table]
    targets: NotRequired[list[Table]]
    lint: NotRequired[list[Table]]
    rehearsal: NotRequired[Table | None]
    steps: NotRequired[list[StepRow]]


class StateOfRun(TypedDict):
    state: Annotated[RunState, Field(strict=False)]
    reason: NotRequired[str]
    detail: NotRequired[str]
    until: NotRequired[At]


class StateOfStep(TypedDict):
    state: Annotated[StepState, Field(strict=False)]
    effects: NotRequired[list[str]]
    lines: NotRequired[list[str]]
    log: NotRequired[str]
    cause: NotRequired[str]
    detail: NotRequired[str]
    duration_s: NotRequired[Number | None]
    exit_code: NotRequired[int | None]


class Text(TypedDict):
    text: str


class Metrics(TypedDict):
    metrics: NotRequired[dict[str, Table]]
    scope: NotRequired[str]
    benchmark: NotRequired[Table]
    soak: NotRequired[Table]


class Criterion(TypedDict):
    metric: NotRequired[str]
    verdict: Judged
    why: str


class VerdictOf(TypedDict):
    verdict: Judged
    outcome: NotRequired[str]
    overridden: NotRequired[str]
    evidence: NotRequired[str]
    criteria: NotRequired[list[Criterion]]


class EnvelopeOf(TypedDict):
    envelope: Table


class PeaksOf(TypedDict):
    host: NotRequired[Table]
    gpu: NotRequired[dict[str, Table]]


class Moved(TypedDict):
    gate: str
    words: str
    who: str
    why: str


class Targets(TypedDict):
    targets: list[Table]
    moved: NotRequired[list[Moved]]


class Doubt(TypedDict):
    verdict: Judged
    words: str


class VerbOf(TypedDict):
    verb: str
    who: str
    why: NotRequired[str]
    args: NotRequired[Table]


class Input(TypedDict):
    name: str
    value: str


class Outage(TypedDict):
    down: bool
    restore_s: NotRequired[Number | None]


class Rung(TypedDict):
    t: NotRequired[Number]
    rung: NotRequired[str]
    state: NotRequired[str]
    detail: NotRequired[str]
    trigger: NotRequired[str]


class Guard(TypedDict):
    kind: str
    words: str
    at: NotRequired[At | None]
    cause: NotRequired[str]
    reasons: NotRequired[list[str]]
    killed: NotRequired[list[Table]]
    window: NotRequired[Table]
    curve: NotRequired[Table]
    limit: NotRequired[Table]


class Serving(TypedDict):
    tok_s: NotRequired[Number | None]
    degraded: NotRequired[bool]
    reference: NotRequired[Number | None]


class Service(TypedDict):
    service: str
    alive: bool
    kind: NotRequired[str]
    container: NotRequired[str]
    name: NotRequired[str]
    pid: NotRequired[Pid]
    start: NotRequired[int]


class Cutover(TypedDict):
    what: str
    service: NotRequired[str]
    url: NotRequired[str]
    to: NotRequired[str]


class Finished(TypedDict):
    pass


KINDS: dict[str, type] = {
    "run.created": Created, "run.state": StateOfRun, "run.note": Text, "run.finished": Finished,
    "step.state": StateOfStep, "step.say": Text, "metrics": Metrics, "verdict": VerdictOf,
    "envelope": EnvelopeOf, "peaks": PeaksOf, "targets": Targets, "doubt": Doubt, "verb": VerbOf,
    "input": Input, "outage": Outage, "rung": Rung, "guard": Guard, "serving": Serving,
    "service": Service, "cutover": Cutover,
}  # fmt: skip


class Head(TypedDict):
    """What every event has beside its data."""

    at: At
    kind: str
    step: str
    attempt: Annotated[int, Field(ge=0, lt=2**31)]


def what_is_odd(
    at: object, kind: object, step: object, attempt: object, data: object, version: int
) -> str:
    """Why a row is no event of this schema, in a line; "" when it is one."""
    head = {"at": at, "kind": kind, "step": step, "attempt": attempt}
    why = _why(Head, head)
    if not why and kind not in KINDS:
        why = "nobody here knows this kind"
    if not why and data is None:
        why = "its data is no JSON object, or one that is too long or too deep"
    why = why or _why(KINDS[str(kind)], data)
    if not why:
        return ""
    newer = f"; the journal is of version {version}, this program knows {SCHEMA_VERSION}"
    said = ascii(kind)[1:-1][:40]
    return f"an event of the journal makes no sense: {said}: {why}" + (
        newer if version > SCHEMA_VERSION else ""
    )


def _why(kind: type, value: object) -> str:
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ascii(".".join(map(str, first["loc"])))[1:-1]
        return f"{where[:60]}: {first['msg'][:120]}"
    return ""


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Built at the first event of its kind: a reader of few events does not wait for the rest."""
    return TypeAdapter(with_config(ConfigDict(strict=True))(kind))
