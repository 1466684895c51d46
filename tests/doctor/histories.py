"""Runs as they are found on a disk: directories, journals, pointers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from console.common import paths
from console.host import process
from console.journal.run_dir import RunDir, RunMeta
from console.journal.store import Journal
from console.recovery.rollback import records
from console.recovery.rollback.records import Pointer

GONE = 1 << 22
"""A pid that no process has: the kernel counts up to one less."""


def history(name: str, *events: tuple[str, dict[str, Any]], site: str = "/s") -> RunDir:
    """A run with a journal of these events, written now, and no runner."""
    run = RunDir(paths.runs_dir() / name)
    run.path.mkdir(parents=True)
    run.path.chmod(0o700)
    run.write_meta(RunMeta(name, "x", "/b", "0", site, "/b"))
    journal = Journal(Path(run.journal))
    for kind, data in (("run.created", {"run_id": name}), *events):
        journal.append(time.time(), kind, "", 0, data)
    journal.close()
    return run


def on_now(run: str = "r1", *, pid: int | None = None, directory: str = "/r") -> Pointer:
    """This user's pointer to a run whose runner is this process, or `pid`."""
    pid = pid or os.getpid()
    start = process.start_time(pid) or 1
    found = Pointer(run, directory, "op", os.getuid(), pid, start, "book", "ws", time.time())
    records.write(found)
    return found
