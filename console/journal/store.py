"""The journal: one SQLite file per run, written by its runner alone, read by everyone.

WAL with synchronous=FULL: a committed event survives a power cut. An event is an intent before an
effect or a result after it; nothing is updated in place.

`KINDS` has every kind of event with its fields. Rows of another version, truncated or forged ones
are sorted out here, once, as they are read: readers get events with these fields and types. The
checks are written by hand because `attach` and `show` have to be quick, and a validation library is
not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import ConsoleError, Exit
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
    """A check for a list of such values."""

    def look(value: object) -> str:
        if not isinstance(value, list):
            return "is no list"
        return next((why for element in value if (why := check(element))), "")

    return look


def _fields(must: Mapping[str, Check] | None = None, **may: Check) -> Check:
    """A check for a table with all fields of `must`, and those of `may` if present; others pass."""
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
    flags=LIST, voids=LIST, levels=_or_none(TABLES), prompt_rates=_or_none(TABLES),
    cold=TABLE_MAYBE, protocol=TABLE_MAYBE,
    context=_or_none(_fields(server=TABLE_MAYBE, cards=_or_none(TABLES_BY_NAME))),
)  # fmt: skip
STEP = _fields(
    {"id": TEXT, "title": TEXT, "phase": TEXT, "kind": TEXT},
    takes_s=MAYBE, takes_from=TEXT, limit_s=MAYBE, implicit=FLAG, final=FLAG, effects=TEXTS,
    lessons=TEXTS,
)  # fmt: skip
CRITERION = _fields({"verdict": JUDGED, "why": TEXT}, metric=TEXT, lacks=TEXT)
FIGURES = {"done": NUMBER, "total": MAYBE, "unit": TEXT}
"""How far a step is; see console.common.progress.Figures."""
MOVED = _fields({"gate": TEXT, "words": TEXT, "who": TEXT, "why": TEXT})

KINDS: dict[str, Check] = {
    "run.created": _fields(
        run_id=TEXT, title=TEXT, objective=TEXT, playbook=TEXT, digest=TEXT, site=TEXT,
        owner=TEXT, version=TEXT, inputs=TABLE, lessons=TEXTS, restore_s=MAYBE, machine=TABLE,
        baseline=TABLE, targets=TABLES, lint=TABLES, rehearsal=_or_none(TABLE),
        allocation=_or_none(TABLE), steps=_every(STEP),
    ),
    "run.state": _fields(
        {"state": _one_of(*RunState)}, reason=TEXT, detail=TEXT, until=AT, offer=TEXT,
    ),
    "run.note": _fields({"text": TEXT}),
    "run.finished": _fields(),
    "step.state": _fields(
        {"state": _one_of(*StepState)}, effects=TEXTS, lines=TEXTS, log=TEXT, cause=TEXT,
        detail=TEXT, duration_s=MAYBE, exit_code=_or_none(CODE), warned=FLAG,
    ),
    "step.say": _fields({"text": TEXT}, run=TABLE, **FIGURES),
    "metrics": _fields(metrics=TABLES_BY_NAME, scope=TEXT, benchmark=BENCHMARK,
                       soak=_fields(critical=LIST), tune=_fields(points=LIST, argv=LIST),
                       contract=_fields(changes=TABLES, noisy=TEXTS, own_noise=TEXTS, apart=TEXTS),
                       quality=_fields(tasks=LIST, argv=LIST)),
    "verdict": _fields(
        {"verdict": JUDGED}, outcome=TEXT, overridden=TEXT, evidence=TEXT,
        criteria=_every(CRITERION),
    ),
    "again": _fields({"steps": TEXTS}),
    "envelope": _fields({"envelope": TABLE}),
    "peaks": _fields(host=TABLE, gpu=TABLES_BY_NAME),
    "targets": _fields({"targets": TABLES}, moved=_every(MOVED)),
    "doubt": _fields({"verdict": JUDGED, "words": TEXT}, moved=TEXT),
    "verb": _fields({"verb": TEXT, "who": TEXT}, why=TEXT, args=TABLE),
    "input": _fields({"name": TEXT, "value": TEXT}),
    "outage": _fields({"down": FLAG}, restore_s=MAYBE, proof=AT, url=TEXT),
    "rung": _fields(
        {}, t=NUMBER, stage=TEXT, state=TEXT, detail=TEXT, trigger=TEXT, **FIGURES
    ),
    "guard": _fields(
        {"kind": TEXT, "words": TEXT}, at=_or_none(AT), cause=TEXT, reasons=TEXTS, killed=TABLES,
        window=TABLE, curve=TABLE, limit=TABLE,
    ),
    "serving": _fields(
        tok_s=MAYBE, degraded=FLAG, reference=MAYBE, by=TEXT, looked=TEXT, garbled=TEXT,
        notes=TEXTS, left=TEXT,
    ),
    "service": _fields(
        {"service": TEXT, "alive": FLAG},
        kind=TEXT, container=TEXT, name=TEXT, pid=COUNT, start=TICKS,
    ),
    "cutover": _fields({"what": TEXT}, service=TEXT, url=TEXT, to=TEXT),
}  # fmt: skip
HEAD = _fields({"at": AT, "kind": TEXT, "step": TEXT, "attempt": COUNT})
"""Fields that every event has beside its data."""


def what_is_odd(
    at: object, kind: object, step: object, attempt: object, data: object, version: int
) -> str:
    """Why a row is no event of this schema, in a line; "" if it is one."""
    why = HEAD({"at": at, "kind": kind, "step": step, "attempt": attempt})
    if not why and kind not in KINDS:
        why = "this program does not know this kind"
    if not why and data is None:
        why = "its data is no JSON object, or one that is too long or too deep"
    why = why or KINDS[str(kind)](data)
    return senseless(kind, why, version) if why else ""


def senseless(kind: object, why: str, version: int = SCHEMA_VERSION) -> str:
    """The line of trouble for an event that readers skip."""
    newer = f"; the journal is of version {version}, this program knows {SCHEMA_VERSION}"
    kind_text = ascii(kind).strip("'")[:40]
    return f"an event of the journal makes no sense: {kind_text}: {why}" + (
        newer if version > SCHEMA_VERSION else ""
    )


MOST = 4_000_000
"""Most characters of an event's data; this program writes no longer one."""
_CREATE = """
CREATE TABLE IF NOT EXISTS event (
  seq INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  kind TEXT NOT NULL,
  step TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 0,
  data TEXT NOT NULL
)
"""


