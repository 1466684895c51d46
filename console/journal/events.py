"""The events of a run: a dataclass for each kind.

Writers pass one to `Context.record`, `console.journal.store` writes its JSON object into a row, and
`READERS` make it of a row again; `console.journal.fold` and whoever prints events read its
attributes. Rows of another version, truncated or forged ones are refused there, with the key;
a key that no field has is left alone, because a newer version may have written it.

Times are Unix seconds, durations (`…_s`) seconds, sizes bytes and rates tokens a second. Text may
hold anything: who prints it cleans it. A field that was not given is not written, so that the row
of an event has the keys that its writer named, and a missing key and null stay two things.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    ClassVar,
    NotRequired,
    Self,
    TypedDict,
    TypeVar,
    dataclass_transform,
)

from console.common import record
from console.common.record import Key, ReadBy, RecordError
from console.journal.state import RunState, StepState

LATEST = 2**36
"""No real event is later, Unix seconds: clocks and calendars end before the year 9999."""


# -- how values are read ---------------------------------------------------------------------------
# A value stays as it stands in the row, because it is written again in other forms: 1 is not 1.0.


def _must(expected: str, fits: Callable[[Any], bool]) -> ReadBy:
    def convert(value: object) -> object:
        if not fits(value):
            raise RecordError(expected)
        return value

    return ReadBy(convert)


def is_whole(value: object, most: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most


def is_number(value: object, least: float = -1e18, most: float = 1e18) -> bool:
    # what is no number at all compares as False
    return isinstance(value, int | float) and value is not True and least <= value <= most


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise RecordError("a text")
    return value


def _one_of(known: Iterable[str]) -> ReadBy:
    """One of the words that this program knows; a later version may have more."""
    words = {str(word): word for word in known}

    def convert(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise RecordError(f"a word known here, not {ascii(value)[:40]}")
        return words[value]

    return ReadBy(convert)


def _rows(value: object) -> list[dict[str, Any]]:
    """The JSON objects of a list; what else is in it is left out."""
    return [each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict)]


def _are(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _is_table_of_tables(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def _shaped(shape: type, *, several: bool = False) -> ReadBy:
    """A table as it stands, that a TypedDict describes as far as readers rely on it; or a list of
    such tables."""

    def convert(value: Any) -> object:
        if several and not isinstance(value, list):
            raise RecordError("a list")
        for table in value if several else [value]:
            record.reader(shape)(table)
        return value

    return ReadBy(convert)


Text = Annotated[str, ReadBy(_text)]
Flag = bool
Table = Annotated[dict[str, Any], _must("a JSON object", lambda value: isinstance(value, dict))]
Tables = Annotated[list[dict[str, Any]], _must("a list of JSON objects", _are(dict))]
TablesByName = Annotated[
    dict[str, dict[str, Any]], _must("a JSON object of JSON objects", _is_table_of_tables)
]
Rows = Annotated[list[dict[str, Any]], ReadBy(_rows)]
Texts = Annotated[list[str], _must("a list of texts", _are(str))]
List = Annotated[list[Any], _must("a list", lambda value: isinstance(value, list))]
Number = Annotated[float, _must("a number", is_number)]
At = Annotated[float, _must("a time", lambda value: is_number(value, 0, LATEST))]
Count = Annotated[int, _must("a count", lambda value: is_whole(value, 2**31))]
Ticks = Annotated[int, _must("a count", lambda value: is_whole(value, 2**63))]
Code = Annotated[
    int, _must("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool))
]
RunWord = Annotated[RunState, _one_of(RunState)]
StepWord = Annotated[StepState, _one_of(StepState)]
VerdictWord = Annotated[str, _one_of(("GO", "NO-GO", "HOLD"))]


# -- one event -------------------------------------------------------------------------------------


class Body:
    """What an event says. `given`: the names of the fields that its writer, or its row, has; with
    none of them it is False."""

    __slots__ = ("given",)
    kind: ClassVar[str] = ""
    """The kind of its events, as rows have it."""
    given: tuple[str, ...]

    def __new__(cls, **fields: Any) -> Self:
        body = object.__new__(cls)
        _set(body, "given", tuple(fields))
        return body

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and record.plain(self) == record.plain(other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data()})"

    def data(self) -> dict[str, Any]:
        """The JSON object of its row."""
        return record.plain(self, self.given)

    def changed(self, **fields: Any) -> Self:
        """The same with other values of these fields."""
        return type(self)(**self.fields() | fields)

    def fields(self) -> dict[str, Any]:
        """The fields that are given, by name."""
        return {name: getattr(self, name) for name in self.given}


_set = object.__setattr__  # whose lookup takes as long as its work
KINDS: dict[str, type[Body]] = {}
"""Every kind of event there is."""
READERS: dict[str, Callable[[object], Body]] = {}
"""What makes an event of a kind of a decoded JSON value, and raises RecordError."""
T = TypeVar("T")
BodyType = TypeVar("BodyType", bound=Body)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def body_type(body: type[T]) -> type[T]:
    """A dataclass that is frozen for the type checker, which every change of the program passes: to
    be frozen as it runs too would take twice the time to import and to make one. `Body` has its
    comparison and its text, for the same reason."""
    return dataclass(slots=True, kw_only=True, eq=False, repr=False)(body)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _event(body: type[BodyType]) -> type[BodyType]:
    """The same, entered in KINDS."""
    made = body_type(body)
    KINDS[made.kind], READERS[made.kind] = made, record.reader(made)
    return made


# -- the run ---------------------------------------------------------------------------------------


@body_type
class PlannedStep:
    """A step of the plan, as the run begins."""

    id: Text
    title: Text
    phase: Text
    kind: Text
    takes_s: Number | None = None
    takes_from: Text = ""
    """Where `takes_s` is from, in words; "" for the playbook."""
    limit_s: Number | None = None
    implicit: Flag = False
    final: Flag = False
    effects: Texts = field(default_factory=list)
    lessons: Texts = field(default_factory=list)


@_event
class RunCreated(Body):
    """The first event of a run: what a report needs to be read alone."""

    kind = "run.created"
    run_id: Text = ""
    title: Text = ""
    objective: Text = ""
    playbook: Text = ""
    digest: Text = ""
    """Of the playbook, in hexadecimal digits."""
    site: Text = ""
    owner: Text = ""
    inputs: Table = field(default_factory=dict)
    lessons: Texts = field(default_factory=list)
    """Ids that the playbook names."""
    restore_s: Number | None = None
    """How long a restore took in an earlier run."""
    version: Text = ""
    """Of the console that began the run."""
    machine: Table = field(default_factory=dict)
    baseline: Table = field(default_factory=dict)
    targets: Tables = field(default_factory=list)
    lint: Tables = field(default_factory=list)
    rehearsal: Table | None = None
    allocation: Table | None = None
    """`job` and `wish`, of a run inside an allocation of Slurm's."""
    steps: list[PlannedStep] = field(default_factory=list)


