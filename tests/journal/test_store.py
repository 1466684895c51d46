"""The journal: durable, in order, readable by anybody at any moment, and honest when torn; one of
every released version is readable, and an odd event is a line for every reader."""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.journal.events import KINDS
from console.journal.fold import _HANDLERS, fold
from console.journal.store import (
    SCHEMA_VERSION,
    Journal,
    JournalError,
    NewerJournal,
    Reader,
    Row,
    event_of,
)
from console.render.report.document import as_json, markdown

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path)
    yield journal
    journal.close()


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """A directory for somebody who may not write there: nobody where this is root."""
    user = os.geteuid()
    directory.chmod(0o555)
    os.seteuid(user or NOBODY)
    try:
        with pytest.raises(PermissionError):
            (directory / "probe").touch()
        yield
    finally:
        os.seteuid(user)
        directory.chmod(0o755)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users reach, as the parents of tmp_path are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


def fill(journal: Journal, count: int, start: int = 0) -> None:
    """The clock goes back from each to the next, which changes no order."""
    for number in range(start, start + count):
        journal.append(float(-number), "note", "step", number, {"n": number})


def read(path: Path, seq: int = 0) -> list[Row]:
    with closing(Reader(path)) as reader:
        return reader.rows(seq)


def numbers(path: Path, seq: int = 0) -> list[int]:
    return [row.data["n"] for row in read(path, seq) if row.data]


def test_events_come_in_order_and_from_where_a_reader_left_off(
    journal: Journal, path: Path
) -> None:
    fill(journal, 20)
    with closing(Reader(path)) as reader, closing(Reader(path)) as second:
        assert [e.seq for e in reader.since(0)] == list(range(1, 21))
        assert reader.since(20) == []
        fill(journal, 3, 20)
        new = [event_of(n + 1, float(-n), "note", "step", n, {"n": n}) for n in range(20, 23)]
        assert reader.since(20) == second.since(20) == new
        assert [e.seq for e in reader.since(0)] == list(range(1, 24))


def test_reading_while_it_is_written(journal: Journal, path: Path) -> None:
    total, seen = 100, list[int]()

    def follow() -> None:
        with closing(Reader(path)) as reader:
            while len(seen) < total:
                seen.extend(row.data["n"] for row in reader.rows(len(seen)) if row.data)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    fill(journal, total)
    follower.join(60)
    assert seen == list(range(total))


def test_the_pragmas_that_make_it_so(journal: Journal) -> None:
    one = {
        name: journal._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version")
    }
    assert one == {"journal_mode": "wal", "synchronous": 2, "user_version": 1}


def test_a_run_of_another_user_that_is_live_and_that_is_over(shared: Path) -> None:
    path = shared / "journal.db"
    with closing(Journal(path)) as journal:
        for number in range(6):
            fill(journal, 1, number)
            with read_only(shared):
                assert numbers(path) == list(range(number + 1))
    with read_only(shared):
        assert (numbers(path), numbers(path, 3)) == (list(range(6)), [3, 4, 5])
    assert [p.name for p in shared.iterdir()] == ["journal.db"]


def test_a_runner_that_is_killed_has_lost_nothing_it_got_a_number_for(shared: Path) -> None:
    """Every append is durable by itself, and another user reads them too."""
    path = shared / "journal.db"
    code = (
        "import os, sys; from pathlib import Path; from console.journal.store import Journal\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "print([j.append(1.0, 'n', '', 0, {'n': n}) for n in range(7)], flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    argv = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (-9, list(range(1, 8)))
    assert (shared / "journal.db-wal").stat().st_size > 0
    with read_only(shared):
        assert numbers(path) == list(range(7))


def test_what_is_no_journal_is_not_read_and_a_missing_one_is_not_made(path: Path) -> None:
    with pytest.raises(JournalError):
        read(path)
    assert not path.exists()
    for content in (b"", b"no database, but long enough to look at" * 50, b"SQLite format 3\0"):
        path.write_bytes(content)
        with pytest.raises(JournalError):
            read(path)


def test_a_torn_file_is_an_error_not_a_shorter_history(path: Path) -> None:
    with closing(Journal(path)) as journal:
        fill(journal, 500)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(JournalError):
        read(path)


def test_a_torn_write_ahead_log_loses_only_its_end(
    journal: Journal, path: Path, tmp_path: Path
) -> None:
    fill(journal, 10)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    wal = path.with_name("journal.db-wal").read_bytes()
    copy.with_name("journal.db-wal").write_bytes(wal[:-100])
    assert numbers(copy) == list(range(9))


def test_a_reader_recovers_when_the_journal_appears(path: Path) -> None:
    with closing(Reader(path)) as reader:
        with pytest.raises(JournalError):
            reader.since(0)
        with closing(Journal(path)) as journal:
            fill(journal, 2)
            assert len(reader.since(0)) == 2


def test_a_journal_that_cannot_be_made_and_one_that_is_closed(path: Path) -> None:
    for place in (path.parent / "missing" / "journal.db", path.parent):
        with pytest.raises(JournalError):
            Journal(place)
    journal = Journal(path)
    journal.close()
    with pytest.raises(JournalError):
        journal.append(0.0, "note", "", 0, {})


def test_a_path_with_characters_of_a_url(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=rwc#b %41" / "journal.db"
    path.parent.mkdir()
    with closing(Journal(path)) as journal:
        fill(journal, 1)
        assert len(read(path)) == 1


def test_data_that_is_no_object_is_empty(journal: Journal, path: Path) -> None:
    journal.append(1.0, "note", "", 0, {})
    for text in ("not json", "[1, 2]", "3", '"x"', "null", "{"):
        journal._db.execute("UPDATE event SET data = ?", (text,))
        assert [row.data for row in read(path)] == [None]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)  # fmt: skip


def test_any_json_comes_back_as_it_was(journal: Journal, path: Path) -> None:
    @settings(max_examples=60)
    @given(st.dictionaries(st.text(max_size=10), VALUES, max_size=4))
    def check(entry: dict[str, Any]) -> None:
        seq = journal.append(0.0, "note", "", 0, entry)
        assert read(path, seq - 1) == [Row(seq, 0.0, "note", "", 0, entry)]

    check()


def test_hostile_text_is_data(journal: Journal, path: Path) -> None:
    hostile = ["\ud800", "\x00", "\x1b[31m", "\u2028", "'; DROP TABLE event;"]
    for value in hostile:
        journal.append(0.0, "note", "", 0, {"text": value})
    assert [row.data for row in read(path)] == [{"text": text} for text in hostile]
    for (stored,) in journal._db.execute("SELECT data FROM event").fetchall():
        assert (stored.isascii(), stored.isprintable()) == (True, True)


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
    view = fold(
        [
            event_of(n, 1.0, "run.state", "", 0, data)
            for n, data in ((1, {}), (2, {"state": "running"}))
        ]
    )
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
        path = written(Path(directory) / "journal.db", found)
        for harmless in (False, True):
            events = Reader(path, harmless=harmless).since(0)
            view = fold(events)
            assert len(view.trouble) == sum(bool(event.odd) for event in events)
            markdown(view)
            as_json(view)


def test_every_kind_is_written_and_changes_the_view() -> None:
    root = Path(__file__).parents[2] / "console" / "runner"
    written = set(
        re.findall(r"\bevents\.(\w+)\(", "".join(map(Path.read_text, root.rglob("*.py"))))
    )
    kinds = {body.__name__ for body in KINDS.values()}
    assert kinds - written == {"Rung"}, "which is made of a rollback's line"
    assert KINDS.keys() == _HANDLERS.keys()
