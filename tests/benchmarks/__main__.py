"""`python -m tests.benchmarks [name…]`: measure, print, keep; 1 when a bar is missed.

2: a benchmark could not run (no engine …), and no bar was missed.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Measured
from tests.benchmarks.surroundings import CannotRun
from tests.testbed.cache import Unavailable

NAMES = ("startup", "journal", "rollback", "gguf", "frame", "idle", "emergency", "fidelity",
         "sentinel", "tune", "witness", "browser", "fleet", "preflight")  # fmt: skip
"""Modules beside this one, each with a `run`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", choices=NAMES, default=NAMES)
    found = {name: _measure(name) for name in parser.parse_args().name}
    at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    surroundings.keep({"at": at, "machine": surroundings.machine(), "benchmarks": found})
    for name, one in found.items():
        for words in one["missed"]:
            print(f"MISSED  {words}", file=sys.stderr)
        if one["not_run"]:
            print(f"DID NOT RUN  {name}: {one['not_run']}", file=sys.stderr)
    if any(one["missed"] for one in found.values()):
        return 1
    return 2 if any(one["not_run"] for one in found.values()) else 0


def _measure(name: str) -> dict[str, Any]:
    """One benchmark, printed as it ends; everything about it for the file."""
    before = surroundings.load()
    print(f"\n== {name}", flush=True)
    notes: list[str] = []
    rows: Sequence[Measured] = []
    reason = ""

    def say(text: str) -> None:
        notes.append(text)
        print(text, flush=True)

    try:
        rows = importlib.import_module(f"tests.benchmarks.{name}").run(say)
        print("median [least … most]", *rows, sep="\n")
    except (CannotRun, Unavailable, AssertionError) as error:
        reason = str(error)
        print(f"did not run: {reason}")
    after = surroundings.load()
    print(f"load before {before}, after {after}")
    return {
        "load_before": before,
        "load_after": after,
        "notes": notes,
        "rows": [{k: v for k, v in asdict(row).items() if v != math.inf} for row in rows],
        "missed": [str(row) for row in rows if row.missed],
        "not_run": reason,
    }


if __name__ == "__main__":
    sys.exit(main())
