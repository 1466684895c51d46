"""Commands that read say of an earlier version's runs what that version said of them; and what it
kept between its runs is known to this one."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing

import pytest

from console.checks.doctor.run import CHECKS, iterate
from console.checks.preflight.architecture import support
from console.common import paths
from console.config.lessons.registry import load_lesson
from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.frontends.tui.watch import history
from console.host.process import ProcessSpec, mark, spec_sha
from console.journal.events import READERS
from console.journal.lock import runner_alive
from console.models.gguf.read import HeaderCache
from console.recovery.rollback import live, records, restores, sealed_plan
from tests.compat import make
from tests.compat.conftest import Read
from tests.compat.world import Past, lost
from tests.runner.world import Outcome

pytestmark = pytest.mark.usefixtures("read")  # for the operator whose world it is
ENDED = ("measure", "grow")
FACTS = [f"{what}-{name}" for what in ("show", "recorder") for name in ENDED]
FACTS += ["show-outage", "recorder-outage", "runs-after", "reports", "lesson"]
REWORDED = (
    (r"(\S go) succeeded(?= in [0-9.]+ s bench)", r"\1 evaluated: GO"),
    (r"planned (.+?) for (\d+ of \d+) steps, which took (.+?) \|",
     r"\2 steps had estimates: \1 planned, \3 actual |"),
    (r"(every prompt new to the server's cache)",
     r"\1, answers kept from ending before their limit (`ignore_eos`, where the server knows it)"),
    (r"(\d+) looks?, about one a second\.", r"\1 samples, ~1/s."),
)  # fmt: skip
"""What is said in other words than on 2026-11-23, and on purpose."""
TRUER = re.compile(r"\.next\[1\]: 'The run is going on: .* was said, 'The run is interrupted: ")
"""A fact that was not known then: `show --json` looks whether the runner is alive."""
SHOWN = [f"{what}-{name}" for what in ("shown", "attach", "report", "logs") for name in ENDED]


def settled(text: str) -> list[str]:
    """The lines without what steps said meanwhile: which of that is printed is a matter of pace."""
    return [line for line in text.splitlines() if not line.startswith("        … ")]


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
    gone = [words for words in lost(before.json, now.json) if not TRUER.match(words)]
    assert gone == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_person_reads_the_same(trials: Past, read: Read, name: str) -> None:
    before, now = again(trials, read, name)
    expected = before.out
    for words, instead in REWORDED if trials.version == "2026-11-23" else ():
        expected = re.sub(words, instead, expected)
    assert settled(now.out) == settled(expected)


def test_every_event_is_written_as_it_was_read(trials: Past) -> None:
    """Byte for byte: what was left out stays left out, and 1 does not become 1.0."""
    for run in trials.runs:
        with closing(sqlite3.connect(run.journal)) as journal:
            rows = journal.execute("SELECT kind, data FROM event").fetchall()
        assert rows
        for kind, text in rows:
            again = READERS[kind](json.loads(text)).data()
            if kind == "run.created" and trials.version == "2026-11-23":
                again["steps"] = json.loads(text)["steps"]  # a step has more fields since
            assert json.dumps(again, separators=(",", ":")) == text


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


def test_each_sealed_plan_is_read_whole(trials: Past) -> None:
    plans = [run.sealed for run in trials.runs] + sealed_plan.copies()
    assert len(plans) > 3
    for path in plans:
        plan, owner = sealed_plan.read_owned(path)
        read = json.loads(json.dumps(plan.to_json()))
        assert list(lost(json.loads(path.read_text()), read)) == []
        assert owner == os.getuid()


def test_a_process_is_known_by_the_same_hash_and_mark(trials: Past) -> None:
    plan = sealed_plan.read(trials.run.sealed)
    spec = plan.baseline.process
    assert spec is not None
    script = trials.run.script.read_text()
    assert spec_sha(spec) in script
    assert "=".join(mark(plan.records_dir, plan.baseline.name, spec)) in script


def test_the_pointer_names_the_interrupted_run(trials: Past) -> None:
    found = records.read(os.getuid())
    assert found is not None
    assert (found.run_id, found.run_dir) == (trials.run.id, str(trials.run.path))
    assert not found.over
    assert not runner_alive(trials.run)
    assert live.read(trials.run.live) == [], "none of its processes is of this boot"


def test_site_files_and_playbooks_are_valid(trials: Past) -> None:
    for site in [load_site(trials.site), *(load_site(run.site) for run in trials.runs)]:
        assert isinstance(site.baseline_spec().runs, ProcessSpec)
        services = frozenset(site.model.services)
        assert services == {"cand", "hog"}
    for name in ("measure", "grow", "outage", "cutover"):
        book = load_playbook(trials.root / f"{name}.yaml", site_services=services)
        assert list(book.notes) == []
    for run in trials.runs:
        kept = load_playbook(run.playbook, site_services=services, pinned=True)
        assert kept.model.name == run.id.split("-")[2]


def test_the_demo_still_has_its_site(trials: Past) -> None:
    site = load_site(paths.demo_dir() / "site.yaml")
    spec = site.baseline_spec().runs
    assert isinstance(spec, ProcessSpec)
    module = "demo.engine" if trials.version == "2026-11-23" else "rehearsal.demo.engine"
    assert f"console.{module}" in spec.argv


def test_own_lessons_are_read() -> None:
    lesson = load_lesson(paths.lessons_dir() / "F-901.yaml")
    assert "Ask for the slots first." in str(lesson)


def test_verdicts_and_headers_are_not_asked_for_again(version: str) -> None:
    """But a header kept on 2026-11-23 was not held against what a loader refuses in it."""
    content = "sha256:" + "a" * 64
    assert HeaderCache()._path(content).exists()
    assert (HeaderCache().get(content) is None) is (version == "2026-11-23")
    verdict = support.recall("sha256:" + "b" * 64, "llama")
    assert verdict is not None
    assert (verdict.accepted, verdict.engine.build) == (True, "b1-fixed")


def test_measured_times_are_remembered(trials: Past) -> None:
    rows = json.loads(paths.restore_file("local").read_text())
    assert restores.expected_restore(paths.restore_file("local"), "baseline") is not None
    assert len(rows) >= 3