class JournalError(ConsoleError):
    """The journal cannot be written or read; no step starts without it."""


class NewerJournal(JournalError):
    """A newer program began the journal: it can be read in part, but not continued."""

    exit_code = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `at`: Unix seconds. `data`: JSON-able, clean text only; its fields
    are those of `KINDS`, unless `odd` says in a line why they are not."""

    seq: int
    at: float
    kind: str
    step: str = ""
    attempt: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    odd: str = field(default="", compare=False)


class Journal:
    """The writer. One process, one thread at a time; every append is one durable commit."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA busy_timeout=2000")
            _refuse_newer(_version(self._db), path)
            self._db.execute(_CREATE)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except NewerJournal:
            self._db.close()
            raise
        except sqlite3.Error as error:
            raise JournalError("the journal cannot be opened", str(error), f"{path}") from error

    def append(self, at: float, kind: str, step: str, attempt: int, data: dict[str, Any]) -> int:
        """Commit one event; returns its sequence number. Raises JournalError."""
        try:
            cursor = self._db.execute(
                "INSERT INTO event (at, kind, step, attempt, data) VALUES (?, ?, ?, ?, ?)",
                (at, kind, step, attempt, json.dumps(data, separators=(",", ":"))),
            )
        except sqlite3.Error as error:
            raise JournalError("the journal cannot be written", str(error)) from error
        return int(cursor.lastrowid or 0)

    def close(self) -> None:
        self._db.close()


