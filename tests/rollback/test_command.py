"""Which plan `omni-console rollback` selects: real and forged pointers, root and other users."""

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

from console.cli import main
from console.common import paths
from console.common.errors import ConsoleError, Exit
from console.common.files import in_memory
from console.config.locate import site_file
from console.frontends.cli.rollback import ANY_SITE, _site_plan
from console.host import process
from console.recovery.rollback import command, records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.command import rollback
from console.recovery.rollback.finder import Finder, SelectedPlan
from console.recovery.rollback.progress import Result, record_request
from console.recovery.rollback.sealed_plan import SealedPlan
from tests.rollback.conftest import NOBODY, Stage, as_root, open_up, selected
from tests.runtime.serving import in_child


def test_pointer_round_trip(stage: Stage) -> None:
    path = stage.point()
    assert path.stat().st_mode & 0o777 == 0o644
    found = records.read(os.getuid())
    assert found is not None
    assert (found.run_id, found.run_dir) == (stage.plan.run_id, stage.plan.run_dir)
    assert records.find_all() == [found]
    records.clear("another run")
    assert records.find_all() == [found]
    records.clear(stage.plan.run_id)
    assert records.find_all() == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"run_id": 1}', "null"])
def test_garbage_pointer_is_none(text: str) -> None:
    paths.pointer(os.getuid()).write_text(text)
    assert records.read(os.getuid()) is None


def test_pointer_of_absurd_numbers_is_none(stage: Stage) -> None:
    """Any local user can write a pointer, and root reads them all."""
    path = stage.point()
    good = json.loads(path.read_text())
    believed = []
    for key in ("pid", "start", "uid", "started_at"):
        for number in ("Infinity", "NaN", "1e999", "-1", "1" * 400, '"1"', "true", "[1]"):
            text = json.dumps(good | {key: "HERE"}).replace('"HERE"', number)
            path.write_text(text)
            try:
                found = records.find_all()
            except Exception as error:
                believed.append((key, number, repr(error)))
            else:
                believed += [(key, number, one.started_at) for one in found]
    assert believed == []


@as_root
def test_forged_pointer_means_nothing(stage: Stage) -> None:
    """A pointer with a user's number in its name does not count when another user owns the file."""
    path = stage.point(uid=NOBODY)
    assert path.stat().st_uid == 0
    assert records.find_all() == []
    os.chown(path, NOBODY, NOBODY)
    assert [p.uid for p in records.find_all()] == [NOBODY]


def test_symlinked_pointer_means_nothing(stage: Stage) -> None:
    real = stage.root / "elsewhere.json"
    stage.point().rename(real)
    paths.pointer(os.getuid()).symlink_to(real)
    assert records.find_all() == []


def test_no_run_and_no_site_is_no_success_and_says_where_it_looked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = rollback(None, False, stage.lines.append)
    assert (result.nothing_to_do, result.serving) == (True, False)
    assert result.exit_code is Exit.USAGE, "nothing was tried; somebody has to name the site"
    assert stage.lines[-1]["rung"] == "done"
    assert result.detail == (
        "nothing was rolled back: there is no run here, and no site file "
        f"{paths.default_site()} or /etc/omni-console/site.yaml; "
        "name the site: omni-console rollback --site FILE"
    )
    monkeypatch.setenv("SUDO_USER", "ann")
    assert ", nor one in the home of ann; name" in rollback(None, False, None).detail


