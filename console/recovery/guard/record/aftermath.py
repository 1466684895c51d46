"""What a recording says that nobody has ended: in one line, for whoever comes after a crash."""

from __future__ import annotations

import time
from pathlib import Path

from console.common.units import format_bytes
from console.host import process
from console.recovery.guard.record.read import Recording, open_newest

TROUBLE = ("warn", "act")


def crash_words(run_dir: Path) -> str:
    """For a run whose runner is gone: where its recording ends in trouble, or in another boot;
    "" where it does neither, or there is none. Reads files."""
    recording = open_newest(run_dir)
    if recording is None or recording.alive or _ended(recording):
        return ""
    samples = recording.fast(0.0)
    level = samples[-1].level if samples else ""
    gone = restarted(recording)
    if level not in TROUBLE and not gone:
        return ""
    ends = samples[-1].wall if samples else recording.newest()
    said = f" at level {level}" if level in TROUBLE else ""
    left = f", {format_bytes(samples[-1].available)} of RAM available" if samples else ""
    since = "; this machine has been restarted since" if gone else ""
    return f"the recording ends at {utc(ends)}{said}{left}{since}"


def _ended(recording: Recording) -> bool:
    """Whether its sentinel said its end: nothing was left to watch."""
    events = recording.events()
    return bool(events) and events[-1].get("what") == "end"


def restarted(recording: Recording) -> bool:
    """Whether it was written in another boot of this machine."""
    return recording.boot != process.boot_id()


def utc(at: float, form: str = "%H:%M:%S") -> str:
    """A Unix time as people read it, in UTC."""
    try:
        return time.strftime(f"{form} UTC", time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return "an impossible time"
