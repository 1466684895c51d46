"""What the journal adds to the commit that it stands on."""

import json
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from console.journal.store import Journal
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Row, in_turns

PAIRS = 800
MAX_RATIO = 3.0
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
    text = KIND + STEP + json.dumps(EVENT, separators=(",", ":")) + "0" * 9  # time, attempt
    with surroundings.workplace() as place:
        journal = Journal(place / "journal.db")
        bare = sqlite3.connect(place / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode=WAL")
        bare.execute("PRAGMA synchronous=FULL")
        bare.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, data TEXT NOT NULL)")

        def append() -> float:
            at = time.time()
            begun = time.perf_counter()
            journal.append(at, KIND, STEP, 1, EVENT)
            return time.perf_counter() - begun

        def commit() -> float:
            begun = time.perf_counter()
            bare.execute("INSERT INTO row (data) VALUES (?)", (text,))
            return time.perf_counter() - begun

        say(f"{len(text.encode())} bytes a row on {surroundings.filesystem()}")
        times = in_turns({"ours": append, "bare": commit}, PAIRS, warm_up=20)
        journal.close()
        bare.close()
    return [Row("Journal.append", "bare SQLite commit", times["ours"], times["bare"], MAX_RATIO)]
