"""What the sealed copy runs: one rollback of one run.

    python3 -I -S -B COPY RUN_DIR [--json] [--if-interrupted]

With `--if-interrupted` it is the run that this user's pointer names, and those that it took the
place of: not RUN_DIR. Without a pointer nothing is to be done.

`COPY -m MODULE [ARGUMENT…]` runs a module of it instead: the standby, the sentinel and what they
start; see `console.common.paths.module_argv`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from console.common.errors import ConsoleError, Exit
from console.host import process
from console.recovery.rollback import records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.command import rollback
from console.recovery.rollback.finder import is_of_site
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK
from console.recovery.rollback.shell.printing import Printer, on_line, print_result
from console.recovery.rollback.shell.program_gone import IF_INTERRUPTED


def main() -> int:
    """Exit code 0: the baseline serves; 7: it does not; 2: there is nothing to roll back, but 0
    with `--if-interrupted`."""
    as_json = "--json" in sys.argv
    words = [word for word in sys.argv[1:] if word not in ("--json", IF_INTERRUPTED)]
    if len(words) != 1:
        print(f"usage: python3 -I -S -B COPY RUN_DIR [--json] [{IF_INTERRUPTED}]", file=sys.stderr)
        return int(Exit.USAGE)
    if IF_INTERRUPTED not in sys.argv:
        return _roll_back(_newest(words[0]), as_json=as_json)
    runs = _interrupted()
    if not runs:
        print("nothing to do: no run is known here that was interrupted")
    return max((_roll_back(run_dir, as_json=as_json) for run_dir in runs), default=int(Exit.OK))


def _interrupted() -> list[str]:
    """The directories of this user's runs that nothing has ended yet, the newest first. One whose
    clients are at its candidate, which lives, is left alone."""
    mine = records.read(os.getuid())
    if mine is None or process.alive(mine.pid, mine.start):
        return []
    kept = {cut.plan.run_dir for cut in records.cut_overs() if cut.lives}
    pointers = [mine, *records.earlier(mine.uid, Path(mine.run_dir, ROLLBACK))]
    return [pointer.run_dir for pointer in pointers if pointer.run_dir not in kept]


def _newest(run_dir: str) -> str:
    """The run to roll back: a newer one of the same site has its baseline now. A pointer into a
    place that is gone names none: this run may have been moved from there."""
    mine = records.read(os.getuid())
    with contextlib.suppress(ConsoleError):  # the run's plan is lost
        if (
            mine is not None
            and os.path.isdir(mine.run_dir)
            and is_of_site(mine, sealed.read(Path(run_dir, ROLLBACK, PLAN)))
        ):
            return mine.run_dir
    return run_dir


def _roll_back(run_dir: str, *, as_json: bool) -> int:
    printer = Printer(sys.stderr if as_json else sys.stdout)
    try:
        result = rollback(None, False, on_line(printer), run_dir=run_dir)
    except KeyboardInterrupt:  # a second Ctrl-C, or SIGTERM: left unfinished
        return int(Exit.ROLLBACK_FAILED)
    except ConsoleError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return int(error.exit_code)
    finally:
        printer.close()
    print_result(result, printer, as_json=as_json)
    return int(result.exit_code)
