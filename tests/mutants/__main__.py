"""`python -m tests.mutants`: put the listed faults into the program, one at a time, and see which
of them the tests notice.

Each is tried in a scratch copy, with the tests that run its line: those of `make test` first, then
those that only `make test-all` has. Results are written as they come; a second call goes on where
the first one ended, as long as neither program nor tests have changed.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.mutants import covering, listed
from tests.mutants.covering import Coverage, Test
from tests.mutants.listed import Mutant
from tests.mutants.scratch import HANGS_S, Scratch, enclosed

ROOT = Path(__file__).parents[2]
TIERS = {"test": ("test",), "all": ("test", "full")}
KILLED = {"killed", "timeout"}
GOES_ON = {"survived", "uncovered"}
"""After these the tests of the next tier are tried."""
DOUBTS = 5
"""How many tests that fail now and then are passed over for one mutant."""


class Result(NamedTuple):
    """What one tier's tests made of one mutant."""

    id: str
    tier: str
    outcome: str
    """killed, timeout (noticed too), survived, uncovered (no test runs it), lost (not found any
    more), error (pytest could not run)."""
    seconds: str
    ran: str
    left: str
    """How many tests that run the line did not fit into the time."""
    test: str


def read_results(file: Path) -> list[Result]:
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [Result(*line.split("\t")) for line in lines]


@dataclass
class Trial:
    """Tries mutants in one tree, several workers at a time."""

    root: Path
    coverage: Coverage
    results: Path
    tiers: tuple[str, ...]
    seconds: float
    engine: bool
    deadline: float
    steady: dict[str, bool] = field(default_factory=dict)
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    scratches: list[Scratch] = field(default_factory=list)

    def run(self, mutants: list[Mutant], jobs: int) -> None:
        known = read_results(self.results)
        done = {(result.id, result.tier) for result in known}
        over = {result.id for result in known if result.outcome not in GOES_ON}
        left: queue.SimpleQueue[tuple[Mutant, list[str]]] = queue.SimpleQueue()
        # in an order by chance: a call that runs out of time has still looked everywhere
        for mutant in random.Random(listed.SEED).sample(mutants, len(mutants)):
            tiers = [tier for tier in self.tiers if (mutant.id, tier) not in done]
            if tiers and mutant.id not in over:
                left.put((mutant, tiers))
        workers = [threading.Thread(target=self._work, args=(left,)) for _ in range(jobs)]
        for worker in workers:
            worker.start()
        try:
            while any(worker.is_alive() for worker in workers):
                time.sleep(0.2)
        except KeyboardInterrupt:
            print("stopped; what was found is kept")
        finally:
            self.stopped = True
            while any(worker.is_alive() for worker in workers):
                for scratch in self.scratches:
                    scratch.stop()
                time.sleep(0.1)
            for scratch in self.scratches:
                scratch.close()

    def _work(self, left: queue.SimpleQueue[tuple[Mutant, list[str]]]) -> None:
        scratch = Scratch(self.root)
        with self.lock:
            self.scratches.append(scratch)
        while not self._over():
            try:
                mutant, tiers = left.get_nowait()
            except queue.Empty:
                return
            self._try(scratch, mutant, tiers)

    def _over(self) -> bool:
        return self.stopped or time.monotonic() >= self.deadline

    def _try(self, scratch: Scratch, mutant: Mutant, tiers: list[str]) -> None:
        whole = scratch.get(mutant.file)
        found = listed.locate(mutant, whole)
        if found is None:
            self._tell(Result(mutant.id, tiers[0], "lost", "0", "0", "0", ""))
            return
        names = self.coverage.of(mutant.file, found.lines)
        names = names or self.coverage.of(mutant.file, found.around)
        tests = [test for test in self.coverage.order(names, mutant.file)
                 if self.engine or not test.engine]  # fmt: skip
        for tier in tiers:
            begun = time.monotonic()
            covering_tests = [test for test in tests if test.tier == tier]
            chosen = covering.within(covering_tests, self.seconds)
            outcome, ran, by = self._judge(scratch, mutant.file, whole, found.mutated, chosen)
            if self.stopped:
                return
            took = f"{time.monotonic() - begun:.1f}"
            left = str(len(covering_tests) - len(chosen))
            self._tell(Result(mutant.id, tier, outcome, took, str(ran), left, by))
            if outcome in KILLED:
                return

    def _judge(
        self, scratch: Scratch, file: str, whole: bytes, mutated: bytes, tests: list[Test]
    ) -> tuple[str, int, str]:
        """The outcome, how many tests ran, and the test that noticed.

        A test notices a mutant when it fails with it twice and passes without it.
        """
        names, ran = [test.name for test in tests], 0
        hangs_s = max([HANGS_S, *(3 * test.seconds for test in tests)])
        outcome = ("survived" if names else "uncovered", "")
        for _ in range(DOUBTS):
            if not names:
                break
            scratch.put(file, mutated)
            found = scratch.run(names, self.seconds * 2, hangs_s)
            ran += found.tests
            if found.broken:
                outcome = ("error", " ".join(found.broken.split())[-200:])
                break
            if not found.failed:
                break
            again = scratch.run([found.failed], self.seconds * 2, hangs_s)
            scratch.put(file, whole)
            if again.failed and self._passes(scratch, found.failed, hangs_s):
                outcome = ("timeout" if found.hung else "killed", found.failed)
                break
            tried = names.index(found.failed) if found.failed in names else len(names)
            names = names[tried + 1 :]
        scratch.put(file, whole)
        return outcome[0], ran, outcome[1]

    def _passes(self, scratch: Scratch, name: str, hangs_s: float) -> bool:
        """Whether a test passes in the copy with no mutant in it."""
        if name not in self.steady:
            found = scratch.run([name], self.seconds * 2, hangs_s)
            self.steady[name] = not found.failed and not found.broken
        return self.steady[name]

    def _tell(self, result: Result) -> None:
        with self.lock:
            print(
                f"{result.id}  {result.outcome:9} {result.seconds:>6} s  {result.test}", flush=True
            )
            with self.results.open("a", encoding="utf-8") as file:
                file.write("\t".join(result) + "\n")


