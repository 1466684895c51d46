"""The operator's commands over a line that the test holds: what is confirmed, sent and said, and
the exit codes."""

import io
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import Exit
from console.fleet.inventory import Host
from console.fleet.known import last, remember
from console.fleet.line import NO_CONSOLE
from console.fleet.protocol import BridgeError, LineLost
from console.fleet.rollout import Leg, Rollout
from console.frontends.cli.fleet import rollout
from tests.clock import FakeClock
from tests.fleet.standin import SEEN, STATE, ToldHost, Typed

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("typed", "code", "begun"),
    [
        ("abababab\n", 0, 1),
        ("\n", 5, 0),
        ("abababa\n", 5, 0),
        ("y\n", 5, 0),
        ("", 5, 0),
        ("\nabababa\nabababab\n", 0, 1),
        ("no\nabababab\n", 5, 0),
    ],
)
def test_a_plan_is_taken_by_its_hash_alone(
    fars: dict[str, ToldHost], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    typed: str, code: int, begun: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    assert main(["fleet", "run", "trial.yaml", "--on", "a"]) == code
    assert fars["a"].begun == begun
    said = capsys.readouterr()
    assert "plan of a\nplan abababab of a" in said.out
    assert "type abababab to start it on a, or no:" in said.err


def test_nobody_at_a_terminal_takes_no_plan(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "run", "trial.yaml", "--on", "a"]) == 2
    assert "--yes takes it" in capsys.readouterr().err
    assert fars["a"].begun == 0


