"""What the flight recorder of a run kept, how its recording ends, and when a rollback got how far.

Files may be on a slow disk: do not read them on the UI loop.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import UsageError
from console.common.text import cleaned
from console.common.units import number
from console.journal.breach import read_breach
from console.journal.events import Breach
from console.journal.run_dir import RunDir, all_runs, find_run
from console.recovery.guard import config as guard_config
from console.recovery.guard.config import EXPIRIES
from console.recovery.guard.record.read import FastSample, Recording, open_newest, restarted, utc
from console.recovery.rollback.progress import StageName, read_lines

LAST_S = 120.0
"""Seconds at the end of a recording that are examined."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run's recording; all text is clean. `synced` is when the copy on disk was last written,
    in Unix seconds, None if the recording is not that copy. `breach` is False if there was none."""

    run: RunDir
    recording: Recording
    fast: tuple[FastSample, ...] = ()
    slow: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    breach: Breach = field(default_factory=Breach)
    synced: float | None = None

    @property
    def restarted(self) -> bool:
        """Whether it was written in another boot of this machine, or on another machine."""
        return restarted(self.recording)

    @property
    def ends(self) -> float:
        """Unix time of the newest entry."""
        return self.fast[-1].wall if self.fast else self.recording.newest()

    @property
    def level(self) -> str:
        """The sentinel's last level: ok, warn, act, or "" before its first sample."""
        return self.fast[-1].level if self.fast else ""


def load(run: RunDir, last_s: float = LAST_S) -> Recorded | None:
    """Return the recording of a run; None if it has none that can be read."""
    recording = open_newest(run.path)
    if recording is None:
        return None
    return Recorded(
        run, recording, tuple(recording.fast(last_s)),
        tuple(cleaned(recording.slow(last_s))), tuple(cleaned(recording.events())),
        table(cleaned(recording.status())), read_breach(run) or struck(recording),
        _synced(run, recording),
    )  # fmt: skip


def find(text: str | None, last_s: float = LAST_S) -> Recorded:
    """Return the recording of the named run, or of the newest that has one. Raises UsageError."""
    runs = [find_run(text)] if text else all_runs()
    excerpt = next(filter(None, (load(run, last_s) for run in runs)), None)
    if excerpt is not None:
        return excerpt
    if text:
        hint = f"omni-console show {runs[0].id[-4:]} says what its journal knows"
        raise UsageError(f"{runs[0].id} has no recording", "no sentinel watched it", hint)
    raise UsageError(
        "no run has a recording", "a sentinel writes one while a run is on",
        "omni-console runs lists the runs there are",
    )  # fmt: skip


def struck(recording: Recording) -> Breach:
    """Return what the recording knows of a breach that could not be written to disk, when and why;
    an empty one if there was none."""
    if table(recording.status()).get("acted") is not True:
        return Breach()
    kinds = ("breach", *EXPIRIES)
    events = [event for event in cleaned(recording.events()) if event.get("what") in kinds]
    if not events:
        return Breach()
    last = events[-1]
    cause = last["what"] if last["what"] in EXPIRIES else "guard"
    at, mono, reason = number(last.get("wall")), number(last.get("mono")), str(last.get("text", ""))
    return Breach(at=at, wall=at, mono=mono, reason=reason, cause=cause)


def stage_at(run: RunDir, stage: StageName, since: float) -> float | None:
    """Return the Unix second at which a stage of a rollback first succeeded since then, or None."""
    lines, _ = read_lines(Path(run.ladder), 0)
    moments = (x.get("at") for x in lines if x.get("rung") == stage and x.get("state") == "ok")
    return next((float(at) for at in moments if isinstance(at, int | float) and at >= since), None)


def ending(excerpt: Recorded) -> list[str]:
    """Return in lines whether the sentinel lives, whether this is still the same boot, and where
    the recording ends."""
    ends = utc(excerpt.ends, "%Y-%m-%d %H:%M:%S")
    if excerpt.recording.alive:
        return [
            f"the sentinel is alive (pid {excerpt.recording.pid}); its last sample is of {ends}"
        ]
    gone = f"the sentinel is gone (pid {excerpt.recording.pid})"
    if excerpt.restarted:
        gone = "this machine has been restarted since: boot id differs"
    sync = ""
    if excerpt.synced is not None and excerpt.synced >= excerpt.ends:
        sync = f", {excerpt.synced - excerpt.ends:.1f} s before the last sync"
    return [gone, f"the recording ends at {ends}{sync}"]


def table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _synced(run: RunDir, recording: Recording) -> float | None:
    with contextlib.suppress(OSError):
        if recording.path == run.guard / guard_config.RING:
            return os.stat(recording.path).st_mtime
    return None
