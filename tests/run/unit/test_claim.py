"""A run that begins or goes on beside a rollback: one of the two always sees the other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.common import paths
from console.common.errors import HostBusy, UsageError
from console.recovery.rollback import live, records
from console.recovery.rollback.trigger import Lock, flocks
from console.runner import claim
from console.runner.recover import refuse_resume
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import META, Bench
from tests.run.unit.journals import BEGUN, shelved


@pytest.fixture
def bench(tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    made = Bench(tmp_path, plan("{id: n, note: x}"), monkeypatch)
    made.context.run.write_meta(replace(META, run_id=made.context.run.id))
    yield made
    made.close()


def test_it_is_known_before_it_looks_for_a_rollback(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = bench.context.run, []

    def look(directory: Path) -> bool:
        (found,) = records.find_all()
        seen.append((found.run_id, [e.kind for e in live.read(run.live)], directory))
        return False

    monkeypatch.setattr(claim, "is_held", look)
    claim.announce(run)
    known = (run.id, ["runner"])
    assert seen[:2] == [(*known, run.rollback), (*known, paths.state_dir() / "rollback")]
    claim.withdraw(run)
    assert records.find_all() == []


def test_a_run_that_never_was_leaves_the_pointer_of_an_interrupted_one(bench: Bench) -> None:
    """Its baseline may be down, and its steps may be alive."""
    run, uid = bench.context.run, os.getuid()
    records.write(records.Pointer("earlier", "/runs/earlier", "me", uid, 2, 2))
    claim.announce(run)
    assert [one.run_id for one in records.find_all()] == [run.id]
    claim.withdraw(run)
    assert [one.run_id for one in records.find_all()] == ["earlier"]
    claim.withdraw(run)
    assert [one.run_id for one in records.find_all()] == ["earlier"]


@pytest.mark.parametrize("planted", [False, True])
def test_a_pointer_names_the_lock_that_its_runner_holds(bench: Bench, planted: bool) -> None:
    if planted:
        paths.host_lock(os.getuid()).mkdir()
    held = claim.host_lock(patient=False)
    claim.announce(bench.context.run)
    [found] = records.find_all()
    assert (os.getpid(), found.lock) in flocks()
    held.release()
    assert (os.getpid(), found.lock) not in flocks()


@pytest.mark.parametrize("back", [False, True])
def test_an_interrupted_run_is_pointed_at_again_after_one_in_between(
    bench: Bench, back: bool
) -> None:
    """Through two runs that are over, and not where its baseline is back."""
    first = shelved([*BEGUN, ("outage", "", 0, {"down": not back})])
    second = shelved([*BEGUN, ("outage", "", 0, {"down": False})], "20260102-000000-x-1a2b")
    records.write(records.Pointer(first.id, str(first.path), "me", os.getuid(), 2, 2))
    second.rollback.mkdir()
    records.set_aside(os.getuid(), second.rollback)
    records.write(records.Pointer(second.id, str(second.path), "me", os.getuid(), 2, 2))
    claim.announce(bench.context.run)
    claim.leave(bench.context.run)
    assert [one.run_id for one in records.find_all()] == ([] if back else [first.id])


@pytest.mark.parametrize("whose", ["the run's", "the site's", "an earlier run's"])
def test_it_does_not_begin_beside_a_rollback(bench: Bench, tmp_path: Path, whose: str) -> None:
    run, earlier = bench.context.run, tmp_path / "earlier"
    records.write(records.Pointer("earlier", str(earlier), "me", os.getuid(), 2, 2))
    directory = {
        "the run's": run.rollback, "the site's": paths.state_dir() / "rollback",
    }.get(whose, earlier / "rollback")  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    ladder = Lock(directory)
    assert ladder.taken()
    with pytest.raises(HostBusy, match="a rollback"):
        claim.announce(run)
    ladder.close()
    claim.announce(run)


@pytest.mark.parametrize(
    ("trigger", "known", "refused"),
    [("command-1", "", True), ("warm-1", "warm-0", True), ("command-1", "command-1", False),
     ("runner-1", "", False)],
)  # fmt: skip
def test_what_a_rollback_has_ended_does_not_go_on(
    bench: Bench, trigger: str, known: str, refused: bool
) -> None:
    if known:
        bench.context.record("rung", trigger=known, rung="done", state="ok")
    line = {"trigger": trigger, "rung": "done", "state": "ok", "serving": True}
    bench.context.run.ladder.write_text(json.dumps(line) + "\n")
    if refused:
        with pytest.raises(UsageError, match="a rollback has ended run"):
            refuse_resume(bench.context.run)
    else:
        refuse_resume(bench.context.run)


def test_the_lock_of_a_rollback_is_its_owners_alone(tmp_path: Path) -> None:
    """Whoever may open a file may hold its lock, and a rollback would wait for that."""
    (tmp_path / "lock").touch(0o644)
    Lock(tmp_path).close()
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
