"""Rollbacks without the baseline's record, without the run's plan, or without all its data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.errors import ConsoleError, Exit
from console.frontends.cli import rollback as cli_rollback
from console.host import process
from console.recovery.rollback import records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.command import rollback
from console.recovery.rollback.sealed_plan import SealedPlan
from tests.rollback.conftest import Stage, standin

Restore = Callable[[], None]


def unrecorded(stage: Stage) -> tuple[int, int]:
    """Remove the record of the running baseline, as if a full disk had not taken it."""
    found = stage.baseline_process()
    assert found is not None
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
    with pytest.raises(ConsoleError, match="nothing says what to bring back"):
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
    cli_rollback._put_away(True)
    assert len(records.find_all()) == 1, "its directory is there: its closer ends it"
    lose(stage, "run")
    cli_rollback._put_away(serving)
    assert len(records.find_all()) == (not serving)
