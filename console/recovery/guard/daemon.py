"""The sentinel's process, which watches from before the first effect until the run is over.

    python -P -m console.recovery.guard.daemon RUN/guard

It has one thread that ticks on absolute deadlines: up to 250 ms apart while nothing can happen
sooner, 50 ms under load, 20 ms near a limit. It reads the guard config, takes its protections,
reports in sentinel.json that it watches, and from then on touches a disk only to write what it did.
Exit codes: 0 when the run is over, 2 if the guard config cannot be used, 3 if another sentinel
watches this run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
from pathlib import Path

from console.common.clock import SystemClock
from console.common.files import write_atomically
from console.common.text import one_line
from console.host import process
from console.host.privileges import set_nice
from console.recovery.guard import config as guard_config
from console.recovery.guard import self_protection
from console.recovery.guard.breach import start_rollback
from console.recovery.guard.config import CONFIG_FILE, READY, GuardConfig, Inbox
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import LiveTargets, deny_of
from console.recovery.guard.loop import Dependencies, GuardLoop
from console.recovery.guard.observe.collect import Collector
from console.recovery.guard.record import recorder
from console.recovery.rollback.live import LIVE

LOCK = "sentinel.lock"


def lock(directory: Path) -> int | None:
    """Take the lock of this run's sentinel and return its descriptor; None if another sentinel has
    it. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(directory / LOCK, flags, 0o600)
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
        ring.event("took over", f"the sentinel before this one, pid {ring.before}, has ended")
    killer = Killer(config.run_id, deny_of(config), engine=config.engine)
    collector = Collector(clock)
    deps = Dependencies(
        inbox, collector, ring, killer, LiveTargets(config.rollback_dir / LIVE, killer.trees),
        clock,
        lambda of: start_rollback(lambda pid: self_protection.lower_priority(pid, got)),
    )  # fmt: skip
    rehearsed = killer.rehearse()
    loop = GuardLoop(config, deps)
    loop.rehearse()
    got = self_protection.protect(rehearsed)
    loop.protections = got
    if killer.reaper is not None and killer.reaper.pid:
        set_nice(self_protection.NICE, killer.reaper.pid)  # others wait for the memory it frees
    collector.prepare_child(lambda pid: self_protection.lower_priority(pid, got))
    _say_ready(directory, got)
    try:
        loop.run()
    finally:
        loop.close()
        collector.close()
        killer.close()
        ring.close()
        inbox.close()
    if ring.path.parent != directory:
        with contextlib.suppress(OSError):
            os.unlink(ring.path)  # the copy on disk is complete


def _say_ready(directory: Path, got: self_protection.Protections) -> None:
    pid = os.getpid()
    page = {
        "pid": pid, "start": process.start_time(pid) or 0, "protections": got.got,
        "missing": list(got.missing),
    }  # fmt: skip
    write_atomically(directory / READY, json.dumps(page, indent=1) + "\n", 0o600)


def main(arguments: list[str]) -> int:
    """Run the sentinel and return its exit code."""
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
