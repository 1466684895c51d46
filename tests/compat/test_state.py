"""What an earlier version kept between its runs is known to this one: plans, pointer, site files,
lessons, caches and measured times."""

from __future__ import annotations

import json
import os

import pytest

from console.checks.preflight.architecture import support
from console.common import paths
from console.config.lessons.registry import load_lesson
from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.host.process import ProcessSpec, mark, spec_sha
from console.journal.lock import runner_alive
from console.models.gguf.read import HeaderCache
from console.recovery.rollback import live, proof, records, sealed_plan
from tests.compat.conftest import Read
from tests.compat.world import Past, lost

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(read: Read) -> None:
    """This process acts for the operator whose world it is."""


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
    assert "console.demo.engine" in spec.argv


def test_own_lessons_are_read() -> None:
    lesson = load_lesson(paths.lessons_dir() / "F-901.yaml")
    assert "Ask for the slots first." in str(lesson)


def test_headers_and_verdicts_are_not_asked_for_again() -> None:
    reading = HeaderCache().get("sha256:" + "a" * 64)
    assert reading is not None
    assert reading.header.architecture == "llama"
    assert reading.header.tensors is not None
    verdict = support.recall("sha256:" + "b" * 64, "llama")
    assert verdict is not None
    assert (verdict.accepted, verdict.engine.build) == (True, "b1-fixed")


def test_measured_times_are_remembered(trials: Past) -> None:
    rows = json.loads(paths.restore_file("local").read_text())
    assert proof.expected_restore(paths.restore_file("local"), "baseline") is not None
    assert len(rows) >= 3
    served = proof.last(proof.proof_file("local"))
    assert served is not None
    assert served.tok_s == 100.0
