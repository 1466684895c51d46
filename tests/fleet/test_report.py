"""`fleet report`: who decided what on which host, and of which runs nothing is known."""

import json
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import Exit
from console.fleet.inventory import Host
from console.fleet.protocol import BridgeError
from console.fleet.report import _who
from console.fleet.starts import NOT_BEGUN
from console.frontends.cli.fleet import rollout
from console.journal.run_view import RunView, VerbGiven
from tests.clock import FakeClock
from tests.fleet.standin import BOOK, ToldHost


def test_a_report_says_who_decided_where(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "report"]) == 2, "there was no rollout yet"
    main(["fleet", "run", "trial.yaml", "--on", "all", "--yes"])
    capsys.readouterr()
    fars["b"].lose = ["open"]
    assert main(["fleet", "report"]) == 4
    head, _, _, _, a, b, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith("rollout of trial, ")
    assert a.startswith("| a | `run-a` |")
    assert "| GO |" in a
    assert "gate g: GO" in a
    assert "no route" in b


@pytest.mark.parametrize(
    ("known", "lost", "code", "said"),
    [("a", "b", 4, "b did not answer: no route"), ("", "b", 4, "no host that answered has such"),
     ("", "", 2, "no host has such a run"), ("a", "", 0, "| a | `run-a` |")],
)  # fmt: skip
def test_a_report_of_a_named_run_says_who_was_not_asked(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], known: str, lost: str, code: int,
    said: str,
) -> None:  # fmt: skip
    for name, far in fars.items():
        far.lose = ["open"] if name == lost else []
        far.no_run = name != known
    assert main(["fleet", "report", "run-a"]) == code
    shown = "".join(capsys.readouterr())
    assert said in shown
    assert "| b |" not in shown


def test_a_report_names_the_runs_that_no_host_has(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    """It told of the first as often as it was named, and left the other one out without a word."""
    fars["b"].no_run = True
    assert main(["fleet", "report", "run-a", "run-a", "nope"]) == 2
    said = capsys.readouterr().out
    assert said.count("run-a") == 1
    assert "no host has a run nope" in said
    before = list(fars["a"].asked)
    for name in ("", "runs/run-a", "x" * 201):  # a host refuses these, and did not answer, it said
        assert main(["fleet", "report", name]) == 2
    assert fars["a"].asked == before


def test_a_report_says_which_runs_a_name_fits(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    """No host had such a run, it said."""
    fits = "'2026' is more than one run: 20261126-a, 20261126-b"
    assert main(["fleet", "report", "2026"]) == 2
    assert f"a: {fits}\n  b: {fits}\n" in capsys.readouterr().err
    fars["b"].no_run = True
    assert main(["fleet", "report", "run-a", "2026"]) == 2
    said = capsys.readouterr().out
    assert "| a | `run-a` |" in said
    assert f"b: {fits}" in said
    assert "no host has" not in said


def test_a_report_of_many_runs_has_one_line_to_each_host(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty runs on twenty hosts were four hundred ssh at once, and a traceback."""
    opened: list[str] = []

    def line(host: Host, control: object) -> ToldHost:
        opened.append(host.name)
        return fars[host.name]

    monkeypatch.setattr(rollout, "Line", line)
    names = [f"run-{n}" for n in range(9)]
    assert main(["fleet", "report", *names, "--json"]) == 0
    assert opened == ["a", "b"]
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [(x["run"], x["host"]) for x in rows] == [(name, x) for name in names for x in "ab"]
    fars["b"].lose = ["journal"]
    assert main(["fleet", "report", *names, "--json"]) == 4
    assert fars["b"].asked.count("journal") == 9 * 3 + 1, "out of reach, it is asked once"


def test_a_report_says_that_a_newer_rollout_has_begun_no_run(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(rollout, "SystemClock", lambda: clock)
    main(["fleet", "run", "trial.yaml", "--on", "a", "--yes"])
    clock.sleep(60)
    Path("night.yaml").write_text(BOOK.replace("trial", "night"))
    given_up = BridgeError(NOT_BEGUN, "no run has begun", "CANCELLED", "", Exit.FAILED)
    fars["b"].jobs = [{"job": "7", "words": "PENDING"}, given_up]
    main(["fleet", "run", "night.yaml", "--on", "b", "--yes"])
    capsys.readouterr()
    assert main(["fleet", "report"]) == 0
    head, newest, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith("rollout of trial, ")
    assert newest.startswith("rollout of night, ")
    assert newest.endswith("has begun no run")


@pytest.mark.parametrize("left", ["{b: {}}", "{other: {}}"])
def test_a_report_leaves_out_no_host_that_the_file_has_lost(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], tmp_path: Path, left: str
) -> None:
    """It left its run out without a word, or said that no host has such a run."""
    main(["fleet", "run", "trial.yaml", "--on", "all", "--yes"])
    (tmp_path / "fleet.yaml").write_text(f"schema: omni.fleet/v1\nhosts: {left}\n")
    capsys.readouterr()
    assert main(["fleet", "report"]) == 4
    rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith(("| a", "| b"))]
    assert len(rows) == 2
    assert "it is no host of fleet.yaml any more" in next(x for x in rows if "| a |" in x)


def test_who_pressed_the_emergency_key_is_not_told_twice() -> None:
    pressed = VerbGiven(verb="rollback", who="root, with the emergency key", why="emergency")
    skipped = VerbGiven(verb="skip", who="root", why="emergency")
    assert _who(RunView(verbs=[pressed, skipped])) == [
        "rollback by root, with the emergency key", "skip by root: emergency",
    ]  # fmt: skip
