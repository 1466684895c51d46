"""The driver's own checker notices each kind of broken promise, and draws the same trial again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.__main__ import main
from tests.chaos.draw import draw
from tests.chaos.facts import Command, Facts, Row, after_the_proof, violations

GOOD = Facts(
    effects=["r mark"],
    journals={"r": [Row(1, "run.created", "", "{}"), Row(2, "step.state", "mark", "{}")]},
    commands=[Command("rollback", 0, "the baseline serves", True)],
    temp=["/h/.one.new"],
    kills=1,
)
DOUBT = Row(3, "step.state", "mark", '{"state":"in_doubt"}')


def said(code: int, text: str, serves: bool | None, beside: str = "") -> Facts:
    return replace(GOOD, commands=[Command("rollback", code, text, serves, beside)])


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("down", replace(GOOD, serves=False)),
        ("owner", replace(GOOD, holders=["candidate"])),
        ("owner", replace(GOOD, holders=["baseline", "other"])),
        ("orphan", replace(GOOD, candidate_listens=True)),
        ("stranger", replace(GOOD, ended=["the baseline of another site, pid 7,"])),
        ("orphan", replace(GOOD, orphans=["step 17"])),
        ("temp", replace(GOOD, temp=["/h/.one.new", "/h/.two.new"])),
        ("both", replace(GOOD, both_s=3.0)),
        ("effect", replace(GOOD, effects=["r mark", "r mark"])),
        ("effect", replace(GOOD, effects=["gone mark"])),
        ("journal", replace(GOOD, journals={"r": [Row(1, "a", "", "{}"), Row(3, "b", "", "{}")]})),
        ("journal", replace(GOOD, journals={"r": [Row(1, "a", "mark", "{torn")]})),
        ("journal", replace(GOOD, journals={"r": "database disk image is malformed"})),
        ("exit", said(0, "the baseline serves", False)),
        ("exit", said(7, "ROLLBACK FAILED\nby hand:\n  sh x", True)),
        ("exit", said(1, "omni-console: what?", None)),
        ("advice", said(7, "ROLLBACK FAILED: no", False)),
        ("control", said(0, "the baseline serves", None, "runner 12 of r")),
        ("traceback", said(0, "Traceback (most recent call last):\n  OverflowError", True)),
    ],
)
def test_each_kind_of_broken_promise_is_noticed(kind: str, facts: Facts) -> None:
    assert {line.partition(":")[0] for line in violations(facts)} == {kind}


def test_what_keeps_its_promises_is_passed() -> None:
    assert violations(GOOD) == []
    doubted = {"r": [*GOOD.journals["r"], DOUBT]}
    assert violations(replace(GOOD, effects=["r mark", "r mark"], journals=doubted)) == []
    assert violations(said(7, "ROLLBACK FAILED: no\nby hand:\n  sh x", False)) == []


def test_a_rollback_does_not_answer_for_a_kill_after_its_measurement() -> None:
    lines = [{"rung": "measure", "state": "begin", "at": 7200.0},
             {"rung": "measure", "state": "ok", "at": 7201.0},
             {"rung": "done", "state": "ok", "at": 7201.1}]  # fmt: skip
    text = "\n".join(map(json.dumps, lines))
    assert [after_the_proof(text, at) for at in (7200.9, 7201.05, 3601.05)] == [False, True, True]
    assert not after_the_proof("the baseline serves", 7201.05)


def test_a_seed_and_a_number_draw_the_same_trial_again() -> None:
    assert draw(7, 3) == draw(7, 3)
    drawn = {draw(7, number).way for number in range(60)}
    assert drawn == {"rollback", "resume", "race", "start"}


@pytest.mark.full
@pytest.mark.parametrize("number", ["9", "14"])
def test_two_trials_keep_every_promise(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["--seed", "1", "--trial", number, "--jobs", "1"]) == 0
