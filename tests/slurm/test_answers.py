"""What is made of the answers of Slurm's programs, by stand-ins for them."""

import os
from pathlib import Path

import pytest

from console.runner.slurm import job as slurm
from console.runner.slurm.job import Wish

WAITS = "7|PENDING|BeginTime|2026-11-26T23:00:00|1:00:00|"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in front of PATH."""
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setenv("PATH", f"{made}{os.pathsep}{os.environ['PATH']}")
    return made


def program(place: Path, name: str, script: str) -> None:
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)


@pytest.mark.parametrize("name", ["SQUEUE_PARTITION", "SQUEUE_USERS", "SQUEUE_NAMES"])
def test_what_a_user_wants_to_see_of_the_queue_hides_no_job(
    programs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """squeue leaves out what the variable does not name: the job counted as one that is over, and
    its run never began."""
    program(programs, "squeue", f'[ "${name}" ] || echo "{WAITS}"')
    monkeypatch.setenv(name, "other")
    assert not slurm.look(["7"])["7"].over


@pytest.mark.parametrize("name", ["SBATCH_ARRAY_INX", "SBATCH_WAIT"])
def test_a_job_is_one_that_is_asked_for_and_not_waited_for_whatever_the_shell_says(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Of several jobs the one that squeue shows has another number; sbatch that waits for the end
    of the job was given up, and the job stayed."""
    program(programs, "sbatch", f'cat >/dev/null; [ "${name}" ] || echo 7')
    monkeypatch.setenv(name, "1")
    assert slurm.submit(Wish(), "trial", ["true"], tmp_path, 60.0, "box") == "7"


def test_a_cancelled_job_is_cancelled_without_a_question(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(programs, "scancel", f'[ "$SCANCEL_INTERACTIVE" ] || : > {tmp_path}/done')
    monkeypatch.setenv("SCANCEL_INTERACTIVE", "true")
    slurm.cancel("7")
    assert (tmp_path / "done").exists()
