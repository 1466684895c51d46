"""A run's claim on the host: the lock that excludes other runs, and the pointer to the active run.

A rollback may begin at the same moment. It takes its own lock, then ends the runners that it finds.
A runner first announces itself, then checks whether a rollback holds its lock. So one of the two
always sees the other.
"""

from __future__ import annotations

import os
import shlex
import time
from itertools import islice
from pathlib import Path

from console.common import paths
from console.common.errors import ConsoleError, HostBusy
from console.common.text import one_line
from console.host import process
from console.journal.lock import HostLock, held_name, refuse_others
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import left_down, read_view, unrecorded_end
from console.recovery.rollback import live, records, standby
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.trigger import is_held
from console.runner.fault import point
from console.runner.guard.process import dismiss

CLOSER_WAIT_S = 30.0
NEWEST = 8


def host_lock(*, patient: bool) -> HostLock:
    """Take the host's lock. With `patient`, wait for a holder that may be a refused run about to
    exit. Raises HostBusy."""
    deadline = time.monotonic() + (CLOSER_WAIT_S if patient else 0.0)
    while True:
        try:
            return HostLock()
        except HostBusy:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


def announce(run: RunDir) -> None:
    """Write the pointer and live.jsonl, then check for another user's run and for a rollback under
    way. Raises HostBusy for either and for a candidate that an interrupted run left, and OSError.
    """
    _refuse_beside_leftovers(run)
    meta, me, is_rolling_back = run.meta(), myself(), _rolling_back_places(run)
    paths.make(run.rollback)
    records.set_aside(os.getuid(), run.rollback)
    records.write(
        records.Pointer(
            run.id, str(run.path), meta.owner, os.getuid(), me.pid, me.start, meta.playbook,
            meta.site, meta.created, lock=held_name(), boot=process.boot_id(),
        )
    )  # fmt: skip
    live.append(run.live, me)
    point("announced")
    refuse_others()  # two users at one moment: each has lock and pointer now, so one sees the other
    for directory in is_rolling_back:
        if is_held(directory):
            raise HostBusy(
                "a rollback brings the baseline back", str(directory),
                "omni-console rollback follows it to its end",
            )  # fmt: skip


def _refuse_beside_leftovers(run: RunDir) -> None:
    """Raise HostBusy if an interrupted run took its baseline down and its candidate is still
    loaded, at whatever site: two engines may not fit into memory, and the rollback of one run would
    not know the other's."""
    mine = records.read(os.getuid())
    if mine is None:
        return
    for one in [mine, *records.before(mine.uid, Path(mine.run_dir) / sealed.ROLLBACK)]:
        loaded = _left_loaded(RunDir(Path(one.run_dir))) if one.run_id != run.id else ""
        if loaded:
            raise HostBusy(
                f"run {one.run_id} was interrupted in its outage, and {loaded} is still loaded",
                f"its site: {one_line(one.site)}",
                f"omni-console rollback --site {shlex.quote(one.site)} ends it and brings that "
                "site's baseline back",
            )  # fmt: skip


def _left_loaded(run: RunDir) -> str:
    """A candidate that may still be loaded of a run that its journal leaves in an outage; ""
    where there is none. A container counts until a rollback has ended the run."""
    try:
        view = read_view(run)
    except (ConsoleError, OSError):
        return ""  # nothing tells what it was; the baseline's own state decides
    if view.over or not view.outage or unrecorded_end(run, view):
        return ""
    for entry in live.read(run.live):
        if entry.kind == "process" and process.members(entry.pid, entry.start, cookie=run.id):
            return one_line(entry.name, 40)
    held = (name for name, known in view.services.items() if known.get("container"))
    return one_line(next(held, ""), 40)


def _rolling_back_places(run: RunDir) -> list[Path]:
    """Directories where a rollback may hold its lock: those of this run, of the run that the
    pointer names and of the newest runs, and the site's own."""
    earlier = records.read(os.getuid())
    pointed = [Path(earlier.run_dir) / sealed.ROLLBACK] if earlier is not None else []
    newest = [one.rollback for one in islice(all_runs(), NEWEST)]
    site = paths.state_dir() / sealed.ROLLBACK
    return list(dict.fromkeys([run.rollback, site, *pointed, *newest]))


def withdraw(run: RunDir) -> None:
    """Undo the claim of a run that never began: end standby and sentinel, remove the pointer, or
    point it back at the interrupted run it named before, so that a rollback finds that."""
    standby.trigger(run.rollback, standby.QUIT)
    dismiss(run)
    records.clear(run.id)
    if records.read(os.getuid()) is None:
        records.put_back(records.before(os.getuid(), run.rollback)[:1])


def leave(run: RunDir) -> None:
    """Give up the claim of a run that is over; point back at the interrupted run that was named
    before, unless the baseline is back."""
    records.clear(run.id)
    if records.read(os.getuid()) is None:
        earlier = records.before(os.getuid(), run.rollback)
        records.put_back(p for p in earlier if left_down(RunDir(Path(p.run_dir)), unknown=True))


def myself() -> live.Live:
    """This runner's entry in live.jsonl."""
    return live.runner(os.getpid(), process.start_time(os.getpid()) or 0)
