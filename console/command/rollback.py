"""`rollback`: the ladder, now, from any shell. Imports the emergency side and nothing else."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from typing import Any

from console.errors import ConsoleError, InvalidFile, RollbackFailed, UsageError
from console.rollback.command import rollback as roll_back
from console.rollback.plan import SealedPlan
from console.text import clean


def rollback(args: Namespace) -> int:
    """0 when the baseline serves (or there was nothing to do), 7 when it does not."""
    out = sys.stderr if args.json else sys.stdout

    def emit(line: dict[str, Any]) -> None:
        if line.get("state") == "begin" or line.get("rung") == "done":
            return
        print(
            f"{line.get('t', 0):7.2f} s  {line.get('rung', ''):<10} {line.get('state', ''):<8}"
            f"{clean(str(line.get('detail', '')), 300)}",
            file=out, flush=True,
        )  # fmt: skip

    explicit = bool(args.site or os.environ.get("OMNI_SITE"))
    try:
        result = roll_back(lambda: _site_plan(args.site), explicit, emit)
    except (UsageError, InvalidFile):
        raise
    except ConsoleError as error:
        raise RollbackFailed("rollback failed", "\n".join(error.lines())) from error
    if args.json:
        print(json.dumps({**result.fields(), "detail": result.detail}))
    print(_verdict(result), file=out)
    for command in result.manual:
        print(f"  {clean(command)}", file=out)
    return int(result.exit_code)


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
    """A plan made now from the site file; only reached when no run has left one."""
    from console.command.common import site_of
    from console.run.seal import site_plan

    return site_plan(site_of(given))
