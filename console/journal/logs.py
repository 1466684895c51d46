"""Which log files a run has, in the order in which they matter now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from console.common.text import clean
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.recovery.rollback.sealed_plan import SealedPlan

STEP, SERVICE, CONSOLE = "step", "service", "console"
WRITERS = ("run", "script", "build", "check")
"""Kinds of step whose own output matters more than the services' logs."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log; `name` is clean. `kind`: step, service or console (the runner's own).

    `step`: the id of the step whose output it is, "" for another. `filled`: something is in it.
    """

    name: str
    path: Path
    kind: str
    step: str = ""
    filled: bool = False


def log_files(run: RunDir, view: RunView, plan: SealedPlan | None) -> tuple[LogFile, ...]:
    """The current step's output, the services, then older outputs, newest first; reads the disk.

    The baseline is among the services where it is a host process. The last one is the runner's.
    """
    outputs: list[LogFile] = []
    for step in sorted(view.steps, key=lambda s: s.started, reverse=True):
        path = run.attempt_log(step.id, step.attempt)
        if step.attempt and (size := _size(path)) is not None:
            outputs.append(
                LogFile(f"output of {clean(step.id, 40)}", path, STEP, step.id, size > 0)
            )
    services = _services(run, view)
    if plan is not None and plan.baseline.log:
        services.append(_log("baseline", Path(plan.baseline.log), SERVICE))
    runner = _log("the runner's own log", Path(run.runner_log), CONSOLE)
    current = view.current
    if current is not None and current.kind not in WRITERS:
        return (*services, *outputs, runner)
    return (*outputs[:1], *services, *outputs[1:], runner)


def _services(run: RunDir, view: RunView) -> list[LogFile]:
    """Those that are alive first."""
    try:
        found = sorted((run.path / "logs").glob("*.log"))
    except OSError:
        return []
    found.sort(key=lambda path: path.stem not in view.services)
    return [_log(clean(path.stem, 40), path, SERVICE) for path in found]


def _log(name: str, path: Path, kind: str) -> LogFile:
    return LogFile(name, path, kind, filled=bool(_size(path)))


def _size(path: Path) -> int | None:
    """Bytes in it; None where there is no such file."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None
