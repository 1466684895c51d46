"""`python -m tests.benchmarks [name…]`: measure, print, keep; 1 when a bar is missed.

2: a benchmark could not run (no engine …), and no bar was missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.benchmarks import (
    emergency,
    fidelity,
    frame,
    gguf,
    idle,
    journalled,
    restored,
    sentinel,
    startup,
    surroundings,
)
from tests.benchmarks.figures import Measured, table
from tests.benchmarks.surroundings import CannotRun
from tests.testbed.cache import Unavailable

Benchmark = Callable[[Callable[[str], None]], Sequence[Measured]]
BENCHMARKS: dict[str, Benchmark] = {
    "startup": startup.run,
    "journal": journalled.run,
    "rollback": restored.run,
    "gguf": gguf.run,
    "frame": frame.run,
    "idle": idle.run,
    "emergency": emergency.run,
    "fidelity": fidelity.run,
    "sentinel": sentinel.run,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all by default")
    names = parser.parse_args(arguments).name or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    record: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": surroundings.machine(),
        "benchmarks": {},
    }
    missed: list[str] = []
    not_run: list[str] = []
    for name in names:
        found = _measure(name)
        record["benchmarks"][name] = found
        missed += found["missed"]
        if found["not_run"]:
            not_run.append(f"{name}: {found['not_run']}")
    kept = surroundings.keep(record)
    print(f"\nkept in {kept.parent.name}/{kept.name}")
    return _verdict(missed, not_run)


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
        rows = BENCHMARKS[name](say)
        print(table(rows))
    except (CannotRun, Unavailable) as error:
        reason = str(error)
        print(f"did not run: {reason}")
    after = surroundings.load()
    print(f"load before {before}, after {after}")
    return {
        "load_before": before,
        "load_after": after,
        "notes": notes,
        "rows": [row.to_json() for row in rows],
        "missed": [words for row in rows for words in row.missed()],
        "not_run": reason,
    }


def _verdict(missed: list[str], not_run: list[str]) -> int:
    for words in missed:
        print(f"MISSED  {words}", file=sys.stderr)
    for words in not_run:
        print(f"DID NOT RUN  {words}", file=sys.stderr)
    if missed:
        return 1
    if not_run:
        return 2
    print("every bar kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
