"""A run whose runner is gone: what every command says of it is what is true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from console import cli
from console.common.errors import Exit
from console.frontends.tui.watch import history
from console.journal.run_dir import RunDir, RunMeta, create
from console.journal.store import SCHEMA_VERSION, Journal
from console.recovery.rollback import proof
from tests.viewer.conftest import Hand

Make = Callable[..., Hand]
Capture = pytest.CaptureFixture[str]


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


@pytest.mark.parametrize("back", [False, True])
def test_a_follower_says_down_only_while_it_is(
    hand: Make, capsys: Capture, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """The runner's last words were lost, as on a full disk; the ladder has proven the baseline."""
    monkeypatch.setattr("console.frontends.cli.follow.GRACE_S", 0.0)
    made = hand()
    made.state("running")
    made.add("outage", down=True, proof=0.0)
    if back:
        proof.remember(proof.proof_file(""), time.time() + 1, 5.0, False)
    assert cli.main(["attach", made.run.id, "--json"]) == Exit.HOLD
    told = capsys.readouterr()
    assert ("BASELINE DOWN: omni-console rollback" in told.err) is not back
    assert json.loads(told.out)["state"] == "interrupted"