class Reader:
    """Reads a journal for viewers: read only, short transactions, a fresh statement each time.

    `mode=ro` needs a writable directory for the WAL index; without one (another user's run) the
    file is read as it stands, `immutable=1`, and opened anew on every read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = SCHEMA_VERSION
        """Schema version of the file; known after the first read."""
        self._db: sqlite3.Connection | None = None

    def since(self, seq: int, kinds: Sequence[str] = (), most: int = -1) -> list[Event]:
        """Events after `seq`, oldest first; of some `kinds` alone, the first `most` of them (-1:
        all). Raises JournalError."""
        try:
            rows = self._query(seq, "mode=ro", kinds, most)
        except sqlite3.Error:
            try:
                self.close()
                rows = self._query(seq, "immutable=1", kinds, most)
            except sqlite3.Error as error:
                raise JournalError("the journal cannot be read", str(error)) from error
            finally:
                self.close()
        return [_event(row, self.version) for row in rows]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _query(self, seq: int, mode: str, kinds: Sequence[str], most: int) -> list[tuple[Any, ...]]:
        if self._db is None:
            if not self.path.exists():
                raise sqlite3.OperationalError("no journal file")
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?{mode}", uri=True)
            # bytes that are no text make one event odd, and not the file unreadable
            self._db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            self._db.execute("PRAGMA busy_timeout=1000")
        self.version = _version(self._db)
        of = f" AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
        return self._db.execute(
            "SELECT seq, at, substr(kind, 1, 200), substr(step, 1, 200), attempt,"
            " CASE WHEN length(data) <= ? THEN data END"
            f" FROM event WHERE seq > ?{of} ORDER BY seq LIMIT ?",
            (MOST, seq, *kinds, most),
        ).fetchall()


def events(path: Path, kinds: Sequence[str] = ()) -> list[Event]:
    """Every event of a journal, or those of some kinds, oldest first. Raises JournalError."""
    reader = Reader(path)
    try:
        return reader.since(0, kinds)
    finally:
        reader.close()


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def check_version(path: Path) -> None:
    """Raise NewerJournal if a newer program began it, JournalError if it is unreadable."""
    reader = Reader(path)
    try:
        reader.since(2**62)
    finally:
        reader.close()
    _refuse_newer(reader.version, path)


def _refuse_newer(version: int, path: Path) -> None:
    """Refuse to continue a journal that a newer program began. Raises NewerJournal."""
    if version > SCHEMA_VERSION:
        raise NewerJournal(
            f"the journal is of version {version}, and this program writes {SCHEMA_VERSION}",
            f"{path}", "continue with the version that began the run",
        )  # fmt: skip


def _event(row: tuple[Any, ...], version: int) -> Event:
    seq, at, kind, step, attempt, text = row
    return event_of(seq, at, kind, step, attempt, _data(text), version)


def event_of(
    seq: int, at: Any, kind: Any, step: Any, attempt: Any, data: Any, version: int = SCHEMA_VERSION
) -> Event:
    """A row as an event; one outside the schema is marked odd, and readers skip it."""
    table = data if isinstance(data, dict) else None
    odd = what_is_odd(at, kind, step, attempt, table if _sound(table, DEEPEST) else None, version)
    if not odd:
        return Event(seq, at, kind, step, attempt, table or {})
    kind, step = (
        label.encode("utf-8", "replace").decode() if isinstance(label, str) else ""
        for label in (kind, step)
    )
    at = at if isinstance(at, float) else 0.0
    attempt = attempt if isinstance(attempt, int) else 0
    return Event(seq, at, kind, step, attempt, table or {}, odd)


def _data(text: object) -> dict[str, Any] | None:
    """A JSON object; None if it is none."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sound(value: object, depth: int) -> bool:
    """Whether a value has at most `depth` levels and 64-bit integers; readers clean its text."""
    if isinstance(value, dict):
        return depth > 0 and all(_sound(element, depth - 1) for element in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_sound(element, depth - 1) for element in value)
    return not isinstance(value, int) or abs(value) < 2**63
