"""Which plan counts: pointers real and forged, root and strangers, broken surroundings."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console import paths
from console.errors import ConsoleError, Exit
from console.rollback import plan as sealed
from console.rollback import pointer
from console.rollback.command import rollback
from console.rollback.finder import Finder
from console.rollback.plan import SealedPlan
from console.rollback.report import asked
from console.services.base import ProcessSpec
from tests.rollback.conftest import Stage
from tests.services.serving import in_child

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


def test_pointer_round_trip(stage: Stage) -> None:
    path = stage.point()
    assert path.stat().st_mode & 0o777 == 0o644
    found = pointer.read(os.getuid())
    assert found is not None
    assert (found.run_id, found.run_dir) == (stage.plan.run_id, stage.plan.run_dir)
    assert pointer.find_all() == [found]
    pointer.clear("another run")
    assert pointer.find_all() == [found]
    pointer.clear(stage.plan.run_id)
    assert pointer.find_all() == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"run_id": 1}', "null"])
def test_garbage_pointer_is_none(text: str) -> None:
    paths.pointer(os.getuid()).write_text(text)
    assert pointer.read(os.getuid()) is None


def test_pointer_of_absurd_numbers_is_none(stage: Stage) -> None:
    """Any local user can write one, and root reads them all."""
    path = stage.point()
    good = json.loads(path.read_text())
    believed = []
    for key in ("pid", "start", "uid", "started_at"):
        for number in ("Infinity", "NaN", "1e999", "-1", "1" * 400, '"1"', "true", "[1]"):
            text = json.dumps(good | {key: "HERE"}).replace('"HERE"', number)
            path.write_text(text)
            try:
                found = pointer.find_all()
            except Exception as error:
                believed.append((key, number, repr(error)))
            else:
                believed += [(key, number, one.started_at) for one in found]
    assert believed == []


@as_root
def test_forged_pointer_means_nothing(stage: Stage) -> None:
    """A file with another user's number in its name, owned by somebody else."""
    path = stage.point(uid=NOBODY)
    assert path.stat().st_uid == 0
    assert pointer.find_all() == []
    os.chown(path, NOBODY, NOBODY)
    assert [p.uid for p in pointer.find_all()] == [NOBODY]


def test_symlinked_pointer_means_nothing(stage: Stage) -> None:
    real = stage.root / "elsewhere.json"
    stage.point().rename(real)
    paths.pointer(os.getuid()).symlink_to(real)
    assert pointer.find_all() == []


def test_own_run_first(stage: Stage) -> None:
    stage.point()
    result = rollback(None, False, stage.lines.append)
    assert result.serving
    assert result.exit_code is Exit.OK
    assert len(stage.said("plan", "note")) == 1


def test_no_run_and_no_site_is_nothing_to_do(stage: Stage) -> None:
    result = rollback(None, False, stage.lines.append)
    assert result.nothing_to_do
    assert result.exit_code is Exit.OK
    assert stage.lines[-1]["rung"] == "done"


def test_explicit_site_comes_before_an_old_run(stage: Stage) -> None:
    seen: list[str] = []

    def seal() -> SealedPlan:
        seen.append("sealed")
        return replace(stage.plan, run_id="", run_dir="")

    old = paths.runs_dir() / "old" / "rollback" / "plan.json"
    sealed.write(replace(stage.plan, run_dir=str(old.parent.parent)), old)
    assert rollback(seal, True, None).serving
    assert seen == ["sealed"]
    assert rollback(seal, False, None).nothing_to_do
    assert seen == ["sealed"]
    assert (old.parent / "ladder.jsonl").exists()


def test_newest_usable_run_without_a_pointer(stage: Stage) -> None:
    for at, name in enumerate(("a", "b", "c")):
        path = old_plan(stage, name, "", 1000 + at)
    path.write_text("garbage")
    os.utime(path, (2000, 2000))
    assert rollback(None, False, stage.lines.append).serving
    assert any(line.endswith(" b") for line in stage.said("plan", "note"))


def test_site_alone(stage: Stage) -> None:
    plan = replace(stage.plan, run_id="", run_dir="")
    assert rollback(lambda: plan, False, stage.lines.append).serving
    assert (paths.state_dir() / "rollback" / "ladder.jsonl").exists()


def open_up(path: Path) -> None:
    """Let another user walk to a test's directory."""
    for parent in [path, *path.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)


def given(stage: Stage, path: Path) -> None:
    """The pointer and the plan are another user's."""
    for one in (path, stage.plan.rollback_dir / "plan.json"):
        os.chown(one, NOBODY, NOBODY)
    open_up(stage.plan.rollback_dir)


@as_root
def test_root_acts_as_the_owner_of_the_run(stage: Stage) -> None:
    """What root finds in another user's plan is done with that user's rights only."""
    given(stage, stage.point(uid=NOBODY))

    def act() -> object:
        notes: list[str] = []
        choice = Finder(None, False, notes.append).find()
        assert choice is not None
        return [choice.plan.run_id, os.getresuid(), os.getresgid(), os.getgroups(), notes]

    run_id, uids, gids, groups, notes = in_child(act)
    assert run_id == stage.plan.run_id
    assert uids == [NOBODY] * 3
    assert gids == [pwd.getpwuid(NOBODY).pw_gid] * 3
    assert 0 not in groups
    assert pwd.getpwuid(NOBODY).pw_name in notes[0]


