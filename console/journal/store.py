"""The journal: one SQLite file a run, written by its runner alone, read by everyone.

WAL with synchronous=FULL: a committed event survives the power button. An event is an intent
before an effect or a result after it; nothing is updated in place.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.errors import ConsoleError

SCHEMA_VERSION = 1
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


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `at`: Unix seconds. `data`: JSON-able, clean text only."""

    seq: int
    at: float
    kind: str
    step: str = ""
    attempt: int = 0
    data: dict[str, Any] = field(default_factory=dict)


class Journal:
    """The writer. One process, one thread at a time; every append is one durable commit."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA busy_timeout=2000")
            self._db.execute(_CREATE)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
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
        return [Event(r[0], r[1], r[2], r[3], r[4], _data(r[5])) for r in rows]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.since(0))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _query(self, seq: int, mode: str) -> list[tuple[Any, ...]]:
        if self._db is None:
            if not self.path.exists():
                raise sqlite3.OperationalError("no journal file")
            self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?{mode}", uri=True)
            self._db.execute("PRAGMA busy_timeout=1000")
        return self._db.execute(
            "SELECT seq, at, kind, step, attempt, data FROM event WHERE seq > ? ORDER BY seq",
            (seq,),
        ).fetchall()


def _data(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
