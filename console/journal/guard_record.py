"""What a flight recorder kept of a run: loaded for the console and for `recorder`, and in words.

Reads files that may lie on a slow disk: not on the UI loop.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import UsageError
from console.journal.breach import read_table
from console.journal.run_dir import RunDir, all_runs, find_run
from console.journal.run_files import cleaned
from console.recovery.guard import config as sheets
from console.recovery.guard.config import Sheet
from console.recovery.guard.record.read import FastSample, Recording, open_newest, restarted, utc
from console.recovery.rollback.progress import read_lines

LAST_S = 120.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run's recording; all text is clean. `synced`: when the copy on disk was written last,
    Unix seconds, None where the recording is not that copy. `breach`: {} where there was none."""

    run: RunDir
    recording: Recording
    fast: tuple[FastSample, ...] = ()
    slow: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    breach: dict[str, Any] = field(default_factory=dict)
    synced: float | None = None

    @property
    def restarted(self) -> bool:
        """Whether it was written in another boot of this machine, or on another machine."""
        return restarted(self.recording)

    @property
    def ends(self) -> float:
        """Unix time of the last thing in it."""
        return self.fast[-1].wall if self.fast else self.recording.newest()

    @property
    def level(self) -> str:
        """What the sentinel thought last: ok, warn, act, or "" before its first sample."""
        return self.fast[-1].level if self.fast else ""


def load(run: RunDir, last_s: float = LAST_S) -> Recorded | None:
    """The recording of a run; None where it has none that can be read."""
    recording = open_newest(run.path)
    if recording is None:
        return None
    return Recorded(
        run, recording, tuple(recording.fast(last_s)),
        tuple(cleaned(recording.slow(last_s))), tuple(cleaned(recording.events())),
        table(cleaned(recording.status())), breach(run) or struck(recording),
        _synced(run, recording),
    )  # fmt: skip


def find(text: str | None, last_s: float = LAST_S) -> Recorded:
    """The recording of a run by name, or of the newest run that has one. Raises UsageError."""
    runs = [find_run(text)] if text else all_runs()
    found = next(filter(None, (load(run, last_s) for run in runs)), None)
    if found is not None:
        return found
    if text:
        hint = f"omni-console show {runs[0].id[-4:]} says what its journal knows"
        raise UsageError(f"{runs[0].id} has no recording", "no sentinel watched it", hint)
    raise UsageError(
        "no run has a recording", "a sentinel writes one while a run is on",
        "omni-console runs lists the runs there are",
    )  # fmt: skip


def breach(run: RunDir) -> dict[str, Any]:
    """What was breached and killed, clean; {} where nothing was, or the file is garbage."""
    return table(cleaned(read_table(run.guard / sheets.BREACH)))


def struck(recording: Recording) -> dict[str, Any]:
    """Of a breach that could not be written to disk what the recording knows: when, and why; {}
    where nothing was."""
    if table(recording.status()).get("acted") is not True:
        return {}
    events = [one for one in cleaned(recording.events()) if one.get("what") in ("breach", "lease")]
    if not events:
        return {}
    last = events[-1]
    cause = "lease" if last["what"] == "lease" else "guard"
    at, mono = last.get("wall"), last.get("mono")
    return {"at": at, "wall": at, "mono": mono, "reason": str(last.get("text", "")), "cause": cause}


def sheet_of(run: RunDir) -> Sheet | None:
    """What the sentinel of a run was told; None where there is none that can be read."""
    try:
        return sheets.read(run.guard / sheets.SHEET)
    except (OSError, ValueError, RecursionError):
        return None


def ladder_at(run: RunDir, rung: str, since: float) -> float | None:
    """When a rung of a ladder went well for the first time since then, Unix seconds."""
    lines, _ = read_lines(Path(run.ladder), 0)
    well = (one for one in lines if one.get("rung") == rung and one.get("state") == "ok")
    moments = (one.get("at") for one in well)
    return next((float(at) for at in moments if isinstance(at, int | float) and at >= since), None)


def ending(found: Recorded) -> list[str]:
    """Whether the sentinel lives, whether this is still the same boot, and where it ends."""
    ends = utc(found.ends, "%Y-%m-%d %H:%M:%S")
    if found.recording.alive:
        return [f"the sentinel is alive (pid {found.recording.pid}); its last sample is of {ends}"]
    words = []
    if found.restarted:
        words.append("this machine has been restarted since: boot id differs")
    else:
        words.append(f"the sentinel is gone (pid {found.recording.pid})")
    sync = ""
    if found.synced is not None and found.synced >= found.ends:
        sync = f", {found.synced - found.ends:.1f} s before the last sync"
    return [*words, f"the recording ends at {ends}{sync}"]


def table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _synced(run: RunDir, recording: Recording) -> float | None:
    if recording.path != run.guard / sheets.RING:
        return None
    try:
        return os.stat(recording.path).st_mtime
    except OSError:
        return None
