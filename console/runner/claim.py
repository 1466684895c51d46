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
from console.common.errors import ConsoleError, EngineError, HostBusy
from console.common.text import one_line
from console.host import process
from console.journal.lock import HostChanging, HostLock, held_name, refuse_others
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import left_down, read_view
from console.recovery.rollback import evidence, live, records, standby
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.observe import is_running
from console.recovery.rollback.trigger import is_held
from console.runner.fault import point
from console.runner.guard.process import dismiss

CLOSER_WAIT_S = 30.0
CHANGES_S = 5.0
"""Seconds in which a runner that begins or ends has named itself or is gone."""
NEWEST = 8


def host_lock(*, patient: bool) -> HostLock:
    """Take the host's lock. Wait for a holder that no pointer names, such as the one that records
    the end of a run which a rollback has ended; with `patient` also for one that is named and may
    be a refused run about to exit. Raises HostBusy."""
    begun = time.monotonic()
    while True:
        try:
            return HostLock()
        except HostBusy as busy:
            changes_s = CHANGES_S if isinstance(busy, HostChanging) else 0.0
            if time.monotonic() - begun >= (CLOSER_WAIT_S if patient else changes_s):
                raise
        time.sleep(0.05)


def announce(run: RunDir) -> None:
    """Write the pointer and live.jsonl, then check for another user's run and for a rollback under
    way. Raises HostBusy for either and for a candidate that an interrupted run left, and OSError.
    """
    meta, me, places = run.meta(), live.runner(*this_process()), _rolling_back_places(run)
    _refuse_beside_rollback(places)
    _refuse_beside_leftovers(run)
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
    _refuse_beside_rollback(places)


def _refuse_beside_rollback(places: list[Path]) -> None:
    """Raise HostBusy if a rollback is under way in one of these directories."""
    for directory in filter(is_held, places):
        raise HostBusy(
            "a rollback brings the baseline back", str(directory),
            "omni-console rollback follows it to its end",
        )  # fmt: skip


def refuse_after_rollback(run: RunDir, site: str, url: str) -> None:
    """Raise HostBusy if a rollback of this baseline has ended since the run was asked for: whoever
    wanted the baseline back does not expect that it goes down right after. Called after `announce`:
    a rollback that begins later sees the run."""
    asked_at = run.meta().created
    if asked_at and evidence.rolled_back_since(site, url, asked_at):
        raise HostBusy(
            "a rollback has ended since this run was asked for",
            hint="start it again if it is meant",
        )


def _refuse_beside_leftovers(run: RunDir) -> None:
    """Raise HostBusy if an interrupted run took its baseline down and its candidate is still
    loaded, at whatever site: two engines may not fit into memory, and the rollback of one run would
    not know the other's."""
    mine = records.read(os.getuid())
    if mine is None:
        return
    for pointer in [mine, *records.earlier(mine.uid, Path(mine.run_dir) / sealed.ROLLBACK)]:
        loaded = _left_loaded(RunDir(Path(pointer.run_dir))) if pointer.run_id != run.id else ""
        if loaded:
            which = f"--site {shlex.quote(pointer.site)}" if pointer is mine else "--if-interrupted"
            raise HostBusy(
                f"run {pointer.run_id} was interrupted in its outage, and {loaded}",
                f"its site: {one_line(pointer.site)}",
                f"omni-console rollback {which} ends it and brings that site's baseline back",
            )


def _left_loaded(run: RunDir) -> str:
    """Which candidate of a run that its journal leaves in an outage is still loaded, in words; ""
    for none. Clients may be meant to stay at a candidate of a run that is over."""
    try:
        view, plan = read_view(run), sealed.of_run(run.path)
    except (ConsoleError, OSError):
        return ""  # nothing tells what it was; the baseline's own state decides
    if not view.outage or (view.over and view.cutover):
        return ""
    entries = [e for e in live.read(run.live) if e.name != plan.baseline.name]
    for entry in entries:
        if entry.kind == "process" and process.members(entry.pid, entry.start, cookie=run.id):
            return f"its process {one_line(entry.name, 40)} is still loaded"
    held = {e.container: e.name for e in entries if e.kind == "container"}
    words = (_runs(plan, box, one_line(name, 40)) for box, name in held.items())
    return next(filter(None, words), "")


def _runs(plan: sealed.SealedPlan, container: str, name: str) -> str:
    """That a candidate's container runs or may run, in words; "" if its engine knows better."""
    try:
        return f"its container {name} is still loaded" if is_running(plan, container) else ""
    except EngineError as error:
        return f"its container {name} may still be loaded: {error}"


def _rolling_back_places(run: RunDir) -> list[Path]:
    """Directories where a rollback may hold its lock: those of this run, of the run that the
    pointer names and of the newest runs, and those of sites."""
    earlier = records.read(os.getuid())
    pointed = [Path(earlier.run_dir) / sealed.ROLLBACK] if earlier is not None else []
    newest = [run_dir.rollback for run_dir in islice(all_runs(), NEWEST)]
    return list(dict.fromkeys([run.rollback, *sealed.site_dirs(), *pointed, *newest]))


def withdraw(run: RunDir) -> None:
    """Undo the claim of a run that never began: end standby and sentinel, remove the pointer, or
    point it back at the interrupted run it named before, so that a rollback finds that."""
    standby.trigger(run.rollback, standby.QUIT)
    dismiss(run)
    records.clear(run.id)
    if records.read(os.getuid()) is None:
        records.put_back(records.earlier(os.getuid(), run.rollback)[:1])


def leave(run: RunDir) -> None:
    """Give up the claim of a run that is over; point back at the interrupted run that was named
    before, unless the baseline is back."""
    records.clear(run.id)
    if records.read(os.getuid()) is None:
        earlier = records.earlier(os.getuid(), run.rollback)
        records.put_back(p for p in earlier if left_down(RunDir(Path(p.run_dir)), unknown=True))


def this_process() -> tuple[int, int]:
    """Pid and start time of this process."""
    return os.getpid(), process.start_time(os.getpid()) or 0
