"""A journal of every released version is readable; an odd event is a line for every reader."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.journal.run_files import cleaned_event
from console.journal.run_view import fold
from console.journal.store import KINDS, SCHEMA_VERSION, Event, Journal, NewerJournal, Reader
from console.render.report.document import as_json, markdown

WRITTEN = re.compile(
    r'(?:record|append)\(\s*"([a-z]+(?:\.[a-z]+)?)"|^EVENT = "([a-z.]+)"$', re.MULTILINE
)
RELEASED = sorted((Path(__file__).parent / "data").glob("*.jsonl"))
GARBAGE: list[Any] = [
    None, True, -1, 10**400, 1e308, float("nan"), "", "x" * 5000, "\ud800", [], [[]], {}, {"a": 1},
]  # fmt: skip


def rows(released: Path) -> list[list[Any]]:
    return [json.loads(line) for line in released.read_text().splitlines()]


def written(path: Path, rows: list[list[Any]], version: int = SCHEMA_VERSION) -> Path:
    Journal(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        for _, *head, data in rows:
            text = data if isinstance(data, str) else json.dumps(data)
            db.execute(
                "INSERT INTO event (at, kind, step, attempt, data) VALUES (?, ?, ?, ?,"
                " CAST(? AS TEXT))",
                (*head, text.encode("utf-8", "surrogatepass")),
            )
        db.execute(f"PRAGMA user_version={version}")
    return path


@pytest.mark.parametrize("released", RELEASED, ids=lambda p: p.stem)
def test_a_released_journal_has_no_odd_event(released: Path, tmp_path: Path) -> None:
    view = fold(Reader(written(tmp_path / "journal.db", rows(released))).since(0))
    assert view.trouble == []
    assert view.finished


def test_a_newer_journal_is_read_and_not_gone_on_with(tmp_path: Path) -> None:
    path = written(tmp_path / "j.db", [[1, 1.0, "later", "", 0, {}]], SCHEMA_VERSION + 1)
    assert len(fold(Reader(path).since(0)).trouble) == 1
    with pytest.raises(NewerJournal):
        Journal(path)


def test_an_event_that_no_reader_can_use_is_a_line_of_trouble() -> None:
    view = fold([Event(1, 1.0, "run.state"), Event(2, 1.0, "run.state", data={"state": "running"})])
    assert (str(view.state), view.seq, len(view.trouble)) == ("running", 2, 1)
    view.trouble[:] = ["first", *("later" for _ in range(100))]
    assert as_json(view)["trouble"][0] == "first"
    assert "first" in markdown(view)
    assert markdown(view).count("later") < 100


def spoil(value: Any, dice: random.Random) -> Any:
    """The value with one thing in it lost or replaced by garbage."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.25:
        return dice.choice(GARBAGE)
    key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
    made = value.copy()
    if isinstance(made, dict) and dice.random() < 0.3:
        del made[key]
    else:
        made[key] = spoil(made[key], dice)
    return made


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_reader_falls_over_an_odd_journal(dice: random.Random) -> None:
    found = rows(dice.choice(RELEASED))
    for row in dice.sample(found, min(3, len(found))):
        if dice.random() < 0.2:
            row[2] = dice.choice([*KINDS, "unheard.of"])
        row[5] = "[" * 100_000 if dice.random() < 0.1 else spoil(row[5], dice)
    with TemporaryDirectory() as directory:
        events = Reader(written(Path(directory) / "journal.db", found)).since(0)
    view = fold(events)
    assert len(view.trouble) == sum(bool(event.odd) for event in events)
    markdown(view)
    as_json(view)
    fold(map(cleaned_event, events))


def test_whatever_the_program_writes_has_a_place_in_the_schema() -> None:
    """A kind that nobody entered would be passed over by every reader."""
    root = Path(__file__).parents[2] / "console" / "runner"
    written = {
        found[1] or found[2]
        for path in root.rglob("*.py")
        for found in WRITTEN.finditer(path.read_text())
    }
    assert {"run.state", "verdict", "peaks"} <= written
    assert written <= KINDS.keys()
