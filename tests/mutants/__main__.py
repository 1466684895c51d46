"""`python -m tests.mutants`: put the listed faults into a copy of the program, one at a time: which
of them do the tests of the line notice? As long as neither program nor tests have
changed, a second call goes on where the first one ended."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, repeat
from pathlib import Path
from typing import NamedTuple

from tests.mutants import coverage_map, faults
from tests.mutants.coverage_map import CoverageMap, Test
from tests.mutants.faults import Mutant
from tests.mutants.scratch import Scratch, enclosed

ROOT = Path(__file__).parents[2]
TIERS = {"test": ("test",), "all": ("test", "full")}
KILLED = {"killed", "timeout"}
DOUBTS = 5


class Result(NamedTuple):
    """What one tier's tests made of one mutant: a line of the file of results."""

    id: str
    tier: str
    outcome: str
    """killed, timeout or survived; uncovered where no test runs the line, lost where the program
    has no such place any more, error where none of the chosen tests could be run."""
    seconds: str
    ran: str
    left: str
    """How many tests that run the line did not fit into the time."""
    test: str


def read_results(file: Path) -> list[Result]:
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [Result(*line.split("\t")) for line in lines]


class Trial:
    """Tries mutants in one tree, several at a time."""

    def __init__(self, options: argparse.Namespace, coverage: CoverageMap, results: Path) -> None:
        self.options, self.coverage, self.results = options, coverage, results
        self.stopped = False
        self.lock = threading.Lock()

    def run(self, mutants: list[Mutant], root: Path) -> None:
        # in an order by chance: a call that runs out of time has still looked everywhere
        left = iter(random.Random(faults.SEED).sample(mutants, len(mutants)))
        scratches = [Scratch(root) for _ in range(self.options.jobs)]
        with ThreadPoolExecutor(len(scratches)) as pool:
            try:
                list(pool.map(self._work, scratches, repeat(left)))
            finally:
                self.stopped = True
                for scratch in scratches:
                    scratch.close()

    def _work(self, scratch: Scratch, left: Iterator[Mutant]) -> None:
        known = read_results(self.results)
        for mutant in left:
            before = {one.tier: one.outcome for one in known if one.id == mutant.id}
            for tier in TIERS[self.options.tier]:
                if self.stopped or time.monotonic() > self.options.deadline:
                    return
                if tier not in before and set(before.values()) <= {"survived", "uncovered"}:
                    result = self._try(scratch, mutant, tier)
                    before[tier] = result.outcome
                    with self.lock, self.results.open("a", encoding="utf-8") as file:
                        if not self.stopped:
                            print(result.id, result.outcome, result.test, flush=True)
                            file.write("\t".join(result) + "\n")

    def _try(self, scratch: Scratch, mutant: Mutant, tier: str) -> Result:
        begun = time.monotonic()
        path = scratch.tree / mutant.file
        whole = path.read_text("utf-8") if path.exists() else ""
        found = faults.locate(mutant, whole)
        if found is None:
            return Result(mutant.id, tier, "lost", "0", "0", "0", "")
        mutated, lines, around = found
        tests = [test for test in self.coverage.of(mutant.file, lines, around)
                 if test.tier == tier and (self.options.engine or not test.engine)]  # fmt: skip
        spent = accumulate(test.seconds for test in tests)
        chosen = tests[: max(1, sum(seconds <= self.options.seconds for seconds in spent))]
        outcome, ran, by = self._judge(scratch, mutant.file, (whole, mutated), chosen)
        took, left = f"{time.monotonic() - begun:.1f}", str(len(tests) - len(chosen))
        return Result(mutant.id, tier, outcome, took, str(ran), left, by)

    def _judge(
        self, scratch: Scratch, file: str, texts: tuple[str, str], tests: list[Test]
    ) -> tuple[str, int, str]:
        """The outcome, how many tests ran, and the test that noticed: it fails twice with the
        mutant and passes without it. One that does not is passed over, a few times at most."""
        ran, left, doubts = 0, tests, 0
        while left and doubts < DOUBTS:
            scratch.put(file, texts[1])
            failed, hung, count = scratch.run(left)
            again = failed and scratch.run([failed])[0]
            scratch.put(file, texts[0])
            ran += count
            if failed and again and not scratch.run([failed])[0]:
                return "timeout" if hung else "killed", ran, failed.name
            left = left[left.index(failed) + 1 :] if failed else []
            doubts += 1
        return ("survived" if ran else "error") if tests else "uncovered", ran, ""


def verdicts(results: list[Result]) -> dict[str, str]:
    """Of each mutant: `make test` or `make test-all` notices it, or why none does."""
    said: dict[str, str] = {}
    for result in results:
        if result.outcome in KILLED:
            said[result.id] = "make test" if result.tier == "test" else "make test-all only"
        elif said.get(result.id, "uncovered") == "uncovered":
            said[result.id] = result.outcome
    return said


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    add = parser.add_argument
    add("--write", action="store_true", help="draw others for those whose place is gone")
    add("--tier", choices=TIERS, default="test", help="whose tests: make test's, or all")
    add("--minutes", type=float, default=60, help="begin no mutant after; what is left is named")
    add("--seconds", type=float, default=60, help="of tests for one mutant and tier")
    add("--jobs", type=int, default=os.cpu_count() or 1)
    add("--only", nargs="+", default=[], metavar="ID")
    add("--engine", action="store_true", help="with the tests that need Docker")
    add("--root", type=Path, default=ROOT, help="another checkout, with its own .venv")
    add("--coverage", type=Path, help="a folder measured before; else it is measured")
    add("--results", type=Path, help="the file of results; else one beside the environment")
    options = parser.parse_args()
    if options.write:
        faults.draw(ROOT)
    elif not enclosed():
        parser.error("mutants could end processes of yours: there is no unshare --pid here")
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try_out(options)


def try_out(options: argparse.Namespace) -> None:
    options.deadline = time.monotonic() + options.minutes * 60
    root = options.root.resolve()
    state = root / ".venv/mutants" / coverage_map.fingerprint(root)
    place = options.coverage or state.with_name(f"{state.name}-{options.tier}")
    results = options.results or state.with_suffix(".tsv")
    results.parent.mkdir(parents=True, exist_ok=True)
    if options.coverage is None and not (place / "whole").exists():
        print("measuring which tests run which lines; once for this state of the tree", flush=True)
        if not coverage_map.measure(root, place, options.tier, options.jobs + 1):
            sys.exit("the tests could not be run to their end: nothing was measured")
    mutants = [one for one in faults.read() if not options.only or one.id in options.only]
    coverage = CoverageMap(place, root, {mutant.file for mutant in mutants})
    with suppress(KeyboardInterrupt):
        Trial(options, coverage, results).run(mutants, root)
    said = verdicts(read_results(results))
    print(*Counter(said.get(mutant.id, "not reached") for mutant in mutants).items(), results)
    print("not reached:", *(mutant.id for mutant in mutants if mutant.id not in said))


if __name__ == "__main__":
    main()
