"""The sentinel's process, which watches from before the first effect until the run is over.

    python -P -m console.recovery.guard.daemon RUN/guard

It has one thread that ticks on absolute deadlines: up to 250 ms apart while no limit can be passed
sooner, 50 ms under load, 20 ms near a limit. It reads the guard config, takes its protections,
reports in sentinel.json that it watches, and from then on uses a disk only to write what it did.

Each protection is read back after it was set. A refused one does not keep the sentinel from
watching; it is shown on the status page.

Exit codes: 0 when the run is over, 2 if the guard config cannot be used, 3 if another sentinel
watches this run.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import resource
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.clock import SystemClock
from console.common.files import open_untrusted, write_atomically
from console.common.text import one_line
from console.host import process
from console.host.privileges import lock_memory, oom_score, set_nice, set_oom_score
from console.recovery.guard import config as guard_config
from console.recovery.guard.breach import start_rollback
from console.recovery.guard.config import CONFIG_FILE, READY, GuardConfig, Inbox
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import LiveTargets, deny_of
from console.recovery.guard.loop import Dependencies, GuardLoop
from console.recovery.guard.observe.collect import Collector
from console.recovery.guard.record import recorder
from console.recovery.rollback.live import LIVE

LOCK = "sentinel.lock"
NICE, OOM = -20, -1000


@dataclass(frozen=True, slots=True)
class Protections:
    """`got` maps the name of each protection to words about it. `missing` has one sentence for each
    that was refused in part or whole. `nice_before` and `oom_before` are the values that child
    processes for other work get back."""

    got: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    nice_before: int = 0
    oom_before: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"protections": self.got, "missing": list(self.missing)}


def protect(rehearsed: tuple[str, ...]) -> Protections:
    """Take every protection that this user is permitted. `rehearsed` is what the rehearsal of the
    kill path found missing. Call this last, when everything is loaded, because it locks the
    memory."""
    nice_before, before = os.getpriority(os.PRIO_PROCESS, 0), oom_score()
    got: dict[str, str] = {"kill path": "; ".join(rehearsed) or "rehearsed"}
    missing = [f"kill path: {words}" for words in rehearsed]
    nice, score = _priority(), _score(before)
    got["priority"] = f"nice {nice}"
    if nice != NICE:
        missing.append(f"priority: nice {nice}, as {NICE} is not permitted")
    got["oom_score_adj"] = "unknown" if score is None else str(score)
    if score != OOM:
        missing.append(f"oom_score_adj: {got['oom_score_adj']}, as {OOM} is not permitted")
    gc.collect()
    _trim_heap()
    gc.freeze()
    gc.disable()
    got["collector"] = "frozen"
    got["memory"] = lock_memory()
    if not got["memory"].startswith("all"):
        missing.append(f"memory: {got['memory']}")
    return Protections(got, tuple(missing), nice_before, before or 0)


def _trim_heap() -> None:
    """Return to the kernel up to some MB that importing modules left over; otherwise they would be
    locked for good."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def lower_priority(pid: int, got: Protections) -> None:
    """Give a child the ordinary priority and OOM score back, which it inherited raised."""
    set_nice(got.nice_before, pid)
    set_oom_score(got.oom_before, pid)


def _priority() -> int:
    got = set_nice(NICE)
    if got != NICE:
        # an RLIMIT_NICE of 1…40 permits nice values down to 19…-20
        allowed = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
        if allowed < got:
            got = set_nice(max(NICE, allowed))
    return got


def _score(before: int | None) -> int | None:
    """Set the lowest OOM score that is permitted: a kernel that refuses one value may accept a
    higher one. Returns the score that is in force."""
    for wanted in (OOM, -900, -500, 0):
        if before is not None and wanted >= before:
            break
        if set_oom_score(wanted) == wanted:
            return wanted
    return oom_score()


def lock(directory: Path) -> int | None:
    """Take the lock of this run's sentinel and return its descriptor; None if another sentinel has
    it. Raises OSError."""
    descriptor = open_untrusted(directory / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def watch_over(directory: Path, config: GuardConfig) -> None:
    """Watch over a run, from opening the first descriptor to the last copy of the recorder. Raises
    OSError, and ValueError for invalid limits."""
    clock = SystemClock()
    inbox = Inbox(directory / guard_config.INBOX)
    ring = recorder.create(config.ring, directory, config.run_id, clock)
    if ring.before:
        ring.event("took over", f"the earlier sentinel, pid {ring.before}, has ended")
    killer = Killer(config.run_id, deny_of(config), engine=config.engine)
    collector = Collector(clock)
    deps = Dependencies(
        inbox, collector, ring, killer, LiveTargets(config.rollback_dir / LIVE, killer.trees),
        clock,
        lambda of: start_rollback(str(directory.parent), lambda pid: lower_priority(pid, got)),
    )  # fmt: skip
    rehearsed = killer.rehearse()
    loop = GuardLoop(config, deps)
    loop.rehearse()
    got = protect(rehearsed)
    loop.protections = got.to_json()
    if killer.reaper is not None and killer.reaper.pid:
        set_nice(NICE, killer.reaper.pid)  # others wait for the memory that it frees
    collector.prepare_child(lambda pid: lower_priority(pid, got))
    _report_ready(directory, got)
    try:
        loop.run()
    finally:
        collector.close()
        killer.close()
        ring.close()
        inbox.close()
    if ring.path.parent != directory:
        with contextlib.suppress(OSError):
            os.unlink(ring.path)  # the copy on disk is complete


def _report_ready(directory: Path, got: Protections) -> None:
    pid = os.getpid()
    page = {"pid": pid, "start": process.start_time(pid) or 0, **got.to_json()}
    write_atomically(directory / READY, json.dumps(page, indent=1) + "\n", 0o600)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m console.recovery.guard.daemon RUN/guard\n")
        return 2
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    directory = Path(arguments[0]).absolute()
    try:
        held = lock(directory)
        if held is None:
            sys.stderr.write("another sentinel watches this run\n")
            return 3
        watch_over(directory, guard_config.read(directory / CONFIG_FILE))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{one_line(str(error))}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
