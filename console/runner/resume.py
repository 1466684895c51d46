"""Going on with a run whose runner died: a new runner reads the journal back."""

from __future__ import annotations

from console.common.errors import ConsoleError, UsageError
from console.common.text import clean
from console.host.linger import Detachment
from console.journal.liveness import runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_read import NEVER_BEGAN, NO_RESUME, read_view, word_of
from console.journal.run_view import RunView
from console.journal.store import NewerJournal, check_version
from console.runner.launch import launch


def check_resume(run: RunDir, from_step: str = "") -> None:
    """Raises UsageError when this run is not one to go on with, NewerJournal when a newer program
    began it."""
    alive, word = runner_alive(run), ""
    try:
        view = read_view(run)
        word = word_of(run, view, alive)
        check_version(run.journal)
    except NewerJournal:
        raise
    except ConsoleError:
        view = RunView()
    if alive:
        raise UsageError(f"run {run.id} is alive", hint="omni-console attach joins it")
    if word == NEVER_BEGAN:
        raise UsageError(f"run {run.id} never began", NO_RESUME)
    if view.finished:
        raise UsageError(f"run {run.id} has ended: {view.state}", hint="start a new run")
    if from_step and view.step(from_step) is None:
        raise UsageError(f"run {run.id} has no step '{clean(from_step, 40)}'")


def resume(run: RunDir, from_step: str = "") -> Detachment:
    """Start a runner that goes on, from `from_step` where one is given.

    Raises UsageError when there is nothing to go on with, NotStarted when the runner refused.
    """
    check_resume(run, from_step)
    return launch(run, "--resume", *([f"--from={from_step}"] if from_step else []))