@_event
class RunStateChange(Body):
    """The run enters a state. `until`: when a pending approval expires; `offer`: what a paused run
    can measure again, in words."""

    kind = "run.state"
    state: RunWord
    reason: Text = ""
    detail: Text = ""
    until: At = 0.0
    offer: Text = ""


@_event
class RunNote(Body):
    """Something that a person should know, and that changes nothing. `by_others`: others have
    started a server again while the run went on, which its report names."""

    kind = "run.note"
    text: Text
    by_others: Flag = False


@_event
class RunFinished(Body):
    """The last event: the steps of `finally` and the report are done."""

    kind = "run.finished"


@body_type
class MovedTarget:
    """A threshold that a retry with other inputs has changed: what is said of it, by whom."""

    gate: Text = ""
    words: Text = ""
    who: Text = ""
    why: Text = ""


@_event
class Targets(Body):
    """The thresholds of the gates from now on, after a retry with other inputs."""

    kind = "targets"
    targets: Tables
    moved: list[MovedTarget] = field(default_factory=list)


@_event
class Verb(Body):
    """A person, the guard or the runner itself asks for something."""

    kind = "verb"
    verb: Text
    who: Text
    why: Text = ""
    args: Table = field(default_factory=dict)
    what: Text = ""
    """What a `promote` has made of the cutover."""