@as_root
def test_root_gives_a_live_run_of_another_user_the_way_over_its_own_stale_one(
    stage: Stage,
) -> None:
    stage.point()
    given(stage, stage.point(uid=NOBODY, run_id="live", alive=True))

    def act() -> object:
        choice = Finder(None, False, print).find()
        return [choice is not None and choice.source, os.getuid()]

    assert in_child(act) == [f"the run of {pwd.getpwuid(NOBODY).pw_name}", NOBODY]


@as_root
@pytest.mark.parametrize("own_site", [False, True])
def test_plan_of_another_user_is_never_acted_on(stage: Stage, own_site: bool) -> None:
    """Its argv, its log, its finish command: all of it would run with the reader's rights."""
    stage.point(alive=True)
    foreign = paths.runs_dir() / "theirs" / "rollback" / "plan.json"
    sealed.write(stage.plan, foreign)
    open_up(stage.plan.rollback_dir)
    open_up(foreign.parent)
    plan = replace(stage.plan, run_id="", run_dir="", site_name="mine")

    def act() -> object:
        os.setgroups([])
        os.setuid(NOBODY)
        notes: list[str] = []
        choice = Finder((lambda: plan) if own_site else None, False, notes.append).find()
        return [choice.plan.site_name if choice else None, notes]

    found, notes = in_child(act)
    assert found == ("mine" if own_site else None)
    assert "root" in notes[0]
    assert any(str(foreign) in note for note in notes)


def test_plan_of_another_user_behind_ones_own_pointer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.point()
    real = sealed.read_owned
    monkeypatch.setattr(sealed, "read_owned", lambda path: (real(path)[0], os.getuid() + 1))
    assert rollback(None, False, stage.lines.append).nothing_to_do
    assert stage.baseline_process() is None


def test_asking_follows_no_link_and_waits_for_no_fifo(stage: Stage) -> None:
    outside = stage.root / "outside"
    (stage.plan.rollback_dir / "asked.jsonl").symlink_to(outside)
    asked(stage.plan.rollback_dir, "me", 1.0)
    assert not outside.exists()
    (stage.plan.rollback_dir / "asked.jsonl").unlink()
    os.mkfifo(stage.plan.rollback_dir / "asked.jsonl")
    asked(stage.plan.rollback_dir, "me", 1.0)


def old_plan(stage: Stage, name: str, site: str, at: float) -> Path:
    """A run of before."""
    path = paths.runs_dir() / name / "rollback" / "plan.json"
    run_dir = str(path.parent.parent)
    plan = replace(stage.plan, run_id=name, run_dir=run_dir, site_path=site, sealed_at=at)
    sealed.write(plan, path)
    os.utime(path, (at, at))
    return path


def chosen(seal: Callable[[], SealedPlan] | None) -> str:
    choice = Finder(seal, False, print).find()
    return (choice.plan.run_id or choice.plan.site_name) if choice else ""


def test_newest_plan_counts_only_for_its_own_site(stage: Stage) -> None:
    site, now = paths.default_site(), time.time() + 60
    site.parent.mkdir(parents=True, exist_ok=True)
    site.write_text("site")
    fresh = replace(stage.plan, run_id="", run_dir="", site_name="fresh")

    def refuses() -> SealedPlan:
        raise ConsoleError("the site file cannot be used")

    def breaks() -> SealedPlan:
        raise ImportError("pydantic")

    old_plan(stage, "demo", "/elsewhere/site.yaml", now + 9)
    assert chosen(lambda: fresh) == "fresh"
    assert chosen(refuses) == "demo"
    assert chosen(breaks) == "demo"
    assert chosen(None) == "demo"
    old_plan(stage, "ours", str(site), now)
    assert chosen(lambda: fresh) == "ours"
    os.utime(site, (now + 5, now + 5))
    assert chosen(lambda: fresh) == "fresh", "the site file changed since"
    assert chosen(refuses) == "ours"
    site.unlink()
    assert chosen(lambda: fresh) == "demo", "no site file: the newest run"


def test_plan_that_is_a_fifo_holds_nobody_up(stage: Stage) -> None:
    path = paths.runs_dir() / "a" / "rollback" / "plan.json"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert rollback(None, False, None).nothing_to_do


BROKEN = """
import sys, json
class Broken:
    names = "pydantic ruamel docker textual rich httpx psutil pynvml yaml sqlite3".split()
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names: raise ImportError("broken: " + name)
sys.meta_path.insert(0, Broken())
from console.rollback.command import rollback
result = rollback(None, False, lambda line: print(json.dumps(line)))
sys.exit(result.exit_code)
"""


def test_works_with_everything_else_broken(stage: Stage) -> None:
    """Nothing but the standard library can be imported, and the journal is garbage."""
    stage.point()
    Path(stage.plan.run_dir, "journal.db").write_bytes(b"\0" * 4096)
    said = subprocess.check_output([sys.executable, "-c", BROKEN], text=True)
    assert json.loads(said.splitlines()[-1])["serving"] is True


def test_failure_is_exit_seven(stage: Stage) -> None:
    stage.base(process=ProcessSpec(("/nowhere/server",)))
    stage.point()
    result = rollback(None, False, None)
    assert result.exit_code is Exit.ROLLBACK_FAILED
    assert result.manual