def verdicts(results: Iterable[Result]) -> dict[str, str]:
    """Of each mutant: `make test` or `make test-all` notices it, or why none does."""
    said: dict[str, str] = {}
    words = {"test": "make test", "full": "make test-all only"}
    for result in results:
        before = said.get(result.id, "")
        if result.outcome in KILLED:
            said[result.id] = words[result.tier]
        elif not before or before == "uncovered":
            said[result.id] = result.outcome
    return said


def summary(mutants: list[Mutant], results: list[Result]) -> str:
    said = verdicts(results)
    counted: dict[str, Counter[str]] = {}
    for mutant in mutants:
        verdict = said.get(mutant.id, "not reached")
        for row in (mutant.package, "all"):
            counted.setdefault(row, Counter())[verdict] += 1
    columns = [
        word for word in ("make test", "make test-all only", "survived", "uncovered", "lost",
                          "error", "not reached") if counted["all"][word]
    ]  # fmt: skip
    lines = [f"{'':10}" + "".join(f"  {word}" for word in columns)]
    lines += [
        f"{row:10}" + "".join(f"  {counts[word]:{len(word)}}" for word in columns)
        for row, counts in counted.items()
    ]
    return "\n".join(lines)


def compare(old: list[Result], new: list[Result]) -> tuple[str, bool]:
    """What the tests of an older tree noticed, against those of a newer one; whether no less."""
    before, after = verdicts(old), verdicts(new)
    known = [name for name, verdict in before.items() if verdict.startswith("make")]
    quick = [name for name in known if after.get(name) == "make test"]
    missed = [name for name in known if not after.get(name, "").startswith("make")]
    gained = [name for name, verdict in after.items()
              if verdict.startswith("make") and name not in known]  # fmt: skip
    lines = [f"{name}  {after.get(name, 'not reached')}, but before: {result.test}"
             for name in missed for result in old
             if result.id == name and result.outcome in KILLED]  # fmt: skip
    share = len(quick) / max(1, len(known))
    lines.append(
        f"noticed before {len(known)}; of these now {len(known) - len(missed)},"
        f" by make test alone {len(quick)} ({share:.0%}); noticed now only: {len(gained)}"
    )
    return "\n".join(lines), not missed and share >= 0.9


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    add = parser.add_argument
    add("--write", action="store_true", help="draw a new list")
    add("--tier", choices=TIERS, default="test", help="whose tests: make test's, or all")
    add("--minutes", type=float, default=60, help="for everything; what is left is named")
    add("--seconds", type=float, default=60, help="of tests for one mutant and tier")
    add("--jobs", type=int, default=os.cpu_count() or 1)
    add("--only", nargs="+", default=[], metavar="ID")
    add("--engine", action="store_true", help="with the tests that need Docker")
    add("--root", type=Path, default=ROOT, help="another checkout, with its own .venv")
    add("--coverage", type=Path, help="a folder measured before; else it is measured")
    add("--results", type=Path, help="the file of results; else one beside the environment")
    add("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="two files of results")
    options = parser.parse_args()
    if options.write:
        listed.write(listed.draw(ROOT))
        return 0
    if options.compare:
        words, enough = compare(*map(read_results, options.compare))
        print(words)
        return 0 if enough else 1
    if not enclosed():
        parser.error("this machine gives no process namespace (unshare --pid): a mutated program"
                     " could end processes that are not its own")  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return try_out(options)


def try_out(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.minutes * 60
    root = options.root.resolve()
    kept = root / covering.KEPT
    state = covering.fingerprint(root)
    place = options.coverage or kept / f"{state}-{options.tier}"
    results = options.results or kept / f"{state}.tsv"
    results.parent.mkdir(exist_ok=True)
    if options.coverage is None and not (place / "whole").exists():
        print("measuring which tests run which lines; once for this state of the tree", flush=True)
        covering.measure(root, place, options.tier, options.jobs + 1, options.minutes * 60)
    mutants = [one for one in listed.read() if not options.only or one.id in options.only]
    coverage = Coverage(place, root)
    coverage.load({mutant.file for mutant in mutants})
    trial = Trial(root, coverage, results, TIERS[options.tier], options.seconds, options.engine,
                  deadline)  # fmt: skip
    trial.run(mutants, options.jobs)
    print(summary(mutants, read_results(results)))
    print(f"results: {results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