@_event
class Input(Body):
    """An input has another value from now on; a secret one is hidden."""

    kind = "input"
    name: Text
    value: Text


# -- its steps -------------------------------------------------------------------------------------


@_event
class StepStateChange(Body):
    """A step enters a state. `effects` and `log` (a path) come with the intent; the others with the
    result: the last `lines` of output, why it ended (`cause`, a word of Cause, and `detail`)."""

    kind = "step.state"
    state: StepWord
    effects: Texts = field(default_factory=list)
    lines: Texts = field(default_factory=list)
    log: Text = ""
    cause: Text = ""
    detail: Text = ""
    duration_s: Number | None = None
    exit_code: Code | None = None
    warned: Flag = False


@_event
class StepSay(Body):
    """What a running step says. With `done` it says how far it is, of `total` if that is known;
    `unit`: see console.common.progress.Figures. `run`: the figures of a run of a benchmark."""

    kind = "step.say"
    text: Text
    run: Table | None = None
    done: Number | None = None
    total: Number | None = None
    unit: Text = ""


@_event
class Again(Body):
    """These steps are open again: what they measured is measured anew."""

    kind = "again"
    steps: Texts


# -- what was measured and decided -----------------------------------------------------------------


class _Surroundings(TypedDict, total=False):
    server: Table | None
    cards: TablesByName | None


class _Benchmark(TypedDict, total=False):
    """What readers rely on in the tables of `Metrics` and `Verdict`; they have more keys."""

    flags: List | None
    voids: List | None
    levels: Tables | None
    prompt_rates: Tables | None
    cold: Table | None
    protocol: Table | None
    context: _Surroundings | None


class _Lists(TypedDict, total=False):
    critical: List | None
    points: List | None
    tasks: List | None
    argv: List | None


class _Contract(TypedDict, total=False):
    changes: Tables
    noisy: Texts
    own_noise: Texts
    apart: Texts


class _Criterion(TypedDict):
    verdict: VerdictWord
    why: Text
    metric: NotRequired[Text]
    lacks: NotRequired[Text]


Lists = Annotated[dict[str, Any], _shaped(_Lists)]


@_event
class Metrics(Body):
    """Figures by name, and how they came about. `scope`: what they are of, `STEP.baseline` for the
    baseline's; "" for the step itself."""

    kind = "metrics"
    metrics: TablesByName = field(default_factory=dict)
    scope: Text = ""
    benchmark: Annotated[dict[str, Any], _shaped(_Benchmark)] | None = None
    soak: Lists | None = None
    tune: Lists | None = None
    contract: Annotated[dict[str, Any], _shaped(_Contract)] | None = None
    quality: Lists | None = None


@_event
class Verdict(Body):
    """What a gate decides. `criteria`: {metric, verdict, why} and `lacks`, the step that measured
    too few samples; `overridden`: who overrode it and why; `evidence`: a hash of all figures."""

    kind = "verdict"
    verdict: VerdictWord
    outcome: Text = ""
    overridden: Text = ""
    evidence: Text = ""
    criteria: Annotated[list[dict[str, str]], _shaped(_Criterion, several=True)] = field(
        default_factory=list
    )


@_event
class Doubt(Body):
    """A verdict that the baseline's later figures do not confirm: what it would be, and why.
    `moved`: by how much the baseline moved, in words."""

    kind = "doubt"
    verdict: VerdictWord
    words: Text
    moved: Text = ""


@_event
class Envelope(Body):
    """What a checkpoint step predicts that a load will take; see console.models.sizing."""

    kind = "envelope"
    envelope: Table


@_event
class Peaks(Body):
    """What the machine used at most since the run began; see console.runner.peaks. `gpu`: figures
    by card; `n`: looks; `trouble`: why no card answers."""

    kind = "peaks"
    gpu: TablesByName = field(default_factory=dict)
    host: Table = field(default_factory=dict)
    n: Count = 0
    trouble: Text = ""


# -- services and the baseline ---------------------------------------------------------------------


@_event
class Service(Body):
    """A service of the run is up, as a process (`pid`, `start` in clock ticks after boot) or a
    container (its id), or it is no longer."""

    kind = "service"
    service: Text
    alive: Flag
    runs_as: Annotated[Text, Key("kind")] = ""
    """`process` or `container`; "" in what an earlier version has left incomplete."""
    container: Text = ""
    name: Text = ""
    pid: Count = 0
    start: Ticks = 0