def test_a_rollout_without_questions_prints_one_object(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["b"].verdict = "HOLD"
    assert main(["fleet", "run", "trial.yaml", "--on", "all", "--yes", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert [(x["host"], x["run"], x["exit_code"]) for x in told["hosts"]] == [
        ("a", "run-a", 0), ("b", "run-b", 4),
    ]  # fmt: skip
    assert fars["a"].plans[0]["yes"] is True


@pytest.mark.parametrize(
    "words",
    [["--on", "c"], ["--on", ""], ["--on", "a,a"],
     ["--on", "a", "--lease", "0"], ["--on", "a", "--lease", "1s"]],
)  # fmt: skip
def test_what_cannot_be_meant_asks_no_host(fars: dict[str, ToldHost], words: list[str]) -> None:
    assert main(["fleet", "run", "trial.yaml", "--yes", *words]) == 2
    assert fars["a"].asked == []


def test_the_table_keeps_what_was_known_of_a_host_that_does_not_answer(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet"]) == 0
    fars["b"].lose = ["state"]
    assert main(["fleet", "--json"]) == 4
    rows = {
        row["host"]: row for row in json.loads(capsys.readouterr().out.splitlines()[-1])["hosts"]
    }
    assert [rows[name]["answered"] for name in "ab"] == [True, False]
    assert rows["b"]["state"]["baseline"]["word"] == "serving"
    assert rows["b"]["known_at"] == last(Host("b", "b")).at


def test_a_verb_is_bound_to_what_the_host_said(fars: dict[str, ToldHost]) -> None:
    assert main(["fleet", "tell", "a", "approve", "--reason", "fine", "--confirm", "word"]) == 0
    (told,) = fars["a"].told
    assert (told["run"], told["seen"], told["why"], told["confirm"]) == (
        "run-a", SEEN, "fine", "word",
    )  # fmt: skip


MUTE = {**STATE["run"], "status": {}}
"""A run whose runner is too busy to answer."""


@pytest.mark.parametrize(
    ("words", "run", "code", "said"),
    [
        (["a", "approve", "--step", "sure"], STATE["run"], 0, "accepted"),
        (["a", "approve", "--step", "seen-before"], STATE["run"], 5, "stands at sure, not at"),
        (["a,b", "abort"], STATE["run"], 2, "one host"), (["all", "abort"], None, 2, "one host"),
        (["a", "rollback"], STATE["run"], 2, "omni-console fleet rollback a"),
        (["a", "approve"], MUTE, 5, "where the run stands"), (["a", "abort"], MUTE, 0, ""),
        (["a", "abort"], "x", 5, "no run is active"), (["a", "abort"], None, 5, "no run is active"),
    ],
)  # fmt: skip
def test_a_verb_that_meets_something_else_is_refused(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], words: list[str], run: object,
    code: int, said: str,
) -> None:  # fmt: skip
    fars["a"].state_told = {**STATE, "run": run}
    assert main(["fleet", "tell", *words]) == code
    assert said in "".join(capsys.readouterr())
    assert len(fars["a"].told) == (code == 0)


@pytest.mark.parametrize(
    ("lost", "told", "said"),
    [("state", 0, "cannot be reached"), ("ready!", 0, "cannot be reached"),
     ("tell!", 1, "a: the line was lost, and whether its run took approve is not known")],
)  # fmt: skip
def test_a_verb_whose_answer_is_lost_may_have_been_taken(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], lost: str, told: int, said: str
) -> None:
    fars["a"].lose = [lost]
    assert main(["fleet", "tell", "a", "approve"]) == 4
    assert (said in capsys.readouterr().err, len(fars["a"].told)) == (True, told)


def test_a_rollback_names_the_jobs_that_still_wait(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        {"job": "8", "state": "PENDING", "words": "PENDING (BeginTime)", "playbook": "trial"},
        {"job": "7", "state": "RUNNING", "words": "RUNNING", "playbook": "ended", "run": "r"},
    ]
    fars["a"].state_told = {**STATE, "slurm": jobs}
    assert main(["fleet", "rollback", "a"]) == 0
    said = capsys.readouterr().out
    assert (
        "a: trial waits for Slurm: job 8, PENDING (BeginTime); `ssh a scancel 8` gives it up"
        in said
    )
    assert "job 7" not in said


def _left_waiting(far: ToldHost, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A rollout that was interrupted while its run waits for Slurm, as it is called."""
    words = ["fleet", "run", "trial.yaml", "--on", "a", "--yes"]
    far.jobs = [{"job": "8", "words": "PENDING (BeginTime)"}] * 9

    def interrupted(one: FakeClock, seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FakeClock, "sleep", interrupted)
        assert main(words) == 130
    return words


@pytest.mark.parametrize("waits", [True, False])
def test_fresh_doubles_no_run_that_waits(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    waits: bool,
) -> None:  # fmt: skip
    words = _left_waiting(fars["a"], monkeypatch)
    said = capsys.readouterr().out
    assert "the run asked for on a goes on, even if it still waits for Slurm; the same" in said
    fars["a"].jobs = fars["a"].jobs[:1] if waits else []
    assert main([*words, "--fresh"]) == (8 if waits else 0)
    assert ("Slurm job 8" in capsys.readouterr().err) == waits


def test_a_fresh_plan_that_nobody_takes_forgets_nothing(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fleet", "run", "trial.yaml", "--on", "a"]
    fars["a"].refuse = [BridgeError("failed", "no")]
    assert main([*words, "--yes"]) == 5
    (kept,) = paths.fleet_dir().glob("rollouts/*.json")
    before = kept.read_text()
    monkeypatch.setattr(sys, "stdin", Typed("no\n"))
    assert main([*words, "--fresh"]) == 5
    assert kept.read_text() == before
    assert "nothing was started on a" in capsys.readouterr().out


def test_what_was_refused_is_not_said_to_go_on(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fars["a"].refuse = [BridgeError("failed", "the baseline does not serve")]
    assert main(["fleet", "run", "trial.yaml", "--on", "a", "--yes"]) == 5

    def interrupted(*asked: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(rollout, "_agreed", interrupted)
    assert main(["fleet", "run", "trial.yaml", "--on", "a"]) == 130
    assert capsys.readouterr().out.endswith("\nnothing was started\n")


@pytest.mark.parametrize(("slurm", "code"), [("{slurm: {partition: gpu}}", 8), ("{}", 0)])
def test_fresh_takes_silence_for_no_answer_where_a_job_may_wait(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, slurm: str, code: int,
) -> None:  # fmt: skip
    fleet = f"schema: omni.fleet/v1\nhosts: {{a: {slurm}, b: {{}}}}\n"
    (tmp_path / "fleet.yaml").write_text(fleet)
    words = _left_waiting(fars["a"], monkeypatch)
    fars["a"].lose, fars["a"].jobs = ["started"], []
    assert main([*words, "--fresh"]) == code
    assert ("--fresh might run it twice" in capsys.readouterr().err) == (code == 8)


def test_a_host_that_never_answers_is_given_up_before_anything_began(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["a"].lose = ["started"] * 9
    assert main(["fleet", "run", "trial.yaml", "--on", "a", "--yes"]) == 4
    said = capsys.readouterr()
    assert "a cannot be reached; nothing was started on it" in said.err
    assert fars["a"].begun == 0


def test_a_rollback_waits_for_each_host_and_ends_with_the_worst(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["b"].rolled = {"exit": 7, "results": []}
    assert main(["fleet", "rollback", "--all", "--json"]) == 7
    told = json.loads(capsys.readouterr().out)["hosts"]
    assert [(one["host"], one["exit_code"]) for one in told] == [("a", 0), ("b", 7)]
    assert main(["fleet", "rollback"]) == 2
    assert main(["fleet", "rollback", "a", "--all"]) == 2


@pytest.mark.parametrize("ended", [-9, 256, True, None])
def test_a_rollback_that_was_killed_there_is_no_success_beside_one_that_is(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], ended: object
) -> None:
    """The bridge passes on what the kernel says of its child: minus a signal's number."""
    fars["b"].rolled = {"exit": ended, "results": []}
    assert main(["fleet", "rollback", "--all"]) == 7
    assert "b: its rollback was ended before it could say" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lost", "heard", "words", "asked"),
    [
        ("open", [], "nothing was asked of it", 0), ("ready", [], "nothing was asked of it", 0),
        ("rollback", [], "whether its rollback has begun is not known", 0),
        ("rollback!", [], "whether its rollback has begun is not known", 1),
        ("rollback!", ["fence ok"], "its rollback goes on there", 1),
    ],
)  # fmt: skip
def test_a_rollback_without_a_line_says_what_is_known_and_waits_for_nothing(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], lost: str, heard: list[str],
    words: str, asked: int,
) -> None:  # fmt: skip
    remember(Host("a", "a"), STATE, 1_000.0)
    fars["a"].lose, fars["a"].words = [lost], heard
    assert main(["fleet", "rollback", "a"]) == 7
    said = capsys.readouterr().out
    assert words in said
    assert "by the lease of run run-a" in said
    assert len(fars["a"].told) == asked


@pytest.mark.parametrize("alive", [True, False])
def test_a_rollback_that_had_begun_without_a_lease_says_that_its_end_is_not_known(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], alive: bool
) -> None:
    run = {**STATE["run"], "alive": alive, "outage": True}
    remember(Host("a", "a"), {**STATE, "run": run, "guard": {}}, 1_000.0)
    fars["a"].lose, fars["a"].words = ["rollback!"], ["fence ok"]
    assert main(["fleet", "rollback", "a"]) == 7
    said = capsys.readouterr().out
    assert "its rollback goes on there" in said
    assert "whether the baseline is back is not known\n  see: omni-console fleet\n" in said
    assert "lease" not in said
    assert "when it ends" not in said


