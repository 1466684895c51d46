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
from typing import Any

import pytest

from console import paths
from console.errors import ConsoleError, Exit
from console.rollback import plan as sealed
from console.rollback import pointer
from console.rollback.command import rollback
from console.rollback.finder import Finder
from console.rollback.plan import SealedPlan
from console.rollback.pointer import Pointer
from console.rollback.report import asked
from console.services import process
from console.services.base import ProcessSpec
from tests.rollback.conftest import Stage

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


def made(stage: Stage, uid: int | None = None, run_id: str = "") -> Pointer:
    mine = os.getuid() if uid is None else uid
    return Pointer(run_id or stage.plan.run_id, stage.plan.run_dir, "x", mine, 1, 1, started_at=1.0)


def test_pointer_round_trip(stage: Stage) -> None:
    path = pointer.write(made(stage))
    assert path.stat().st_mode & 0o777 == 0o644
    assert pointer.read(os.getuid()) == made(stage)
    assert pointer.find_all() == [made(stage)]
    pointer.clear("another run")
    assert pointer.find_all() == [made(stage)]
    pointer.clear(stage.plan.run_id)
    assert pointer.find_all() == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"run_id": 1}', "null"])
def test_garbage_pointer_is_none(text: str) -> None:
    paths.pointer(os.getuid()).write_text(text)
    assert pointer.read(os.getuid()) is None


@as_root
def test_forged_pointer_means_nothing(stage: Stage) -> None:
    """A file with another user's number in its name, owned by somebody else."""
    path = pointer.write(made(stage, NOBODY))
    assert path.stat().st_uid == 0
    assert pointer.find_all() == []
    os.chown(path, NOBODY, NOBODY)
    assert [p.uid for p in pointer.find_all()] == [NOBODY]


def test_symlinked_pointer_means_nothing(stage: Stage) -> None:
    real = stage.root / "elsewhere.json"
    pointer.write(made(stage)).rename(real)
    paths.pointer(os.getuid()).symlink_to(real)
    assert pointer.find_all() == []


def test_own_run_first(stage: Stage) -> None:
    pointer.write(made(stage))
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
        path = paths.runs_dir() / name / "rollback" / "plan.json"
        sealed.write(replace(stage.plan, run_id=name, run_dir=str(path.parent.parent)), path)
        os.utime(path, (1000 + at, 1000 + at))
    (paths.runs_dir() / "c" / "rollback" / "plan.json").write_text("garbage")
    os.utime(paths.runs_dir() / "c" / "rollback" / "plan.json", (2000, 2000))
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


def in_child(act: Callable[[], object]) -> Any:
    """Run in a forked child, because it gives root away; what it returned, through JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(act()).encode())
        except BaseException as error:
            os.write(writer, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return json.loads(data)


@as_root
def test_root_acts_as_the_owner_of_the_run(stage: Stage) -> None:
    """What root finds in another user's plan is done with that user's rights only."""
    mark = stage.root / "host" / "mark"
    code = "import os,sys; open(sys.argv[1], 'w').write(str(os.getuid()))"
    spec = ProcessSpec((sys.executable, "-c", code, str(mark)))
    (stage.root / "host").chmod(0o777)
    stage.base(process=spec, ready_timeout_s=1.0)
    path = pointer.write(made(stage, NOBODY))
    os.chown(path, NOBODY, NOBODY)
    os.chown(stage.plan.rollback_dir / "plan.json", NOBODY, NOBODY)
    open_up(stage.plan.rollback_dir)

    def act() -> object:
        lines: list[dict[str, object]] = []
        finder = Finder(None, False, lambda detail: lines.append({"detail": detail}))
        choice = finder.find()
        assert choice is not None
        with open("/proc/self/status") as file:
            groups = next(x for x in file if x.startswith("Groups:")).split()[1:]
        return [choice.plan.run_id, os.getresuid(), os.getresgid(), groups, lines]

    run_id, uids, gids, groups, lines = in_child(act)
    assert run_id == stage.plan.run_id
    assert uids == [NOBODY] * 3
    assert gids == [pwd.getpwuid(NOBODY).pw_gid] * 3
    assert "0" not in groups
    assert pwd.getpwuid(NOBODY).pw_name in lines[0]["detail"]


@as_root
def test_root_gives_a_live_run_of_another_user_the_way_over_its_own_stale_one(
    stage: Stage,
) -> None:
    pointer.write(made(stage))
    pid = os.getpid()
    live = replace(made(stage, NOBODY, "live"), pid=pid, start=process.start_time(pid) or 0)
    os.chown(pointer.write(live), NOBODY, NOBODY)
    os.chown(stage.plan.rollback_dir / "plan.json", NOBODY, NOBODY)
    open_up(stage.plan.rollback_dir)

    def act() -> object:
        notes: list[str] = []
        choice = Finder(None, False, notes.append).find()
        return [choice is not None and choice.source, os.getuid()]

    assert in_child(act) == [f"the run of {pwd.getpwuid(NOBODY).pw_name}", NOBODY]


@as_root
@pytest.mark.parametrize("own_site", [False, True])
def test_plan_of_another_user_is_never_acted_on(stage: Stage, own_site: bool) -> None:
    """Its argv, its log, its finish command: all of it would run with the reader's rights."""
    pid = os.getpid()
    pointer.write(replace(made(stage), pid=pid, start=process.start_time(pid) or 0))
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
    pointer.write(made(stage))
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


def site_file() -> Path:
    path = paths.default_site()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("site")
    return path


def old_plan(stage: Stage, name: str, site: str, at: float) -> None:
    path = paths.runs_dir() / name / "rollback" / "plan.json"
    run_dir = str(path.parent.parent)
    sealed.write(
        replace(stage.plan, run_id=name, run_dir=run_dir, site_path=site, sealed_at=at), path
    )
    os.utime(path, (at, at))


def chosen(seal: Callable[[], SealedPlan] | None) -> str:
    choice = Finder(seal, False, print).find()
    return (choice.plan.run_id or choice.plan.site_name) if choice else ""


def test_newest_plan_counts_only_for_its_own_site(stage: Stage) -> None:
    site, now = site_file(), time.time() + 60
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


def test_works_with_everything_else_broken(stage: Stage) -> None:
    """Nothing but the standard library can be imported, and the journal is garbage."""
    pointer.write(made(stage))
    Path(stage.plan.run_dir, "journal.db").write_bytes(b"\0" * 4096)
    code = (
        "import sys, json\n"
        "class Broken:\n"
        "    names = {'pydantic', 'ruamel', 'docker', 'textual', 'rich', 'httpx', 'psutil',\n"
        "             'pynvml', 'yaml', 'sqlite3'}\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in self.names: raise ImportError('broken: ' + name)\n"
        "sys.meta_path.insert(0, Broken())\n"
        "from console.rollback.command import rollback\n"
        "result = rollback(None, False, lambda line: print(json.dumps(line)))\n"
        "sys.exit(result.exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["serving"] is True


def test_failure_is_exit_seven(stage: Stage) -> None:
    spec = ProcessSpec(("/nowhere/server",))
    stage.base(process=spec)
    pointer.write(made(stage))
    result = rollback(None, False, None)
    assert result.exit_code is Exit.ROLLBACK_FAILED
    assert result.manual
