"""rollback.sh beside a run that has begun since: it is ended, or named with 7."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from console.host import process
from console.recovery.rollback import records
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.script import write
from tests.rollback.conftest import DASH, Stage, kill_now, run_script

pytestmark = pytest.mark.skipif(DASH is None, reason="needs dash")


@pytest.mark.parametrize("found_by", ["pointer", "process"])
@pytest.mark.parametrize("sealed_already", [False, True])
def test_a_run_that_has_begun_since_is_ended(
    stage: Stage, found_by: str, sealed_already: bool
) -> None:
    """It has not sealed its plan yet, so this is the script of the run before."""
    place = stage.root / "runs" / "a later one"
    (place / "rollback").mkdir(parents=True)
    (place / "run.json").write_text(json.dumps({"site": "/etc/o’s.yaml"}, indent=1))
    if sealed_already:
        (place / "rollback" / "rollback.sh").write_text("echo here it goes on; exit 7\n")
    stage.seal(site_path="/etc/o’s.yaml")
    runner = runner_of(stage, place)
    closer = runner_of(stage, place, "--close")
    if found_by == "pointer":
        kill_now(runner)
        runner = stage.sleeper("no")
        pointer = Pointer(place.name, str(place), "me", os.getuid(), *runner, site="/etc/o’s.yaml")
        records.write(pointer)
    done = run_script(stage)
    assert not process.alive(*runner), done.stdout
    assert process.alive(*closer)
    assert "run a later one has begun on this site" in done.stdout
    assert done.returncode == (7 if sealed_already else 0), done.stdout
    assert ("here it goes on" in done.stdout) is sealed_already


def test_a_run_of_another_site_is_left_alone(stage: Stage) -> None:
    place = stage.root / "runs" / "later"
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"site": f"{stage.root}/b.yaml"}, indent=1))
    stage.seal(site_path=f"{stage.root}/a.yaml")
    runner = runner_of(stage, place)
    records.write(
        Pointer("later", str(place), "me", os.getuid(), *runner, site=f"{stage.root}/b.yaml")
    )
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    assert process.alive(*runner)


def test_beside_a_run_that_cannot_be_ended_it_does_not_end_well(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stage.root / "runs" / "later"
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"site": f"{stage.root}/a.yaml"}, indent=1))
    stage.seal(site_path=f"{stage.root}/a.yaml")
    runner_of(stage, place)
    whole = write.render(stage.plan)
    helpless = whole.replace('signal_same KILL "$pid" "$start"\n    left=30', "left=3")
    assert helpless != whole
    monkeypatch.setattr(write, "render", lambda plan: helpless)
    done = run_script(stage)
    assert done.returncode == 7, done.stdout
    assert "run later goes on and may take it down" in done.stdout


def runner_of(stage: Stage, place: Path, *more: str) -> tuple[int, int]:
    """What looks like the runner of a run in this directory."""
    words = ["-P", "-m", "console.cli", "runner", str(place), *more]
    return stage.spawn([sys.executable, "-c", "import time; time.sleep(600)", *words], cookie="no")
