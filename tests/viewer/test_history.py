"""Every run as a row; read anew only what changed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from console.frontends.tui.watch import history
from console.host import process
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from tests.viewer.conftest import Hand
from tests.waiting import until

Make = Callable[..., Hand]


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the journals that were really read."""
    found: list[str] = []
    read = history.read_view

    def counted(run: RunDir) -> RunView:
        found.append(run.id)
        return read(run)

    monkeypatch.setattr(history, "read_view", counted)
    return found


def test_rows_newest_first(hand: Make) -> None:
    assert history.rows() == []
    first, second = hand(name="a"), hand(name="b", title="The \x1b[2Jsecond")
    first.state("running")
    first.add("verdict", "one", verdict="NO-GO", outcome="retain", criteria=[])
    first.state("failed")
    second.runner()
    second.state("running")
    found = {row.playbook: row for row in history.rows()}
    assert list(found) == ["b", "a"]
    a, b = found["a"], found["b"]
    assert (a.id, a.state, a.decision, a.outcome, a.owner) == (
        first.run.id, "failed", "no_go", "retain", "me",
    )  # fmt: skip
    assert a.took_s is not None
    assert a.took_s >= 0
    assert a.created > 0
    assert (b.state, b.decision, b.took_s, b.title) == ("running", "", None, "The second")


def test_only_what_changed_is_read_again(hand: Make, reads: list[str]) -> None:
    made = [hand(name=f"r{number}") for number in range(5)]
    for one in made:
        one.state("running")
    assert len(history.rows()) == 5
    assert len(reads) == 5
    history.rows()
    assert len(reads) == 5
    made[2].state("failed")
    until(lambda: "failed" in [row.state for row in history.rows()])
    assert reads[5:] == [made[2].run.id]


def test_a_runner_that_dies_changes_the_word_without_a_journal(
    hand: Make, reads: list[str], begin: Callable[..., subprocess.Popen[bytes]]
) -> None:
    child = begin("sleep", "600")
    hand().live((child.pid, process.start_time(child.pid) or 0))
    assert history.rows()[0].state == "running"
    child.kill()
    child.wait()
    assert history.rows()[0].state == "interrupted"
    assert len(reads) == 1


def test_a_broken_journal_is_a_row_with_words(hand: Make) -> None:
    made, strange = hand(name="torn"), hand(name="strange")
    made.journal.close()
    for path in made.run.path.glob("journal.db*"):
        path.unlink()
    strange.add("run.state", state="of the future")
    found = {row.id: row for row in history.rows()}
    torn = found[made.run.id]
    assert (torn.state, torn.playbook, torn.owner) == ("unreadable", "torn", "me")
    assert torn.problem == "the journal cannot be read: no journal file"
    assert "of the future" in found[strange.run.id].problem


def test_a_run_that_is_removed_is_forgotten(hand: Make) -> None:
    made = hand()
    history.rows()
    assert made.run.path in history._cache
    made.journal.close()
    shutil.rmtree(made.run.path)
    assert history.rows() == []
    assert made.run.path not in history._cache