def test_a_line_that_ctrl_c_has_ended_is_not_called_lost(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["a"].lose, fars["a"].abandoned = ["rollback!"], True
    assert main(["fleet", "rollback", "a", "--json"]) == 130
    assert "reach" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["report", "run-a"], ["rollback", "--all"]])
def test_ctrl_c_waits_for_no_host(fars: dict[str, ToldHost], words: list[str]) -> None:
    fars["a"].ctrl_c, fars["b"].given_up = True, threading.Event()
    assert main(["fleet", *words]) == 130
    assert fars["b"].abandoned


def test_a_console_without_a_bridge_names_the_way_by_hand(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["a"].rolled = BridgeError("version", "a: its console has no bridge")
    assert main(["fleet", "rollback", "a"]) == 7
    assert "by hand: ssh a omni-console rollback" in capsys.readouterr().out
    fars["a"].rolled = BridgeError("failed", "the site file cannot be used", exit_=Exit.USAGE)
    assert main(["fleet", "rollback", "a"]) == 7
    assert "by hand: ssh a omni-console rollback" in capsys.readouterr().out
    fars["a"].rolled = BridgeError(NO_CONSOLE, "a has no omni-console", exit_=Exit.USAGE)
    assert main(["fleet", "rollback", "a"]) == 7
    said = capsys.readouterr().out
    assert "nothing was asked of it" in said
    assert "by hand" not in said


@pytest.mark.parametrize(("ends", "code"), [(0, 0), (7, 7), (255, 7)])
def test_a_host_whose_console_is_gone_rolls_back_by_its_sealed_script(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], ends: int, code: int
) -> None:
    fars["a"].rolled = BridgeError(NO_CONSOLE, "a has no omni-console", exit_=Exit.USAGE)
    fars["a"].script_ends = ends
    assert main(["fleet", "rollback", "a"]) == code
    said = capsys.readouterr().out
    assert "a: rolled back by the script" in said
    assert f"a has no omni-console; its newest sealed script ended with {ends}" in said


