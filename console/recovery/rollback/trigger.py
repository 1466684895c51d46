"""The caller's side of the warm ladder: is it there, and the byte that wakes it. Loads little."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from console.host import process
from console.recovery.rollback import live as livelog
from console.recovery.rollback.live import LIVE

FIFO = "trigger"
EMERGENCY, SENTINEL, ASKED, QUIT, LEAVE = b"R", b"S", b"r", b"q", b"l"


def trigger(rollback_dir: Path, byte: bytes = EMERGENCY) -> bool:
    """Wake the warm ladder; False when nobody reads (or this user may not)."""
    try:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(rollback_dir / FIFO, flags)
    except OSError:
        return False
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode) and os.write(descriptor, byte) == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)


def is_warm(rollback_dir: Path, *, running: bool = False) -> bool:
    """Whether a recorded warm ladder of this run is alive; `running`: and not stopped (Ctrl-Z)."""
    return any(
        process.alive(e.pid, e.start) and not (running and is_stopped(e.pid))
        for e in livelog.read(rollback_dir / LIVE)
        if e.kind == "ladder"
    )


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger: it keeps its lock, idle."""
    found = process.stat(pid)
    return found is not None and found.state in "Tt"
