"""Rollbacks without a record, a plan, a home or a boot in common; and what a pointer tells then."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from console.common import paths
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.files import MAX_END
from console.frontends.cli import rollback as cli_rollback
from console.host import process
from console.host.process import BASELINE_COOKIE
from console.recovery.rollback import records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.command import rollback
from console.recovery.rollback.progress import PROGRESS_FILE, read_lines
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.sealed_plan import SealedPlan
from tests.rollback.conftest import NOBODY, Stage, as_root, standin
from tests.waiting import some

Restore = Callable[[], None]


def unrecorded(stage: Stage) -> tuple[int, int]:
    """Remove the record of the running baseline, as if a full disk had not taken it."""
    found = stage.running()
    stage.groups.append(found)
    process.record_path(stage.plan.records_dir, "baseline").unlink()
    return found


def test_a_baseline_without_a_record_is_known(stage: Stage, restore: Restore) -> None:
    restore()
    found = unrecorded(stage)
    stage.lines.clear()
    result = stage.roll_back()
    assert (result.nothing_to_do, stage.said("start", "note")) == (True, [])
    assert stage.baseline_process() == found
    stage.seal(baseline=replace(stage.plan.baseline, process=standin(1)))
    assert process.known(stage.plan.records_dir, "baseline", standin(1), "baseline") is None


def test_a_baseline_that_another_site_has_taken_over_gets_no_record_again(stage: Stage) -> None:
    """Its mark still says which site has started it: that is the site of before."""
    base = stage.plan.baseline
    assert stage.roll_back().serving
    running, spec = stage.running(), some(base.process)
    process.record_path(stage.plan.records_dir, base.name).unlink()
    other = stage.plan.records_dir.parent / "other"
    paths.make(other)
    process.write_record(other, base.name, spec, *running)
    repaired = partial(process.known, stage.plan.records_dir, base.name, spec, BASELINE_COOKIE)
    assert repaired(repair=True) == running
    assert stage.baseline_process() is None
    process.record_path(other, base.name).unlink()
    assert repaired(repair=True) == running
    assert stage.baseline_process() == running


def test_a_loading_baseline_without_a_record_is_not_started_again(
    stage: Stage, restore: Restore
) -> None:
    restore()
    found = unrecorded(stage)
    stage.lines.clear()
    # It runs and does not answer at this address, like a baseline that loads for minutes.
    stage.seal(baseline=replace(stage.plan.baseline, url="http://127.0.0.1:9", ready_timeout_s=0.5))
    stage.roll_back()
    assert stage.said("start", "ok")[0] == f"pid {found[0]} runs already"


def test_a_runner_that_only_the_pointer_names_is_ended(stage: Stage) -> None:
    """Without live.jsonl the runner would go on and start its candidate again."""
    runner, other = stage.sleeper("no"), stage.sleeper("no")
    stage.point(pid=runner[0], start=runner[1])
    assert stage.roll_back().serving
    assert (process.alive(*runner), process.alive(*other)) == (False, True)
    stage.point(run_id="another", pid=other[0], start=other[1])
    stage.roll_back()
    assert process.alive(*other), "it is another run's"


@pytest.mark.parametrize("lost", ["garbage", "plan", "run", "state"])
@pytest.mark.parametrize("known_by", ["site", "its site", "copy"])
def test_a_run_whose_plan_is_lost_is_ended_and_the_baseline_is_back(
    stage: Stage, lost: str, known_by: str
) -> None:
    runner, step, site = stage.sleeper("no"), stage.sleeper(), stage.root / "site.yaml"
    (stage.plan.rollback_dir / sealed.SCRIPT).touch()
    site.touch()
    stage.point(pid=runner[0], start=runner[1], site=str(site))
    plan = replace(stage.plan, run_id="", run_dir="")
    lose(stage, lost)
    if known_by == "site":
        stage.usual_site()
    if known_by == "copy":
        sealed.write(stage.plan, stage.root / "state/omni-console/rollback/s.json")

    def sealed_at(path: str) -> SealedPlan:
        assert path == str(site)
        return plan

    seal = (lambda: plan) if known_by == "site" else None
    seal_at = sealed_at if known_by == "its site" else None
    result = rollback(seal, False, stage.lines.append, seal_at=seal_at)
    assert (result.serving, result.exit_code) == (True, Exit.OK)
    assert not process.alive(*runner)
    assert not process.alive(*step)


@pytest.mark.parametrize("known_by", ["copy", "ladder", "warm.json"])
def test_a_run_whose_script_is_lost_too_had_begun_all_the_same(stage: Stage, known_by: str) -> None:
    """A run that is just starting has neither plan nor script; a run that took the baseline down
    is known by its other files."""
    runner, step, standby = stage.sleeper("no"), stage.sleeper(), stage.sleeper("no")
    stage.point(pid=runner[0], start=runner[1])
    lose(stage, "plan")
    copy = stage.root / "state/omni-console/rollback/s.json"
    if known_by == "copy":
        sealed.write(stage.plan, copy)
    elif known_by == "ladder":
        stage.record("ladder", "warm", standby)
    else:
        (stage.plan.rollback_dir / known_by).touch()
    plan = replace(stage.plan, run_id="", run_dir="")
    result = rollback(None if copy.exists() else lambda: plan, True, stage.lines.append)
    assert (result.serving, result.nothing_to_do, result.exit_code) == (True, False, Exit.OK)
    assert not process.alive(*runner)
    assert not process.alive(*step)


def lose(stage: Stage, what: str) -> None:
    run = Path(stage.plan.run_dir)
    if what == "garbage":
        (stage.plan.rollback_dir / sealed.PLAN).write_text("{")
    elif what == "plan":
        (stage.plan.rollback_dir / sealed.PLAN).unlink()
    else:
        shutil.rmtree(run.parent if what == "state" else run)


def test_where_nothing_says_what_to_bring_back_it_is_no_success(stage: Stage) -> None:
    step = stage.sleeper()
    stage.point()
    lose(stage, "state")
    with pytest.raises(ConsoleError, match="nothing says which baseline to restore"):
        rollback(None, False, stage.lines.append)
    assert not process.alive(*step)


def test_output_that_is_closed(stage: Stage) -> None:
    """`omni-console rollback >&-` works without any output and has the usual exit code."""
    stage.point()
    command = f"{sys.executable} -m console.cli rollback <&- >&- 2>{stage.root}/err"
    done = subprocess.run(["sh", "-c", command], check=False, timeout=120)
    assert (done.returncode, (stage.root / "err").read_text()) == (Exit.OK, "")
    assert stage.baseline_process() is not None


@pytest.mark.parametrize("serving", [False, True])
def test_nothing_points_at_a_lost_run_once_the_baseline_serves(stage: Stage, serving: bool) -> None:
    stage.point()
    cli_rollback._remove_remains(True)
    assert len(records.find_all()) == 1, "its directory is there: its closer ends it"
    lose(stage, "run")
    cli_rollback._remove_remains(serving)
    assert len(records.find_all()) == (not serving)


@pytest.mark.parametrize("boot", ["another", process.boot_id()])
def test_a_runner_of_another_boot_is_nobody(stage: Stage, boot: str) -> None:
    """Pid and start time, both equal, are another process's after a reboot."""
    who = stage.sleeper("no")
    stage.point(pid=who[0], start=who[1], boot=boot)
    found = records.read(os.getuid())
    assert found is not None
    named = (0, 0) if boot == "another" else who
    assert (found.run_id, found.pid, found.start) == (stage.plan.run_id, *named)
    assert rollback(None, False, stage.lines.append).serving
    assert process.alive(*who) is (boot == "another")


