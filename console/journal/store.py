"""The journal: one SQLite file a run, written by its runner alone, read by everyone.

WAL with synchronous=FULL: a committed event survives the power button. An event is an intent
before an effect or a result after it; nothing is updated in place.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import ConsoleError, Exit
from console.journal.schema import DEEPEST, SCHEMA_VERSION, what_is_odd

MOST = 4_000_000
"""Characters of an event's data; a longer one was not written by this program."""
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
    """A newer program began it: it can be read as far as it is understood, and not gone on with."""

    exit_code = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `at`: Unix seconds. `data`: JSON-able, clean text only; its fields
    are those of console.journal.schema, unless `odd` says in a line why they are not."""

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
    """A viewer's side: read only, short transactions, a fresh statement each time.

    `mode=ro` needs a writable directory for the WAL index; where there is none (another
    user's run) the file is read as it stands, `immutable=1`, and opened anew on every read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = SCHEMA_VERSION
        """Of the schema that the file was written with; known when it was read."""
        self._db: sqlite3.Connection | None = None

    def since(self, seq: int) -> list[Event]:
        """Events after `seq`, oldest first. Raises JournalError."""
        try:
            rows = self._query(seq, "mode=ro")
        except sqlite3.Error:
            try:
                self.close()
                rows = self._query(seq, "immutable=1")
            except sqlite3.Error as error:
                raise JournalError("the journal cannot be read", str(error)) from error
            finally:
                self.close()
        return [_event(row, self.version) for row in rows]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _query(self, seq: int, mode: str) -> list[tuple[Any, ...]]:
        if self._db is None:
            if not self.path.exists():
                raise sqlite3.OperationalError("no journal file")
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?{mode}", uri=True)
            # bytes that are no text make one event odd, and not the file unreadable
            self._db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            self._db.execute("PRAGMA busy_timeout=1000")
        self.version = _version(self._db)
        return self._db.execute(
            "SELECT seq, at, substr(kind, 1, 200), substr(step, 1, 200), attempt,"
            " CASE WHEN length(data) <= ? THEN data END"
            " FROM event WHERE seq > ? ORDER BY seq",
            (MOST, seq),
        ).fetchall()


def events(path: Path) -> list[Event]:
    """Every event of a journal, oldest first. Raises JournalError."""
    reader = Reader(path)
    try:
        return reader.since(0)
    finally:
        reader.close()


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def check_version(path: Path) -> None:
    """Raises NewerJournal where a newer program began it, JournalError where it cannot be read."""
    reader = Reader(path)
    try:
        reader.since(2**62)
    finally:
        reader.close()
    _refuse_newer(reader.version, path)


def _refuse_newer(version: int, path: Path) -> None:
    """A journal that a newer program began is not gone on with. Raises NewerJournal."""
    if version > SCHEMA_VERSION:
        raise NewerJournal(
            f"the journal is of version {version}, and this program writes {SCHEMA_VERSION}",
            f"{path}", "go on with the program that began the run",
        )  # fmt: skip


def _event(row: tuple[Any, ...], version: int) -> Event:
    """A row as an event; one that the schema does not have says so, and readers pass it over."""
    seq, at, kind, step, attempt, text = row
    data = _data(text)
    sound = data if _sound(data, DEEPEST) else None
    odd = what_is_odd(at, kind, step, attempt, sound, version)
    if not odd:
        assert data is not None
        return Event(seq, at, kind, step, attempt, data)
    kind, step = (
        one.encode("utf-8", "replace").decode() if isinstance(one, str) else ""
        for one in (kind, step)
    )
    at = at if isinstance(at, float) else 0.0
    return Event(seq, at, kind, step, attempt if isinstance(attempt, int) else 0, data or {}, odd)


def _data(text: object) -> dict[str, Any] | None:
    """A JSON object; None where there is none."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sound(value: object, depth: int) -> bool:
    """Whether it ends, and its whole numbers are no longer than stored ones. Readers clean text."""
    if isinstance(value, dict):
        return depth > 0 and all(_sound(one, depth - 1) for one in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_sound(one, depth - 1) for one in value)
    return not isinstance(value, int) or abs(value) < 2**63
