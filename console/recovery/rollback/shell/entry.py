"""What the sealed copy runs: one rollback of one run.

    python3 -I -S -B COPY RUN_DIR [--json]

`COPY -m MODULE [ARGUMENT…]` runs a module of it instead: the standby, the sentinel and what they
start; see `console.common.paths.module_argv`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from console.common.errors import ConsoleError, Exit
from console.recovery.rollback import records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.command import rollback
from console.recovery.rollback.finder import is_of_site
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK
from console.recovery.rollback.shell.printing import Printer, on_line, print_result


def main() -> int:
    """Exit code 0: the baseline serves; 7: it does not; 2: there is nothing to roll back."""
    as_json = "--json" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--json"]
    if len(words) != 1:
        print("usage: python3 -I -S -B COPY RUN_DIR [--json]", file=sys.stderr)
        return int(Exit.USAGE)
    return _roll_back(words[0], as_json=as_json)


def _newest(run_dir: str) -> str:
    """The run to roll back: a newer one of the same site has its baseline now."""
    mine = records.read(os.getuid())
    with contextlib.suppress(ConsoleError):  # the run's plan is lost
        if mine is not None and is_of_site(mine, sealed.read(Path(run_dir, ROLLBACK, PLAN))):
            return mine.run_dir
    return run_dir


def _roll_back(run_dir: str, *, as_json: bool) -> int:
    printer = Printer(sys.stderr if as_json else sys.stdout)
    try:
        result = rollback(None, False, on_line(printer), run_dir=_newest(run_dir))
    except KeyboardInterrupt:  # a second Ctrl-C, or SIGTERM: left unfinished
        return int(Exit.ROLLBACK_FAILED)
    except ConsoleError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return int(error.exit_code)
    finally:
        printer.close()
    print_result(result, printer, as_json=as_json)
    return int(result.exit_code)
