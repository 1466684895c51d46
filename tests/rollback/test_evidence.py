"""What witnesses keep of a baseline: it is kept whole, and an error in it disturbs nobody."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.common import paths
from console.host import process
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.look import container_state
from console.recovery.rollback.observe import instead_of_baseline
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runtime.answers.completion import Completion
from tests.rollback.conftest import Stage, in_script
from tests.waiting import some


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Stands for /dev/shm."""
    place = tmp_path / "shm"
    place.mkdir()
    monkeypatch.setattr(evidence, "SHM", place)
    return place


SITE, URL = "ws", "http://h:1"


def proof(at: float, witness: Witness = Witness.VERIFY, tok_s: float | None = None) -> Evidence:
    return Evidence(Kind.PROOF, Word.SERVING, at, witness, "8 tokens", tok_s, since=at)


def test_of_each_witness_and_kind_the_newest_is_kept() -> None:
    assert evidence.read(SITE, URL) == []
    evidence.keep(SITE, URL, proof(10.0, tok_s=8.12345))
    evidence.keep(SITE, URL, proof(9.0))
    assert evidence.read(SITE, URL) == [proof(10.0, tok_s=8.123)]
    evidence.keep(SITE, URL, replace(proof(12.0), kind=Kind.FAILED, word=Word.DOWN))
    evidence.keep(SITE, URL, proof(11.0, Witness.WATCH))
    assert sorted(os.listdir(evidence.directory(SITE, URL))) == [
        "verify.failed.json", "verify.proof.json", "watch.proof.json",
    ]  # fmt: skip
    assert some(evidence.last_proof(SITE, URL)).witness is Witness.WATCH


def test_since_when_a_witness_has_seen_the_same() -> None:
    for at, word in ((1.0, Word.DOWN), (2.0, Word.DOWN), (3.0, Word.LOADING), (4.0, Word.LOADING)):
        evidence.keep(SITE, URL, Evidence(Kind.AWAY, word, at, Witness.HEALTH))
    assert [(one.word, one.since) for one in evidence.read(SITE, URL)] == [(Word.LOADING, 3.0)]


def test_what_has_a_time_in_the_future_gives_way_to_what_is_seen_now() -> None:
    """The clock was ahead, and has been set right since."""
    earlier = paths.state_dir() / "proof" / f"{evidence.directory(SITE, URL).name}.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text(json.dumps({"at": time.time() + 3600, "tok_s": 50.0}))
    evidence.keep(SITE, URL, proof(time.time() + 7200))
    assert len(evidence.read(SITE, URL)) == 1, "the earlier one is of the future, too"
    now = time.time()
    evidence.keep(SITE, URL, proof(now, Witness.WATCH))
    assert [one.at for one in evidence.read(SITE, URL)] == [now]


@pytest.mark.parametrize(
    ("text", "kind", "degraded"),
    [('{"at": 5, "tok_s": 3.5, "degraded": true}', Kind.MEASURED, True),
     ('{"at": 5, "tok_s": 3.5, "degraded": false}', Kind.PROOF, False)],
)  # fmt: skip
def test_the_proof_of_an_earlier_version_counts(text: str, kind: Kind, degraded: bool) -> None:
    file = paths.state_dir() / "proof" / f"{evidence.directory(SITE, URL).name}.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    [one] = evidence.read(SITE, URL)
    assert (one.kind, one.at, one.tok_s, one.degraded) == (kind, 5.0, 3.5, degraded)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "garbage", '{"at": "x"}', '{"kind": "proof", "word": "serving", "at": true, '
     '"witness": "verify"}', '{"kind": "proof", "word": "serving", "at": NaN, "witness": "verify"}',
     '{"kind": "proof", "word": "well", "at": 1, "witness": "verify"}', "[" * 4000, "{" * 4000],
)  # fmt: skip
def test_garbage_is_no_evidence_and_is_replaced(text: str) -> None:
    file = evidence.directory(SITE, URL) / "verify.proof.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert evidence.read(SITE, URL) == []
    evidence.keep(SITE, URL, proof(1.0))
    assert evidence.read(SITE, URL) == [proof(1.0)]


