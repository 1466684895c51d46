"""The journal: durable, in order, readable by anybody at any moment, and honest when torn."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.journal.store import Event, Journal, JournalError, Reader

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
def unprivileged() -> Iterator[None]:
    """Somebody who may not write here: the tests' own user, or nobody instead of root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """A directory in which nobody but root can make a file."""
    directory.chmod(0o555)
    try:
        with unprivileged():
            with pytest.raises(PermissionError):
                (directory / "probe").touch()
            yield
    finally:
        directory.chmod(0o755)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users reach, as the parents of tmp_path are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


def fill(journal: Journal, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        journal.append(float(number), "note", "step", number, {"n": number})


def read(path: Path, seq: int = 0) -> list[Event]:
    with closing(Reader(path)) as reader:
        return reader.since(seq)


def numbers(path: Path, seq: int = 0) -> list[int]:
    return [event.data["n"] for event in read(path, seq)]


def test_what_is_appended_is_read(journal: Journal, path: Path) -> None:
    assert journal.append(12.5, "step.state", "build", 2, {"state": "running"}) == 1
    assert read(path) == [Event(1, 12.5, "step.state", "build", 2, {"state": "running"})]


def test_events_come_in_order_and_from_where_a_reader_left_off(
    journal: Journal, path: Path
) -> None:
    fill(journal, 20)
    with closing(Reader(path)) as reader, closing(Reader(path)) as second:
        assert [e.seq for e in reader.since(0)] == list(range(1, 21))
        assert reader.since(20) == []
        fill(journal, 3, 20)
        assert [e.data["n"] for e in reader.since(20)] == [20, 21, 22]
        assert reader.since(20) == second.since(20)
        assert [e.seq for e in reader.since(0)] == list(range(1, 24))


def test_time_that_goes_back_does_not_change_the_order(journal: Journal, path: Path) -> None:
    for at in (100.0, 50.0, 75.0):
        journal.append(at, "note", "", 0, {})
    assert [e.at for e in read(path)] == [100.0, 50.0, 75.0]


def test_a_reader_never_writes(journal: Journal, path: Path) -> None:
    fill(journal, 1)
    with closing(Reader(path)) as reader:
        reader.since(0)
        assert reader._db is not None
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._db.execute("DELETE FROM event")


def test_a_reader_in_a_transaction_does_not_hold_up_the_writer(
    journal: Journal, path: Path
) -> None:
    fill(journal, 3)
    count = "SELECT count(*) FROM event"
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute(count).fetchone() == (3,)
        fill(journal, 3, 3)
        assert reader.execute(count).fetchone() == (3,)
    assert len(read(path)) == 6


def test_reading_while_it_is_written(journal: Journal, path: Path) -> None:
    total, problems, seen = 100, [], list[int]()

    def follow() -> None:
        try:
            with closing(Reader(path)) as reader:
                while len(seen) < total:
                    seen.extend(e.data["n"] for e in reader.since(len(seen)))
        except Exception as error:
            problems.append(error)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    fill(journal, total)
    follower.join(60)
    assert (problems, seen) == ([], list(range(total)))


def test_a_reopened_journal_goes_on(path: Path) -> None:
    for start in (0, 3):
        with closing(Journal(path)) as journal:
            fill(journal, 3, start)
    assert [(e.seq, e.data["n"]) for e in read(path)] == [(n + 1, n) for n in range(6)]


def test_the_pragmas_that_make_it_so(journal: Journal) -> None:
    one = {
        name: journal._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version")
    }
    assert one == {"journal_mode": "wal", "synchronous": 2, "user_version": 1}


def test_a_run_of_another_user_that_is_live_and_that_is_over(shared: Path) -> None:
    path = shared / "journal.db"
    with closing(Journal(path)) as journal:
        fill(journal, 5)
        with read_only(shared):
            assert numbers(path) == list(range(5))
        fill(journal, 1, 5)
        with read_only(shared):
            assert len(read(path)) == 6
    assert [p.name for p in shared.iterdir()] == ["journal.db"]
    with read_only(shared):
        assert numbers(path) == list(range(6))
        assert len(read(path, 3)) == 3
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
        for number in range(30):
            journal.append(1.0, "note", "", number, {"text": "x" * 2000})
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
        assert [e.data for e in read(path)] == [{}]


data = st.dictionaries(
    st.text(max_size=10),
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.text(max_size=20),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)  # fmt: skip


def test_any_json_comes_back_as_it_was(journal: Journal, path: Path) -> None:
    @settings(max_examples=60)
    @given(data)
    def check(entry: dict[str, Any]) -> None:
        seq = journal.append(0.0, "note", "", 0, entry)
        assert read(path, seq - 1) == [Event(seq, 0.0, "note", "", 0, entry)]

    check()


def test_hostile_text_is_data(journal: Journal, path: Path) -> None:
    hostile = ["\ud800", "\x00", "\x1b[31m", "\u2028", "'; DROP TABLE event;"]
    for value in hostile:
        journal.append(0.0, "note", "", 0, {"text": value})
    assert [e.data["text"] for e in read(path)] == hostile
    for (stored,) in journal._db.execute("SELECT data FROM event").fetchall():
        assert (stored.isascii(), stored.isprintable()) == (True, True)
