"""What an event of the journal says: every kind with its fields, and the version they are of.

What was written by another version, cut short or forged is told apart here, once, where rows are
read: readers get events that have the fields named here with values of these types. Checked by
hand: `attach` and `show` have to be quick, and a library that builds validators is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from console.journal.state import RunState, StepState

SCHEMA_VERSION = 1
DEEPEST = 12
"""No real event is nested deeper."""
LATEST = 2**36
"""No real event is later, Unix seconds: clocks and calendars end before the year 9999."""

Check = Callable[[object], str]
"""Why a value is not of a type, in a few words; "" when it is."""


def _type(words: str, fits: Callable[[object], bool]) -> Check:
    return lambda value: "" if fits(value) else words


def _whole(value: object, most: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most


def _number(value: object, least: float, most: float) -> bool:
    # what is no number at all compares as False
    return isinstance(value, int | float) and value is not True and least <= value <= most


def _or_none(check: Check) -> Check:
    return lambda value: "" if value is None else check(value)


def _one_of(*names: str) -> Check:
    return lambda value: "" if value in names else f"{ascii(value)[:40]} is not known here"


def _every(check: Check) -> Check:
    """A list of such values."""

    def look(value: object) -> str:
        if not isinstance(value, list):
            return "is no list"
        return next((why for one in value if (why := check(one))), "")

    return look


def _fields(must: Mapping[str, Check] | None = None, **may: Check) -> Check:
    """A table with all fields of `must`, and those of `may` where they are there; others pass."""
    known = {**(must or {}), **may}

    def look(value: object) -> str:
        if not isinstance(value, dict):
            return "is no table"
        for name in must or {}:
            if name not in value:
                return f"{name} is missing"
        for name, check in known.items():
            if name in value and (why := check(value[name])):
                return f"{name} {why}"
        return ""

    return look


TEXT = _type("is no text", lambda value: isinstance(value, str))
FLAG = _type("is neither true nor false", lambda value: isinstance(value, bool))
TABLE = _type("is no table", lambda value: isinstance(value, dict))
NUMBER = _type("is no number", lambda value: _number(value, -1e18, 1e18))
AT = _type("is no time", lambda value: _number(value, 0, LATEST))
COUNT = _type("is no count", lambda value: _whole(value, 2**31))
TICKS = _type("is no count", lambda value: _whole(value, 2**63))
CODE = _type("is no whole number", lambda v: isinstance(v, int) and not isinstance(v, bool))
TEXTS, TABLES = _every(TEXT), _every(TABLE)
MAYBE = _or_none(NUMBER)
JUDGED = _one_of("GO", "NO-GO", "HOLD")
TABLES_BY_NAME = _type(
    "is no table of tables",
    lambda value: isinstance(value, dict) and all(isinstance(v, dict) for v in value.values()),
)
LIST = _or_none(_type("is no list", lambda value: isinstance(value, list)))
TABLE_MAYBE = _or_none(TABLE)
BENCHMARK = _fields(
    flags=LIST, voids=LIST, levels=_or_none(TABLES), cold=TABLE_MAYBE, protocol=TABLE_MAYBE,
    context=_or_none(_fields(server=TABLE_MAYBE, cards=_or_none(TABLES_BY_NAME))),
)  # fmt: skip
STEP = _fields(
    {"id": TEXT, "title": TEXT, "phase": TEXT, "kind": TEXT},
    takes_s=MAYBE, implicit=FLAG, final=FLAG, effects=TEXTS, lessons=TEXTS,
)  # fmt: skip
CRITERION = _fields({"verdict": JUDGED, "why": TEXT}, metric=TEXT)
MOVED = _fields({"gate": TEXT, "words": TEXT, "who": TEXT, "why": TEXT})

KINDS: dict[str, Check] = {
    "run.created": _fields(
        run_id=TEXT, title=TEXT, objective=TEXT, playbook=TEXT, digest=TEXT, site=TEXT,
        owner=TEXT, version=TEXT, inputs=TABLE, lessons=TEXTS, restore_s=MAYBE, machine=TABLE,
        baseline=TABLE, targets=TABLES, lint=TABLES, rehearsal=_or_none(TABLE),
        steps=_every(STEP),
    ),
    "run.state": _fields({"state": _one_of(*RunState)}, reason=TEXT, detail=TEXT, until=AT),
    "run.note": _fields({"text": TEXT}),
    "run.finished": _fields(),
    "step.state": _fields(
        {"state": _one_of(*StepState)}, effects=TEXTS, lines=TEXTS, log=TEXT, cause=TEXT,
        detail=TEXT, duration_s=MAYBE, exit_code=_or_none(CODE),
    ),
    "step.say": _fields({"text": TEXT}),
    "metrics": _fields(metrics=TABLES_BY_NAME, scope=TEXT, benchmark=BENCHMARK,
                       soak=_fields(critical=LIST)),
    "verdict": _fields(
        {"verdict": JUDGED}, outcome=TEXT, overridden=TEXT, evidence=TEXT,
        criteria=_every(CRITERION),
    ),
    "envelope": _fields({"envelope": TABLE}),
    "peaks": _fields(host=TABLE, gpu=TABLES_BY_NAME),
    "targets": _fields({"targets": TABLES}, moved=_every(MOVED)),
    "doubt": _fields({"verdict": JUDGED, "words": TEXT}),
    "verb": _fields({"verb": TEXT, "who": TEXT}, why=TEXT, args=TABLE),
    "input": _fields({"name": TEXT, "value": TEXT}),
    "outage": _fields({"down": FLAG}, restore_s=MAYBE, proof=AT),
    "rung": _fields(t=NUMBER, stage=TEXT, state=TEXT, detail=TEXT, trigger=TEXT),
    "guard": _fields(
        {"kind": TEXT, "words": TEXT}, at=_or_none(AT), cause=TEXT, reasons=TEXTS, killed=TABLES,
        window=TABLE, curve=TABLE, limit=TABLE,
    ),
    "serving": _fields(tok_s=MAYBE, degraded=FLAG, reference=MAYBE),
    "service": _fields(
        {"service": TEXT, "alive": FLAG},
        kind=TEXT, container=TEXT, name=TEXT, pid=COUNT, start=TICKS,
    ),
    "cutover": _fields({"what": TEXT}, service=TEXT, url=TEXT, to=TEXT),
}  # fmt: skip
HEAD = _fields({"at": AT, "kind": TEXT, "step": TEXT, "attempt": COUNT})
"""What every event has beside its data."""


def what_is_odd(
    at: object, kind: object, step: object, attempt: object, data: object, version: int
) -> str:
    """Why a row is no event of this schema, in a line; "" when it is one."""
    why = HEAD({"at": at, "kind": kind, "step": step, "attempt": attempt})
    if not why and kind not in KINDS:
        why = "nobody here knows this kind"
    if not why and data is None:
        why = "its data is no JSON object, or one that is too long or too deep"
    why = why or KINDS[str(kind)](data)
    return senseless(kind, why, version) if why else ""


def senseless(kind: object, why: str, version: int = SCHEMA_VERSION) -> str:
    """The line of trouble for an event that readers pass over."""
    newer = f"; the journal is of version {version}, this program knows {SCHEMA_VERSION}"
    said = ascii(kind).strip("'")[:40]
    return f"an event of the journal makes no sense: {said}: {why}" + (
        newer if version > SCHEMA_VERSION else ""
    )