def test_a_host_that_refuses_after_others_are_done_says_how_far_it_is(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    words = "done on a, stopped before b: the same command goes on there"
    fars["b"].problems = ["no such model"]
    assert main(["fleet", "run", "trial.yaml", "--on", "all", "--yes"]) != 0
    assert words in "".join(capsys.readouterr())
    fars["b"].problems, fars["b"].refuse = [], [BridgeError("failed", "another run is active")]
    assert main(["fleet", "run", "trial.yaml", "--on", "all", "--yes"]) != 0
    assert words in "".join(capsys.readouterr()), "its plan was taken, and the start was refused"


def test_a_run_that_has_begun_keeps_what_it_began_with(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["b"].problems = ["no such model"]
    same = ["fleet", "run", "trial.yaml", "--on", "all", "--yes"]
    main(same)
    main(same)
    words = "keeps the --lease, --slurm and --yes that it began with"
    assert words not in capsys.readouterr().out
    main([*same, "--lease", "2m"])
    assert words in capsys.readouterr().out


def test_a_line_that_is_lost_is_no_failure_of_the_host() -> None:
    assert LineLost("x").exit_code == 4


@pytest.mark.parametrize("wish", ["foo=x", "time=abc", "time=0"])
def test_a_wish_that_no_slurm_takes_asks_no_host(fars: dict[str, ToldHost], wish: str) -> None:
    """The host before the one with Slurm had its outage, and only then it was refused."""
    hosts = "schema: omni.fleet/v1\nhosts: {a: {}, b: {slurm: {partition: gpu}}}\n"
    Path("fleet.yaml").write_text(hosts)
    assert main(["fleet", "run", "trial.yaml", "--on", "a,b", "--yes", "--slurm", wish]) == 2
    assert fars["a"].asked == []


def test_a_run_that_is_gone_is_not_called_a_host_that_was_not_begun(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["b"].no_run = True
    assert main(["fleet", "run", "trial.yaml", "--on", "all", "--yes"]) != 0
    assert "stopped before b" not in "".join(capsys.readouterr())


def test_what_another_terminal_has_begun_meanwhile_is_followed_and_not_begun_twice(
    fars: dict[str, ToldHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the record before it had the lock."""
    take = rollout.rollout.held

    @contextmanager
    def late(one: Rollout) -> Iterator[None]:
        leg = Leg("a", "cd" * 16, hash="ab" * 8, run="run-a")
        replace(one, legs=[leg]).save()
        fars["a"].runs[leg.request] = "run-a"
        with take(one):
            yield

    monkeypatch.setattr(rollout.rollout, "held", late)
    assert main(["fleet", "run", "trial.yaml", "--on", "a", "--yes"]) == 0
    assert fars["a"].begun == 0


class Gone(io.StringIO):
    """A pipe whose reader went away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_reader_that_went_away_keeps_no_rollback_from_its_end(
    fars: dict[str, ToldHost], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """`fleet rollback --all | head -1` ended with 0 whatever came of it."""
    fars["a"].words, fars["b"].words = ["one", "two"], ["one", "two"]
    fars["a"].rolled = {"exit": 7, "results": []}
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Gone())
    assert main(["fleet", "rollback", "--all", *words]) == 7
    assert len(fars["a"].told) == len(fars["b"].told) == 1
