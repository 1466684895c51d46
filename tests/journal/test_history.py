"""How long steps took in earlier runs, from their journals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.journal import history, store
from console.journal.history import Usual, usual
from console.journal.run_dir import RunDir
from console.journal.store import Event, Journal


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "omni-console" / "runs"


def row(name: str, kind: str) -> dict[str, Any]:
    return {"id": name, "title": "t", "phase": "p", "kind": kind}


STEPS = [row("up", "service"), row("ask", "approval"), row("bench", "benchmark")]


def made(runs: Path, number: int, name: str = "trial", site: str = "box", **took: Any) -> RunDir:
    """A run whose steps ended: seconds for one that succeeded, a word for any other end."""
    run = RunDir(runs / f"20261125-1200{number:02d}-{name}-{number:04x}")
    run.path.mkdir(parents=True)
    (run.path / "run.json").write_text("{}")
    journal = Journal(run.journal)
    journal.append(1.0, "run.created", "", 0, {"site": site, "steps": STEPS})
    for step, end in took.items():
        state = end if isinstance(end, str) else "succeeded"
        seconds = 1.0 if isinstance(end, str) else end
        journal.append(2.0, "step.state", step, 1, {"state": state, "duration_s": seconds})
    journal.close()
    return run


def test_the_median_of_the_last_runs_that_succeeded(runs: Path) -> None:
    for number, seconds in enumerate([900.0, 50.0, 60.0, 40.0, 55.0, 45.0]):
        made(runs, number, up=seconds)
    made(runs, 8, up="failed")
    made(runs, 9, up="skipped", bench=7.0)
    found = usual("trial", "box")
    assert found == {"up": Usual(50.0, 5), "bench": Usual(7.0, 1)}
    assert found["up"].words == "median of 5 earlier runs"
    assert found["bench"].words == "as in the last run"


def test_what_waits_for_a_person_is_not_estimated(runs: Path) -> None:
    made(runs, 1, up=5.0, ask=1200.0)
    assert list(usual("trial", "box")) == ["up"]


def test_another_playbook_another_site_and_a_rehearsal_do_not_count(runs: Path) -> None:
    made(runs, 1, up=5.0, name="trial-b")
    made(runs, 2, up=6.0, site="other")
    made(runs, 3, up=7.0, name="rehearsal-trial")
    assert usual("trial", "box") == {}
    assert usual("rehearsal-trial", "box") == {"up": Usual(7.0, 1)}
    assert usual("trial", "other") == {"up": Usual(6.0, 1)}


def test_the_run_itself_does_not_count(runs: Path) -> None:
    run = made(runs, 1, up=5.0)
    assert usual("trial", "box", but=run.id) == {}


def test_a_broken_journal_costs_only_its_own_figures(runs: Path) -> None:
    made(runs, 1, up=5.0)
    made(runs, 2, up=6.0).journal.write_bytes(b"no database")
    journal = Journal(made(runs, 3).journal)
    journal.append(3.0, "step.state", "up", 1, {"state": "no such state", "duration_s": 99.0})
    journal.close()
    assert usual("trial", "box") == {"up": Usual(5.0, 1)}


def test_a_journal_that_has_not_changed_is_read_once(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(runs, 1, up=5.0)
    read: list[Path] = []

    def counted(path: Path, kinds: Any = ()) -> list[Event]:
        read.append(path)
        return store.read_events(path, kinds)

    monkeypatch.setattr(history, "read_events", counted)
    assert usual("trial", "box") == usual("trial", "box")
    assert read == [run.journal]
    journal = Journal(run.journal)
    journal.append(3.0, "step.state", "bench", 1, {"state": "succeeded", "duration_s": 2.0})
    journal.close()
    assert usual("trial", "box")["bench"] == Usual(2.0, 1)
