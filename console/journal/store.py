"""The journal: one SQLite file per run, written by its runner alone, read by everyone.

WAL with synchronous=FULL: a committed event survives a power cut. An event is an intent before an
effect or a result after it; nothing is updated in place.

`console.journal.events` has every kind of event with its fields. Rows of another version, truncated
or forged ones are sorted out here, once, as they are read: readers get typed events.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from console.common import record
from console.common.errors import ConsoleError, Exit
from console.common.record import RecordError
from console.common.text import clean, cleaned
from console.journal import events
from console.journal.events import Body

SCHEMA_VERSION = 1
DEEPEST = 12
"""No real event is nested deeper."""


def odd_words(kind: object, why: str, version: int = SCHEMA_VERSION) -> str:
    """The line of trouble for an event that readers skip."""
    newer = f"; the journal is of version {version}, this program knows {SCHEMA_VERSION}"
    kind_text = ascii(kind).strip("'")[:40]
    return f"an event of the journal makes no sense: {kind_text}: {why}" + (
        newer if version > SCHEMA_VERSION else ""
    )


MAX_DATA = 4_000_000
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
    """One thing that happened. `at`: Unix seconds. `body` is what it says, None where `odd` says in
    a line why the row is no event."""

    seq: int
    at: float
    kind: str
    step: str = ""
    attempt: int = 0
    body: Body | None = None
    odd: str = field(default="", compare=False)


class Row(NamedTuple):
    """A row of the file as it stands, whoever wrote it; `data` is None where it is no JSON object,
    or one that is too long."""

    seq: int
    at: Any
    kind: Any
    step: Any
    attempt: Any
    data: dict[str, Any] | None


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
    file is read as it stands, `immutable=1`, and opened anew on every read. `harmless`: every text
    of the events is made clean, for whoever draws them.
    """

    def __init__(self, path: Path, *, harmless: bool = False) -> None:
        self.path, self.harmless = path, harmless
        self.version = SCHEMA_VERSION
        """Schema version of the file; known after the first read."""
        self._db: sqlite3.Connection | None = None

    def since(self, seq: int, kinds: Sequence[str] = (), most: int = -1) -> list[Event]:
        """Events after `seq`, oldest first; of some `kinds` alone, the first `most` of them (-1:
        all). Raises JournalError."""
        rows, of, harmless = self._rows(seq, kinds, most), record.table, self.harmless
        return [
            event_of(
                seq, at, kind, step, attempt, of(text) if isinstance(text, str) else None,
                self.version, harmless=harmless,
            )
            for seq, at, kind, step, attempt, text in rows
        ]  # fmt: skip

    def rows(self, seq: int, kinds: Sequence[str] = (), most: int = -1) -> list[Row]:
        """The same as rows. Raises JournalError."""
        return [
            Row(seq, at, kind, step, attempt, record.table(text) if isinstance(text, str) else None)
            for seq, at, kind, step, attempt, text in self._rows(seq, kinds, most)
        ]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _rows(self, seq: int, kinds: Sequence[str], most: int) -> list[tuple[Any, ...]]:
        try:
            return self._query(seq, "mode=ro", kinds, most)
        except sqlite3.Error:
            try:
                self.close()
                return self._query(seq, "immutable=1", kinds, most)
            except sqlite3.Error as error:
                raise JournalError("the journal cannot be read", str(error)) from error
            finally:
                self.close()

    def _query(self, seq: int, mode: str, kinds: Sequence[str], most: int) -> list[tuple[Any, ...]]:
        if self._db is None:
            if not self.path.exists():
                raise sqlite3.OperationalError("no journal file")
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?{mode}", uri=True)
            # bytes that are no text make one event odd, and not the file unreadable
            self._db.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            self._db.execute("PRAGMA busy_timeout=1000")
        self.version = _version(self._db)
        of = f" AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
        return self._db.execute(
            "SELECT seq, at, substr(kind, 1, 200), substr(step, 1, 200), attempt,"
            " CASE WHEN length(data) <= ? THEN data END"
            f" FROM event WHERE seq > ?{of} ORDER BY seq LIMIT ?",
            (MAX_DATA, seq, *kinds, most),
        ).fetchall()


def read_events(path: Path, kinds: Sequence[str] = ()) -> list[Event]:
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


def event_of(
    seq: int, at: Any, kind: Any, step: Any, attempt: Any, data: Any,
    version: int = SCHEMA_VERSION, *, harmless: bool = False,
) -> Event:  # fmt: skip
    """A row as an event; one outside the schema is marked odd, and readers skip it. `harmless`:
    every text of it is made clean."""
    reader = events.READERS.get(kind) if isinstance(kind, str) else None
    why = _why_odd(at, step, attempt, data, known=reader is not None)
    if reader is not None and not why:
        try:
            body = reader(cleaned(data) if harmless else data)
        except RecordError as error:
            why = str(error)
        else:
            return Event(seq, at, kind, clean(step) if harmless else step, attempt, body)
    odd = odd_words(kind, why, version)
    kind, step = (
        label.encode("utf-8", "replace").decode() if isinstance(label, str) else ""
        for label in (kind, step)
    )
    kind, step = (clean(kind), clean(step)) if harmless else (kind, step)
    at = at if isinstance(at, float) else 0.0
    attempt = attempt if isinstance(attempt, int) else 0
    return Event(seq, at, kind, step, attempt, None, odd)


def _why_odd(at: object, step: object, attempt: object, data: object, *, known: bool) -> str:
    """What keeps a row from being an event, whatever its kind; "" if nothing does."""
    if not (isinstance(at, float | int) and 0 <= at <= events.LATEST):
        return "at is no time"
    if not (isinstance(step, str) and isinstance(attempt, int) and 0 <= attempt < 2**31):
        return "its step is no text, or its attempt no count"
    if not known:
        return "this program does not know this kind"
    if not isinstance(data, dict) or not _sound(data, DEEPEST):
        return "its data is no JSON object, or one that is too long or too deep"
    return ""


def _sound(value: object, depth: int) -> bool:
    """Whether a value has at most `depth` levels and 64-bit integers; readers clean its text."""
    if isinstance(value, dict | list):
        if depth <= 0:
            return False
        for element in value.values() if isinstance(value, dict) else value:
            if not isinstance(element, str) and not _sound(element, depth - 1):
                return False
        return True
    return not isinstance(value, int) or abs(value) < 2**63
