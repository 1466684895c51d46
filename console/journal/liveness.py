"""Whether a run's runner is alive: by pid and start time, never by a file's existence."""

from __future__ import annotations

from console.host import process
from console.journal.run_dir import RunDir
from console.recovery.rollback import live
from console.recovery.rollback.lock import is_held
from console.recovery.rollback.progress import unfinished


def runner_alive(run: RunDir) -> bool:
    """Whether the newest recorded runner of this run still lives."""
    runners = [entry for entry in live.read(run.live) if entry.kind == "runner"]
    return bool(runners) and process.alive(runners[-1].pid, runners[-1].start)


def ladder_busy(run: RunDir) -> bool:
    """Whether a rollback of this run has begun, not said its end, and still holds its lock."""
    try:
        size: int = run.ladder.stat().st_size
    except OSError:
        return False
    # A ladder that was killed leaves lines without an end; the kernel took its lock away.
    return unfinished(run.ladder) < size and is_held(run.rollback)
