"""What the journal adds to the commit that it stands on."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.journal.store import Journal
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Row, Way, in_turns

PAIRS = 800
BAR = Bar(most_ratio=3.0)
KIND, STEP = "step.state", "candidate.benchmark"
EVENT: dict[str, Any] = {
    "state": "failed",
    "duration_s": 184.512,
    "detail": "the candidate decodes 31.8 tok/s, its reference is 42.0 tok/s",
    "cause": "output_invalid",
    "exit_code": 3,
    "lines": ["slot update: id 0 | task 17 | prompt done, n_past = 512, n_tokens = 512"] * 3,
}


def run(say: Callable[[str], None]) -> list[Row]:
    """`Journal.append` against a bare WAL, synchronous=FULL commit of the same bytes."""
    with surroundings.workplace() as place:
        journal = Journal(place / "journal.db")
        bare = _bare(place / "bare.db")
        text = KIND + STEP + json.dumps(EVENT, separators=(",", ":")) + "0" * 9  # time, attempt
        say(f"{len(text.encode())} bytes a row on {surroundings.filesystem(place)}")
        times = in_turns({"ours": _append(journal), "bare": _commit(bare, text)}, PAIRS, warm_up=20)
        journal.close()
        bare.close()
    return [Row("Journal.append", "bare SQLite commit", times["ours"], times["bare"], BAR)]


def _append(journal: Journal) -> Way:
    def way() -> float:
        at = time.time()
        begun = time.perf_counter()
        journal.append(at, KIND, STEP, 1, EVENT)
        return time.perf_counter() - begun

    return way


def _bare(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, data TEXT NOT NULL)")
    return database


def _commit(database: sqlite3.Connection, text: str) -> Way:
    def way() -> float:
        begun = time.perf_counter()
        database.execute("INSERT INTO row (data) VALUES (?)", (text,))
        return time.perf_counter() - begun

    return way
