"""Commands that read say of an earlier version's runs what that version said of them."""

from __future__ import annotations

import json

import pytest

from console.checks.doctor.run import CHECKS, iterate
from console.frontends.tui.watch import history
from tests.compat import make
from tests.compat.conftest import Read
from tests.compat.world import Past, lost
from tests.run.world import Outcome

ENDED = ("measure", "grow")
FACTS = [f"{what}-{name}" for what in ("show", "recorder") for name in ENDED]
FACTS += ["show-outage", "recorder-outage", "runs-after", "reports", "lesson"]
SHOWN = [f"{what}-{name}" for what in ("shown", "attach", "report", "logs") for name in ENDED]


def again(trials: Past, read: Read, name: str) -> tuple[Outcome, Outcome]:
    """What the version before said, and what is said now."""
    argv, before = trials.said(name)
    now = read(*argv)
    assert now.code == before.code, now
    # a recording is left as it is: its texts lie in slots, under checksums
    told = now.out.replace(str(make.ROOT), str(trials.root))
    return before, Outcome(now.code, told, now.err)


@pytest.mark.parametrize("name", FACTS)
def test_every_fact_is_still_said(trials: Past, read: Read, name: str) -> None:
    before, now = again(trials, read, name)
    assert list(lost(before.json, now.json)) == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_person_reads_the_same(trials: Past, read: Read, name: str) -> None:
    before, now = again(trials, read, name)
    assert now.out == before.out


def test_the_screens_list_every_run(trials: Past, read: Read) -> None:
    told = {one["run"]: one for one in read("runs", "--json").json["runs"]}
    rows = history.rows()
    assert [row.id for row in rows] == sorted(told, reverse=True)
    for row in rows:
        one = told[row.id]
        assert (row.state, row.decision or None) == (one["state"], one["decision"])
        assert (row.owner, row.problem) == ("operator", "")


def test_doctor_knows_what_the_runs_left(trials: Past, read: Read) -> None:
    read("runs")  # whose environment stays
    before = json.loads(trials.said("doctor")[1].out)
    checks = [check for check in CHECKS if check.id in {row[0] for row in before}]
    now = [
        [found.id, str(found.level), found.detail, found.hint]
        for answer in iterate(checks=checks, deadline_s=60.0)
        for found in answer.findings
    ]
    assert len(before) >= 3
    assert sorted(now) == sorted(before)
