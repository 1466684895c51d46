"""`rollback`: brings the baseline back, from any shell. Imports only the emergency side."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

from console.common import redact
from console.common.errors import ConsoleError, Exit, InvalidFile, RollbackFailed, UsageError
from console.recovery.rollback.command import rollback as roll_back
from console.recovery.rollback.finder import keeps_clients, stays_at_other_site
from console.recovery.rollback.sealed_plan import SealedPlan
from console.recovery.rollback.shell.printing import Printer, on_line, print_result

ANY_SITE = b"""schema: omni.site/v1
name: any
baseline: {process: {argv: [/bin/true]}, url: "http://127.0.0.1:9"}
"""


def rollback(args: Namespace) -> int:
    """0 when the baseline serves, 7 when it does not, 2 when there is neither a run nor a site (but
    0 with --if-interrupted, which only asks); the worst of all where several interrupted runs are
    rolled back, with one JSON object for each."""
    if os.getuid() == 0 and "SUDO_UID" in os.environ:
        _load_for_another()
    if args.rehearse:
        from console.rehearsal.workspace import join

        args.site = join()  # another lock, another site: nothing of the real one
    done: list[str] = []
    outcomes = _Outcomes()
    site = args.site or os.environ.get("OMNI_SITE") or ""
    if not args.if_interrupted:
        aside = _set_aside()
        outcomes.of(partial(_roll_back, args, explicit_site=bool(site), site=site))
        if not aside:
            return outcomes.end()
        done += aside[:1]
    # Each run that left its baseline down, once. With --if-interrupted the site that is named is
    # not started for itself: an operator may have stopped its baseline on purpose.
    while (run_dir := _interrupted(done)) is not None:
        done.append(run_dir)
        words = keeps_clients(run_dir, partial(_site_plan, args.site))
        if site and not words:
            words = stays_at_other_site(run_dir, site, automatic=args.by == "watch")
        if words:
            print(words, file=sys.stderr if args.json else sys.stdout)
            continue
        outcomes.of(partial(_roll_back, args, explicit_site=False, run_dir=run_dir))
    if not done:
        words = "nothing to do: no run left the baseline down"
        print(redact.dumped({"nothing_to_do": True, "detail": words}) if args.json else words)
    return outcomes.end()


def _load_for_another() -> None:
    """Make a plan of a site file once, before root becomes a user who may not read the files of
    the interpreter: whatever that imports is there. Where a library is missing, only that way of
    making a plan is lost."""
    from console.common import crash  # noqa: F401
    from console.common.files import in_memory
    from console.host import matching  # noqa: F401
    from console.runtime.discovery import adoption  # noqa: F401

    with contextlib.suppress(Exception), in_memory() as file:
        file.write(ANY_SITE)
        file.flush()
        _site_plan(f"/proc/self/fd/{file.fileno()}")
    with contextlib.suppress(ImportError):
        from console.journal import run_files  # noqa: F401
        from console.runner.unattended import boot  # noqa: F401


class _Outcomes:
    """What several rollbacks came to: one that fails, or a broken site file, ends no other."""

    def __init__(self) -> None:
        self.code = Exit.OK
        self.failed: list[ConsoleError] = []

    def of(self, act: Callable[[], int]) -> None:
        try:
            self.code = max(self.code, Exit(act()))
        except ConsoleError as error:
            self.failed.append(error)

    def end(self) -> int:
        """The worst exit code. Raises the error where there was one only."""
        if len(self.failed) == 1 and self.code <= self.failed[0].exit_code:
            raise self.failed[0]
        for error in self.failed:
            print("\n".join(error.lines()), file=sys.stderr)
        return int(max([self.code, *(failure.exit_code for failure in self.failed)]))


def _set_aside() -> list[str]:
    """The directories of the run that this user's pointer names and of the interrupted runs that
    it took the place of; empty if there are none of these."""
    from console.recovery.rollback import records
    from console.recovery.rollback.sealed_plan import ROLLBACK

    mine = records.read(os.getuid())
    before = records.earlier(mine.uid, Path(mine.run_dir) / ROLLBACK) if mine is not None else []
    return [pointer.run_dir for pointer in (mine, *before) if pointer is not None] if before else []


def _roll_back(args: Namespace, *, explicit_site: bool, run_dir: str = "", site: str = "") -> int:
    printer = Printer(sys.stderr if args.json else sys.stdout)
    seal = partial(_site_plan, args.site)
    try:
        result = roll_back(
            seal, explicit_site, on_line(printer), seal_at=_site_plan, run_dir=run_dir, site=site,
            left_down=None if args.by == "key" else _left_down, automatic=args.by == "watch",
        )  # fmt: skip
        with contextlib.suppress(Exception):  # the way back is through; what is broken stays out
            _remove_remains(result.serving)
    except (UsageError, InvalidFile):
        raise
    except ConsoleError as error:
        raise RollbackFailed("rollback failed", "; ".join(error.lines())) from error
    finally:
        printer.close()
    print_result(result, printer, as_json=args.json)
    return int(result.exit_code)


def _remove_remains(serving: bool) -> None:
    """Remove what killed sentinels left in shared memory, and all remains of a run whose directory
    is gone, because nothing else will."""
    from console.recovery.guard.record.recorder import sweep
    from console.recovery.rollback import records

    mine = records.read(os.getuid())
    gone = mine.run_id if mine is not None and not os.path.isdir(mine.run_dir) else ""
    sweep(time.time(), gone)
    if gone and serving:
        records.clear(gone)


def _interrupted(done: list[str]) -> str | None:
    """The directory of a run that left the baseline down, other than those `done`; None if none
    did. If that cannot be told, the run that the pointer names: a needless rollback is harmless,
    and other parts of the console may be broken."""
    try:
        from console.runner.unattended.boot import left_down

        run = left_down(done)
        return str(run.path) if run is not None else None
    except Exception:
        from console.recovery.rollback import records

        mine = records.read(os.getuid())
        return mine.run_dir if mine is not None and mine.run_dir not in done else None


def _left_down(run_dir: str) -> bool:
    """Whether a run's journal leaves the baseline down; True if that cannot be told."""
    try:
        from console.journal.run_dir import RunDir
        from console.journal.run_files import left_down

        return left_down(RunDir(Path(run_dir)), unknown=True)
    except Exception:
        return True


def _site_plan(given: str | None) -> SealedPlan:
    """A plan made now from the site file, if no run left a fitting one."""
    from console.config.locate import site as site_of
    from console.runner.prepare.seal import site_plan

    return site_plan(site_of(given))