@_event
class Outage(Body):
    """The baseline is down from now on, or up again. `proof`: the newest proof that it served
    before, 0.0 for none; `restore_s`: how long its restore took."""

    kind = "outage"
    down: Flag
    restore_s: Number | None = None
    proof: At | None = None
    url: Text = ""


@_event
class Serving(Body):
    """The baseline was measured or proven by `by`: its speed, the `reference` that it has to reach,
    whether it is slower. `garbled`: the garbage that it answers; `left`: what still runs beside it;
    `looked`: the address of which only the health path was asked."""

    kind = "serving"
    tok_s: Number | None = None
    degraded: Flag = False
    reference: Number | None = None
    by: Text = ""
    looked: Text = ""
    garbled: Text = ""
    notes: Texts = field(default_factory=list)
    left: Text = ""


@_event
class Cutover(Body):
    """Clients of the baseline's `url` reach `service` at `to`: `what` is switched, proven (at
    `tok_s`), stays or promoted (by `who`); back or rolled back if they no longer do."""

    kind = "cutover"
    what: Text
    service: Text = ""
    url: Text = ""
    to: Text = ""
    tok_s: Number | None = None
    who: Text = ""
    why: Text = ""


@_event
class Rung(Body):
    """A line of a rollback, see console.recovery.rollback.progress. `rung`: its stage; `state`:
    begin, note, ok or failed; `t`: seconds since the trigger. With `done` it says how far a load
    is; only the last line has what follows that."""

    kind = "rung"
    trigger: Text = ""
    rung: Text = ""
    state: Text = ""
    at: Any = None
    t: Number = 0
    detail: Text = ""
    done: Number | None = None
    total: Number | None = None
    unit: Text = ""
    serving: Any = None
    degraded: Any = None
    tok_s: Any = None
    reference: Any = None
    restore_s: Any = None
    nothing_to_do: Any = None
    beside: Any = None
    remark: Any = None
    left: Any = None
    manual: Any = None


def rung_of(line: dict[str, Any]) -> Rung:
    """The event of a rollback's line, without what is wrong in it: whoever rolls back has no time
    to be refused a line."""
    return record.lenient(Rung, line)


@body_type
class Breach(Body):
    """What a sentinel did and why, as breach.json has it and as the journal keeps it; it is False
    where nothing is known. `at` and `wall`: the Unix second of the kill; `mono`: the same on the
    monotonic clock, as `crossed`, when the limit was passed; `gap_s`: for how long nothing had been
    read before; `cause`: guard, lease or allocation; `reason` and `reasons`: in words; `limit`: see
    console.recovery.guard.config.Limit; `of`, `value`, `rate`, `tte_s`: whose figure it was, how
    high, how fast it rose, and the seconds until all was full; `killed`: a row for each target;
    `refused`: what may not be killed; `curve`: of that figure; `window`: rows of [Unix second, RAM
    available, swap used, full %]; `written_s` and `empty_s`: until the first signal, and until all
    was gone."""

    at: At | None = None
    wall: Number | None = None
    mono: Number | None = None
    crossed: Number | None = None
    cause: Text = ""
    run_id: Text = ""
    reason: Text = ""
    reasons: Texts = field(default_factory=list)
    limit: Table = field(default_factory=dict)
    value: Number | None = None
    of: Text = ""
    tte_s: Number | None = None
    rate: Number | None = None
    curve: Table = field(default_factory=dict)
    gap_s: Number | None = None
    killed: Rows = field(default_factory=list)
    refused: Texts = field(default_factory=list)
    written_s: Number | None = None
    empty_s: Number | None = None
    window: Table = field(default_factory=dict)


@_event
class Guard(Breach):
    """A message of the sentinel or its watcher: `sign` is watching, warn, act, clear, restarted,
    gone, lease (it runs out in `left_s`) or breach, which alone has the fields of one."""

    kind = "guard"
    sign: Annotated[Text, Key("kind")]
    words: Text
    left_s: Number | None = None