def test_the_command_for_a_user_without_anything_ends_2(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMNI_SITE", raising=False)
    assert main(["rollback"]) == Exit.USAGE
    assert capsys.readouterr().out.splitlines()[-1].startswith("nothing was rolled back: ")
    assert main(["rollback", "--json"]) == Exit.USAGE
    told = json.loads(capsys.readouterr().out)
    assert (told["serving"], told["nothing_to_do"]) == (False, True)
    assert main(["rollback", "--if-interrupted"]) == Exit.OK, "it only asks"


def test_the_site_file_of_the_machine_is_that_of_a_user_without_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emergency side and everything else read the same file."""
    monkeypatch.setattr(paths, "SYSTEM_SITE", stage.root / "etc.yaml")
    monkeypatch.delenv("OMNI_SITE", raising=False)
    own = paths.config_dir() / "site.yaml"
    assert (paths.default_site(), site_file(None)) == (own, None)
    assert rollback(stage.of_site, False, None).nothing_to_do
    paths.SYSTEM_SITE.write_text("")
    assert site_file(None) == paths.default_site() == paths.SYSTEM_SITE
    assert rollback(stage.of_site, False, None).serving
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("")
    assert site_file(None) == paths.default_site() == own


def test_explicit_site_comes_before_an_old_run(stage: Stage) -> None:
    seen: list[str] = []

    def seal() -> SealedPlan:
        seen.append("sealed")
        return stage.of_site()

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
    stage.usual_site()
    assert rollback(stage.of_site, False, stage.lines.append).serving
    assert list(paths.state_dir().glob("rollback/sites/*/ladder.jsonl"))


def give_to_nobody(stage: Stage, path: Path) -> None:
    for one in (path, stage.plan.rollback_dir / "plan.json"):
        os.chown(one, NOBODY, NOBODY)
    open_up(stage.plan.rollback_dir)


@as_root
def test_root_acts_as_the_owner_of_the_run(stage: Stage) -> None:
    give_to_nobody(stage, stage.point(uid=NOBODY))

    def act() -> object:
        notes: list[str] = []
        plan = selected(None, False, notes.append).plan
        return [plan.run_id, os.getresuid(), os.getresgid(), os.getgroups(), notes]

    run_id, uids, gids, groups, notes = in_child(act)
    assert run_id == stage.plan.run_id
    assert uids == [NOBODY] * 3
    assert gids == [pwd.getpwuid(NOBODY).pw_gid] * 3
    assert 0 not in groups
    assert pwd.getpwuid(NOBODY).pw_name in notes[0]


@as_root
@pytest.mark.parametrize("alive", [True, False])
def test_roots_own_run_comes_before_what_another_user_wrote(stage: Stage, alive: bool) -> None:
    stage.point()
    os.chown(stage.point(uid=NOBODY, run_id="made-up", alive=alive, started_at=9e9), NOBODY, NOBODY)

    def act() -> object:
        return [selected(None).source, os.getuid()]

    assert in_child(act) == ["this user's run", 0]


def run_of_nobody(stage: Stage, holds: bool = True) -> None:
    """A live run of another user: its runner holds that user's lock, as its pointer says."""
    path = paths.host_lock(NOBODY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    open_up(path.parent)
    lock = path if holds else stage.root / "another"
    lock.touch()
    open_up(stage.root)
    pid, start = stage.holder(lock)
    made = stage.point(uid=NOBODY, run_id="theirs", pid=pid, start=start)
    os.chown(made, NOBODY, NOBODY)


@as_root
@pytest.mark.parametrize("holds", [True, False])
def test_a_run_of_another_user_that_is_really_on_ends_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    """Its runner has to hold the host's lock: a pointer at any other process does not count."""
    first = list[str]()
    stage.point()
    monkeypatch.setattr(
        records, "roll_back_first", lambda other, _: first.append(other.run_id) or True
    )
    run_of_nobody(stage, holds)
    assert selected(None).source == "this user's run"
    assert first == (["theirs"] if holds else [])


@as_root
def test_another_users_rollback_is_that_users_process(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell stands in for the command, because only root may be able to read the interpreter."""
    notes: list[str] = []
    asks = ("/bin/sh", "-c", 'echo "$1 $(id -u) $(id -G) $HOME"; exit 7', "sh")
    monkeypatch.setattr(records, "module_argv", lambda name: asks)
    entry = pwd.getpwuid(NOBODY)
    them = records.Pointer("theirs", "/r", "x", NOBODY, 2, 2)
    records.roll_back_first(them, notes.append)
    assert "run theirs of nobody was interrupted" in notes[0]
    assert notes[1:] == [f"nobody: exit 7, rollback {NOBODY} {entry.pw_gid} {entry.pw_dir}"]


def test_a_run_that_is_just_starting_is_ended(stage: Stage) -> None:
    """A run writes its pointer before its plan; without a plan the baseline is not down yet."""
    pid, start = stage.sleeper()
    (stage.plan.rollback_dir / "plan.json").unlink()
    stage.point(pid=pid, start=start)
    result = rollback(None, False, stage.lines.append)
    assert result.nothing_to_do
    assert not process.alive(pid, start)


def test_a_run_that_begins_during_the_climb_is_rolled_back_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = stage.of_site(site_name="mine")
    rolled_back: list[str] = []

    def roll_back(one: SelectedPlan, *_: object) -> Result:
        rolled_back.append(one.plan.run_id or one.plan.site_name)
        if len(rolled_back) == 1:
            stage.point(alive=True)
        else:
            records.clear(stage.plan.run_id)
        return Result(serving=True)

    monkeypatch.setattr(command, "_run", roll_back)
    assert rollback(lambda: site, True, None).serving
    assert rolled_back == ["mine", stage.plan.run_id]


@as_root
@pytest.mark.parametrize("own_site", [False, True])
def test_plan_of_another_user_is_never_acted_on(stage: Stage, own_site: bool) -> None:
    """The plan's argv, log and finish command would run with the rights of whoever reads it."""
    stage.point(alive=True)
    foreign = paths.runs_dir() / "theirs" / "rollback" / "plan.json"
    sealed.write(stage.plan, foreign)
    open_up(stage.plan.rollback_dir)
    open_up(foreign.parent)
    open_up(stage.usual_site().parent)
    plan = stage.of_site(site_name="mine")

    def act() -> object:
        os.setgroups([])
        os.setuid(NOBODY)
        notes: list[str] = []
        one = Finder((lambda: plan) if own_site else None, False, notes.append).find()
        return [one and one.plan.site_name, notes]

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
    record_request(stage.plan.rollback_dir, "me", 1.0)
    assert not outside.exists()
    (stage.plan.rollback_dir / "asked.jsonl").unlink()
    os.mkfifo(stage.plan.rollback_dir / "asked.jsonl")
    record_request(stage.plan.rollback_dir, "me", 1.0)


def old_plan(stage: Stage, name: str, site: str, at: float) -> Path:
    path = paths.runs_dir() / name / "rollback" / "plan.json"
    run_dir = str(path.parent.parent)
    plan = replace(stage.plan, run_id=name, run_dir=run_dir, site_path=site, sealed_at=at)
    sealed.write(plan, path)
    os.utime(path, (at, at))
    return path


def selected_by(seal: Callable[[], SealedPlan] | None) -> str:
    plan = selected(seal).plan
    return plan.run_id or plan.site_name


def test_newest_plan_counts_only_for_its_own_site(stage: Stage) -> None:
    site, now = paths.default_site(), time.time() + 60
    site.parent.mkdir(parents=True, exist_ok=True)
    site.write_text("site")
    named = replace(stage.plan.baseline, name="new")
    fresh = stage.of_site(site_name="fresh", baseline=named)

    def refuses() -> SealedPlan:
        raise ConsoleError("the site file cannot be used")

    def breaks() -> SealedPlan:
        raise ImportError("pydantic")

    old_plan(stage, "demo", "/elsewhere/site.yaml", now + 9)
    assert selected_by(lambda: fresh) == "fresh"
    assert selected_by(refuses) == "demo"
    assert selected_by(breaks) == "demo"
    assert selected_by(None) == "demo"
    old_plan(stage, "ours", str(site), now)
    kept = selected(lambda: fresh).plan
    assert kept.run_id == "ours"
    assert kept.baseline.by_name, "the run is over: its container's id may be a spare one's"
    os.utime(site, (now + 5, now + 5))
    found = selected(lambda: fresh).plan
    assert (found.run_id, found.baseline) == ("ours", named), "the file changed since"
    assert selected_by(refuses) == "ours"
    site.unlink()
    assert selected_by(lambda: fresh) == "demo", "no site file: the newest run"


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
from console.recovery.rollback.command import rollback
result = rollback(None, False, lambda line: print(json.dumps(line)))
sys.exit(result.exit_code)
"""


def test_works_with_everything_else_broken(stage: Stage) -> None:
    stage.point()
    Path(stage.plan.run_dir, "journal.db").write_bytes(b"\0" * 4096)
    said = subprocess.check_output([sys.executable, "-c", BROKEN], text=True)
    assert json.loads(said.splitlines()[-1])["serving"] is True


def test_a_stage_ends_whatever_it_has_started_as_the_baseline(stage: Stage) -> None:
    """The record of a second one may replace that of the first, which then served for ever."""
    spec = stage.plan.baseline.process
    assert spec is not None
    stage.base(process=replace(spec, argv=(*spec.argv, "--shared")))
    started = [stage.start_baseline() for _ in range(3)]
    assert all(process.alive(*one) for one in started)
    stage.close()
    assert not any(process.alive(*one) for one in started)


def test_what_sudo_imports_beforehand_makes_a_whole_plan() -> None:
    """Root becomes a user who may not read the interpreter's files: no import comes later."""
    with in_memory() as file:
        file.write(ANY_SITE)
        file.flush()
        assert _site_plan(f"/proc/self/fd/{file.fileno()}").site_name == "any"
