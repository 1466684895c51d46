"""Every run as a row, and what every command says of one whose runner is gone."""

import io
import json
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

from console import cli
from console.common.errors import Exit
from console.frontends.cli.follow import Follow
from console.frontends.tui.watch import history
from console.host import process
from console.journal.run_dir import RunDir, RunMeta, create
from console.journal.run_view import RunView
from console.journal.store import SCHEMA_VERSION, Journal
from console.recovery.rollback import evidence, live
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.trigger import Lock
from tests.children import end
from tests.waiting import some, until
from tests.watch.conftest import Hand

Make = Callable[..., Hand]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
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
    assert some(a.took_s) >= 0
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
    end(child)
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


# -- a run whose runner is gone --------------------------------------------------------------------


def bare(begun: float) -> RunDir:
    """A run that was killed before it said its name."""
    meta = RunMeta("", "/x/book.yaml", "/x", "", "/x/s.yaml", "/x", owner="me", created=begun)
    run = create("book", meta, "", "")
    Journal(run.journal).close()
    return run


@pytest.mark.parametrize("named", [False, True])
def test_a_run_that_never_began(hand: Make, capsys: Capture, named: bool) -> None:
    begun = time.time()
    run = hand().run if named else bare(begun)
    [row] = history.rows()
    assert (row.state, abs(row.created - begun) < 60, row.playbook) == ("never began", True, "book")
    assert cli.main(["show", run.id, "--json"]) == Exit.HOLD
    assert json.loads(capsys.readouterr().out)["state"] == "never began"
    assert cli.main(["show", run.id]) == Exit.HOLD
    told = capsys.readouterr().out
    assert ("1970" in told, "omni-console resume" in told) == (False, False)
    assert cli.main(["attach", run.id]) == Exit.HOLD
    assert "omni-console resume" not in capsys.readouterr().out
    assert cli.main(["resume", run.id]) == Exit.USAGE


def test_a_journal_of_a_newer_program_is_shown_and_not_gone_on_with(
    hand: Make, capsys: Capture
) -> None:
    made = hand()
    made.state("running")
    made.add("later", what=1)
    made.journal._db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    assert cli.main(["resume", made.run.id]) == Exit.USAGE
    assert f"version {SCHEMA_VERSION + 1}" in capsys.readouterr().err
    assert not made.run.live.exists(), "no runner was started"
    assert cli.main(["show", made.run.id]) == Exit.HOLD
    told = capsys.readouterr().out
    assert told.count("makes no sense") == 1


def test_a_run_whose_journal_is_lost_has_begun() -> None:
    run = bare(time.time())
    run.script.touch()
    assert history.rows()[0].state == "interrupted"


URL = "http://127.0.0.1:9"


@pytest.mark.parametrize("back", [False, True])
def test_a_follower_says_down_only_while_it_is(
    hand: Make, capsys: Capture, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """The runner's last words were lost, as on a full disk; the ladder has proven the baseline."""
    monkeypatch.setattr("console.frontends.cli.follow.CLEANUP_S", 0.0)
    made = hand()
    made.state("running")
    made.add("outage", down=True, proof=0.0, url=URL)
    if back:
        at = time.time() + 1
        evidence.keep("", URL, Evidence(Kind.PROOF, Word.SERVING, at, Witness.VERIFY, "", 5.0))
    assert cli.main(["attach", made.run.id, "--json"]) == Exit.HOLD
    told = capsys.readouterr()
    assert ("BASELINE DOWN: omni-console rollback" in told.err) is not back
    assert json.loads(told.out)["state"] == "interrupted"


@pytest.mark.parametrize("over", [True, False])
def test_no_runner_has_died_of_a_run_that_is_over(hand: Make, capsys: Capture, over: bool) -> None:
    """A rollback hours after a cutover brought the baseline back."""
    made = hand()
    made.state("running")
    made.add("outage", down=True, proof=0.0, url=URL)
    if over:
        made.state("succeeded")
        made.add("run.finished")
    at = time.time() + 1
    evidence.keep("", URL, Evidence(Kind.PROOF, Word.SERVING, at, Witness.ROLLBACK, "", 5.0))
    cli.main(["show", made.run.id])
    told = capsys.readouterr().out
    assert ("was down when the run ended, and served again at" in told) is over
    assert ("when the runner died" in told) is not over


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (Word.DOWN, "BASELINE DOWN"), (Word.GARBLED, "is garbled now"),
        (Word.REFUSING, "is refusing now"), (Word.SERVING, "answers now"),
        (Word.UNKNOWN, "answers now"),
    ],
)  # fmt: skip
def test_an_outage_of_the_journal_is_told_as_the_baseline_is_now(
    hand: Make, capsys: Capture, monkeypatch: pytest.MonkeyPatch, word: Word, words: str
) -> None:
    """It may have been started by hand, or lives and answers what is no proof."""
    monkeypatch.setattr("console.frontends.cli.show._now_at", lambda run: (word, URL))
    made = hand()
    made.state("running")
    made.add("outage", down=True, proof=0.0, url=URL)
    cli.main(["show", made.run.id])
    told = capsys.readouterr().out
    assert words in told
    assert ("BASELINE DOWN" in told) is (word is Word.DOWN)
    made.state("rollback_failed", detail="not proven: why")
    cli.main(["show", made.run.id])
    told = capsys.readouterr().out
    said = "NOT PROVEN" if "answers" in words else str(word).upper()
    assert f"BASELINE {said}, and the rollback failed: not proven: why" in told


def test_a_follower_waits_for_a_rollback_and_for_the_closer_it_starts(
    hand: Make, begin: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.frontends.cli.follow.CLEANUP_S", 0.0)
    made, polls = hand(), list[int]()
    made.state("running")
    made.run.rollback.mkdir(exist_ok=True)
    rollback = Lock(made.run.rollback)
    assert rollback.taken()

    def wait(follow: Follow) -> None:
        polls.append(len(polls))
        if len(polls) == 3:  # it has written its last line, and starts the closer
            closer = begin("sleep", "600")
            start = process.start_time(closer.pid) or 0
            live.append(made.run.live, live.closer(closer.pid, start))
            rollback.release()
        elif len(polls) == 6:
            made.state("rolled_back", "emergency")
            made.add("run.finished")

    monkeypatch.setattr(Follow, "_wait", wait)
    monkeypatch.setattr(Follow, "_wait_cleanup", lambda follow: None)
    assert cli.main(["attach", made.run.id, "--json"]) == Exit.ROLLED_BACK
    assert len(polls) == 6


def test_a_followed_load_of_the_baseline_says_how_far_it_is_now_and_then(hand: Make) -> None:
    """Ten minutes of a restore, a line of its load every two seconds."""
    made = hand()
    journal = Journal(made.run.journal)
    journal.append(1000.0, "step.state", "one", 1, {"state": "running"})
    for second in range(0, 600, 2):
        line = {"rung": "ready", "state": "note", "t": float(second), "detail": "loading"}
        far = {"done": second << 29, "total": 300 << 30, "unit": "B"}
        journal.append(1000.0 + second, "rung", "one", 1, {**line, **far})
    journal.append(1600.0, "run.finished", "", 0, {})
    journal.close()
    out = io.StringIO()
    Follow(made.run, out, interactive=False).until_end()
    told = [text for text in out.getvalue().splitlines() if "loading" in text]
    assert told[-1].endswith("loading, 270.0/300 GiB, 90 %, ~1:00 left")
    assert 10 < len(told) < 40