def test_a_pointer_of_an_older_release_is_of_the_boot_that_it_was_written_in(stage: Stage) -> None:
    path = stage.point(pid=os.getpid(), start=7)
    value = json.loads(path.read_text())
    del value["boot"]
    path.write_text(json.dumps(value))
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for date, pid in ((booted + 60, os.getpid()), (booted - 60, 0)):
        os.utime(path, (date, date))
        found = records.read(os.getuid())
        assert found is not None
        assert found.pid == pid, date


@pytest.fixture
def homeless(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME is not set, and the list of users does not know this one."""

    def getpwuid(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", getpwuid)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_has_a_pointer(stage: Stage) -> None:
    stage.point()
    assert rollback(None, False, stage.lines.append).serving


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_or_a_pointer_is_told_so() -> None:
    with pytest.raises(UsageError, match="nothing says which baseline to restore") as raised:
        rollback(None, False, None)
    assert "HOME" in raised.value.detail
    assert "--site FILE" in raised.value.hint
    with pytest.raises(OSError, match="set HOME"):
        paths.make(paths.runs_dir())


@as_root
def test_what_another_users_rollback_prints_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo over; exit 7"
    monkeypatch.setattr(records, "module_argv", lambda name: ("/bin/sh", "-c", words, "sh"))
    notes: list[str] = []
    tracemalloc.start()
    try:
        records.roll_back_first(Pointer("theirs", "/r", "x", NOBODY, 2, 2), notes.append)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert notes[1:] == ["nobody: exit 7, over"]


@as_root
def test_another_users_run_is_rolled_back_by_its_script_where_the_program_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "module_argv", lambda name: ("/nowhere/python",))
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        script = Path(directory, "rollback", "rollback.sh")
        script.parent.mkdir()
        script.write_text("echo it serves")
        assert records.roll_back_first(Pointer("r", directory, "x", NOBODY, 2, 2), notes.append)
    assert notes[1:] == ["nobody: exit 0, it serves"]


def test_one_that_prints_for_ever_is_not_waited_for() -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            records.last_output(child, 0.1)
        child.kill()


def test_a_fifo_in_the_place_of_a_record_is_not_waited_for(stage: Stage, restore: Restore) -> None:
    records_dir, spec = stage.plan.records_dir, stage.plan.baseline.process
    record, ladder = process.record_path(records_dir, "baseline"), stage.plan.rollback_dir
    record.parent.mkdir(parents=True)
    for path in (stage.live, ladder / PROGRESS_FILE, record):
        os.mkfifo(path)
    restore()
    assert spec is not None
    found = process.known(records_dir, "baseline", spec, "baseline")
    assert found is not None
    stage.groups.append(found)


def test_of_a_huge_record_the_end_counts(stage: Stage, restore: Restore) -> None:
    """A crash or a stranger has left it with a gigabyte that nobody wrote."""
    ladder = stage.plan.rollback_dir / PROGRESS_FILE
    for path in (stage.live, ladder):
        with path.open("w") as file:
            file.truncate(1 << 30)
    candidate = stage.recorded("process", "cand")
    tracemalloc.start()
    try:
        restore()
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_END
    finally:
        tracemalloc.stop()
    assert not process.alive(*candidate)
    assert read_lines(ladder)[0][-1]["rung"] == "done"