def test_a_place_that_cannot_be_written_and_a_pipe_disturb_nobody() -> None:
    place = evidence.directory(SITE, URL)
    place.parent.mkdir(parents=True)
    place.write_text("")
    evidence.keep(SITE, URL, proof(1.0))
    assert evidence.read(SITE, URL) == [proof(1.0)], "in memory"
    shutil.rmtree(evidence.spare(SITE, URL))
    place.unlink()
    place.mkdir()
    os.mkfifo(place / "watch.proof.json")
    assert evidence.read(SITE, URL) == []


def test_a_site_name_cannot_leave_its_directory() -> None:
    for name in ("../../etc/x", "..", "a/b", ""):
        for url in ("http://h:1/../../x", "http://h:1", ""):
            place = evidence.directory(name, url)
            assert place.parent == evidence.directory(SITE, URL).parent


def test_each_address_has_evidence_of_its_own() -> None:
    urls = ("http://a:1", "http://a:11", "http://a:1/v1", "http://[::1]:1", "")
    assert len({evidence.directory(SITE, url) for url in urls}) == len(urls)


def test_secrets_and_control_characters_are_not_kept() -> None:
    foreign = replace(proof(1.0), detail="HTTP 401 \x1b[31mAuthorization: Bearer s3cretcanary99")
    evidence.keep(SITE, URL, foreign)
    kept = (evidence.directory(SITE, URL) / "verify.proof.json").read_text()
    assert "canary" not in kept
    assert "\\u001b" not in kept


@pytest.mark.parametrize(
    ("status", "ok", "kind", "word"),
    [(200, True, Kind.PROOF, Word.SERVING), (401, False, Kind.FAILED, Word.REFUSING),
     (404, False, Kind.FAILED, Word.REFUSING), (429, False, Kind.FAILED, Word.REFUSING),
     (503, False, Kind.FAILED, Word.LOADING), (500, False, Kind.FAILED, Word.REFUSING),
     (0, False, Kind.FAILED, Word.DOWN)],
)  # fmt: skip
def test_what_a_completion_says(status: int, ok: bool, kind: Kind, word: Word) -> None:
    done = Completion(ok, "words", "", 8, 1.0, 5.0, status=status)
    said = evidence.of_completion(done, Witness.VERIFY, 1.0)
    assert (said.kind, said.word, said.tok_s) == (kind, word, 5.0 if ok else None)


def test_a_rollback_leaves_its_measure_and_its_failure(stage: Stage) -> None:
    stage.seal(site_name="ws")
    result = Procedure(stage.plan).run()
    proven = some(evidence.last_proof("ws", stage.plan.baseline.url))
    assert (proven.tok_s, proven.witness) == (result.tok_s, Witness.ROLLBACK)
    assert proven.life
    known = evidence.state(stage.plan)
    assert known.up
    stage.close()
    stage.base(process=replace(some(stage.plan.baseline.process), argv=("/nowhere/server",)))
    stage.base(ready_timeout_s=1.0)
    assert not Procedure(stage.plan).run().serving
    known = evidence.state(stage.plan)
    assert not known.up
    assert "not proven since a rollback failed at " in known.doubt


@pytest.mark.parametrize("serving", [True, False])
def test_the_last_line_of_an_older_script_counts(stage: Stage, serving: bool) -> None:
    stage.seal(site_name="ws")
    evidence.record(stage.plan, proof(time.time() - 60))
    line = {"trigger": "script-5-1", "rung": "done", "at": time.time(), "serving": serving}
    ladder = stage.plan.rollback_dir / PROGRESS_FILE
    ladder.write_text("torn\n" + json.dumps({**line, "detail": "why"}) + "\n")
    assert evidence.state(stage.plan).up is serving
    ladder.write_text(json.dumps({**line, "trigger": "runner-5-1"}) + "\n")
    assert evidence.state(stage.plan).up, "what is no script has left evidence of its own"


