"""`rollback`: brings the baseline back, from any shell. Imports only the emergency side."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from argparse import Namespace
from functools import partial
from queue import SimpleQueue
from typing import Any, TextIO

from console.common.errors import ConsoleError, Exit, InvalidFile, RollbackFailed, UsageError
from console.common.text import clean
from console.recovery.rollback.command import rollback as roll_back
from console.recovery.rollback.sealed_plan import SealedPlan


def rollback(args: Namespace) -> int:
    """0 when the baseline serves (or there was nothing to do), 7 when it does not."""
    if args.rehearse:
        from console.rehearsal.workspace import join

        args.site = join()  # another lock, another site: nothing of the real one
    if args.if_interrupted:
        return _all_interrupted(args)
    site = args.site or os.environ.get("OMNI_SITE") or ""
    return _roll_back(args, explicit_site=bool(site), site=site)


def _all_interrupted(args: Namespace) -> int:
    """Roll back each run that left its baseline down, once. The site that is named is not started
    for itself: an operator may have stopped its baseline on purpose."""
    done: list[str] = []
    code, failed = Exit.OK, list[ConsoleError]()
    while (run_dir := _interrupted(done)) is not None:
        done.append(run_dir)
        try:
            code = max(code, Exit(_roll_back(args, explicit_site=False, run_dir=run_dir)))
        except ConsoleError as error:  # a broken site file, too: the other runs have theirs
            failed.append(error)
    if not done:
        words = "nothing to do: no run left the baseline down"
        print(json.dumps({"nothing_to_do": True, "detail": words}) if args.json else words)
    if len(failed) == 1 and code <= failed[0].exit_code:
        raise failed[0]
    for one in failed:
        print("\n".join(one.lines()), file=sys.stderr)
    return int(max([code, *(one.exit_code for one in failed)]))


def _roll_back(args: Namespace, *, explicit_site: bool, run_dir: str = "", site: str = "") -> int:
    printer = Printer(sys.stderr if args.json else sys.stdout)

    def emit(line: dict[str, Any]) -> None:
        if line.get("state") == "begin" or line.get("rung") == "done":
            return
        printer.say(
            f"{line.get('t', 0):7.2f} s  {line.get('rung', ''):<10} {line.get('state', ''):<8}"
            f"{clean(str(line.get('detail', '')), 300)}"
        )

    seal = partial(_site_plan, args.site)
    try:
        result = roll_back(
            seal, explicit_site, emit, seal_at=_site_plan, run_dir=run_dir, site=site
        )
        with contextlib.suppress(Exception):  # the way back is through; what is broken stays out
            _put_away(result.serving)
    except (UsageError, InvalidFile):
        raise
    except ConsoleError as error:
        raise RollbackFailed("rollback failed", "; ".join(error.lines())) from error
    finally:
        printer.close()
    lines = [_verdict(result), *(f"  {clean(command)}" for command in result.manual)]
    with contextlib.suppress(OSError):
        if args.json:
            print(json.dumps({**result.fields(), "detail": result.detail}), flush=True)
        print("\n".join(lines), file=printer.out, flush=True)
    _let_go_of_dead_output()
    return int(result.exit_code)


def _put_away(serving: bool) -> None:
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
        from console.runner.boot import left_down

        run = left_down(done)
        return str(run.path) if run is not None else None
    except Exception:
        from console.recovery.rollback import records

        mine = records.read(os.getuid())
        return mine.run_dir if mine is not None and mine.run_dir not in done else None


class Printer:
    """Prints in a thread of its own, so that a blocked terminal (Ctrl-S, a dead line) delays the
    words, not the rollback."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, daemon=True)
        try:
            self._thread.start()
        except (OSError, RuntimeError):
            self._thread = None

    def say(self, text: str) -> None:
        if self._thread is not None:
            self._lines.put(text)
        else:
            self._print(text)

    def close(self) -> None:
        """Wait until everything is printed; the rollback is over, so a slow reader is no harm."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            self._print(text)

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self.out, flush=True)


def _let_go_of_dead_output() -> None:
    """Drop output that a dead terminal did not take, which would else make Python exit 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def _verdict(result: Any) -> str:
    if result.nothing_to_do:
        return clean(result.detail) or "nothing to do"
    if not result.serving:
        words = f"ROLLBACK FAILED: {clean(result.detail)}"
        return f"{words}\nby hand:" if result.manual else words
    rate = f", {result.tok_s:.1f} tok/s" if result.tok_s is not None else ""
    reference = f" of {result.reference:g}" if result.reference is not None else ""
    slow = "DEGRADED, below its reference: " if result.degraded else ""
    took = f", back in {result.restore_s:.2f} s" if result.restore_s is not None else ""
    return f"{slow}the baseline serves{took}{rate}{reference}"


def _site_plan(given: str | None) -> SealedPlan:
    """A plan made now from the site file, if no run left a fitting one."""
    from console.config.locate import site as site_of
    from console.runner.prepare.seal import site_plan

    return site_plan(site_of(given))