def test_a_candidate_in_the_baselines_place_proves_nothing(stage: Stage) -> None:
    base = stage.plan.baseline
    assert instead_of_baseline(stage.plan) == ""
    own = stage.start_baseline()
    stage.until_it_is()
    assert instead_of_baseline(stage.plan) == ""
    process.stop_group(*own, grace_s=0.0)
    assert base.process is not None
    stage.record("process", "cand", stage.spawn(list(base.process.argv), cookie="no"))
    stage.until_it_is()
    assert instead_of_baseline(stage.plan) == "cand"


def test_a_changed_site_file_is_another_baseline(stage: Stage) -> None:
    stage.seal(site_name="ws")
    evidence.record(stage.plan, proof(time.time()))
    assert evidence.state(stage.plan).up
    stage.base(process=replace(some(stage.plan.baseline.process), argv=("other", "server")))
    assert evidence.state(stage.plan).word is Word.UNKNOWN


def test_a_container_that_no_run_has_named_is_not_said_to_be_down() -> None:
    plan = SealedPlan("", "", Baseline("baseline", "container", URL), SITE)
    word, detail = container_state(plan, 1.0)
    assert (word, "before the first run" in detail) == (Word.UNKNOWN, True)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The state directory: nothing can be written there while it is `full`."""
    made, write = SimpleNamespace(full=True), evidence.write_atomically

    def write_or_fail(path: Path, text: str, *rest: Any, **more: Any) -> None:
        if made.full and evidence.SHM not in path.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, text, *rest, **more)

    monkeypatch.setattr(evidence, "write_atomically", write_or_fail)
    return made


def test_a_full_disk_does_not_bring_an_earlier_proof_back(
    disk: SimpleNamespace,
) -> None:
    """A rollback that failed there was lost, and every face said what an earlier one had proven."""
    now = time.time()
    failed = replace(proof(now, Witness.ROLLBACK), kind=Kind.FAILED, word=Word.REFUSING)
    disk.full = False
    assert evidence.keep(SITE, URL, proof(now - 60)) == ""
    disk.full = True
    words = evidence.keep(SITE, URL, failed)
    assert "No space left on device; it is kept in memory" in words
    assert evidence.read(SITE, URL) == [proof(now - 60), failed]
    place = evidence.spare(SITE, URL)
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    assert evidence.read(SITE, URL) == [proof(now - 60)], "anybody may have written that"
    place.chmod(0o700)
    disk.full = False
    assert evidence.keep(SITE, URL, replace(failed, at=now + 1)) == ""
    assert list(place.iterdir()) == [], "the disk has it again"


def test_a_rollback_says_that_its_outcome_cannot_be_kept(
    stage: Stage, disk: SimpleNamespace
) -> None:
    stage.seal(site_name="ws")
    stage.roll_back()
    assert any("how this ended cannot be written" in line["detail"] for line in stage.lines)
    assert any("kept in memory" in line["detail"] for line in stage.lines)
    evidence.SHM.rename(evidence.SHM.with_name("gone"))
    stage.lines.clear()
    stage.roll_back()
    assert any("the console goes on saying" in line["detail"] for line in stage.lines)


def test_the_script_keeps_in_memory_what_the_disk_does_not_take(stage: Stage) -> None:
    stage.seal(site_name="ws")
    body = 'SEEN=/proc/self; OTHER=""; at=9; note_seen failed refusing "HTTP 401"\n'
    assert in_script(stage, body) == (0, "")
    [seen] = evidence.read(stage.plan.site_name, stage.plan.baseline.url)
    assert (seen.kind, seen.word, seen.at) == (Kind.FAILED, Word.REFUSING, 9.0)
    result, words = in_script(stage, f"SPARE=/proc/self\n{body}")
    assert (result, "how this ended cannot be kept" in words) == (0, True)
