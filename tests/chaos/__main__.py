"""`python -m tests.chaos`: trials of random kills, checked from outside, each of them drawn from
`--seed` and its number alone: `--seed S --trial N` repeats one."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests import ports
from tests.chaos.draw import WORLDS, draw
from tests.chaos.trial import Trial
from tests.testbed.models import tiny_llama

LONGEST_S = 400.0
"""A trial that takes longer is a broken promise itself."""
FORK = multiprocessing.get_context("fork")


class Job:
    """One trial in a process of its own: its mounts, limits and children are nobody else's."""

    def __init__(self, options: argparse.Namespace, number: int, lane: int, model: Path) -> None:
        self.plan = draw(options.seed, number, options.world)
        self.root = Path(tempfile.mkdtemp(prefix=f"omni-chaos-{number}-"))
        self.begun, self.keep, self.refused = time.monotonic(), options.keep, False
        self.process = FORK.Process(target=self._work, args=(lane, options.jobs, model))
        self.process.start()

    def _work(self, lane: int, lanes: int, model: Path) -> None:
        ports.PORTS = range(14_000 + lane, 20_000, lanes)  # below those of tests
        os.environ["OMNI_HOST_DIR"] = str(self.root / "host")
        try:
            trial = Trial(self.plan, self.root, model)
            broken = trial.run()
            if trial.refused:
                (self.root / "refused").touch()
        except BaseException:
            broken = [f"driver: {traceback.format_exc()}"]
        (self.root / "result").write_text(json.dumps(broken))

    @property
    def done(self) -> bool:
        if time.monotonic() - self.begun > LONGEST_S:
            self.process.kill()
        return not self.process.is_alive()

    def broken(self) -> list[str]:
        self.process.join()
        self.refused = (self.root / "refused").exists()
        try:
            found: list[str] = json.loads((self.root / "result").read_text())
        except (OSError, ValueError):
            found = [f"stuck: the trial did not end in {LONGEST_S:g} s"]
        if not found and not self.keep:
            shutil.rmtree(self.root, ignore_errors=True)
        return found


class Driver:
    """Trials beside each other, until their number or the time is used up."""

    def __init__(self, options: argparse.Namespace, model: Path) -> None:
        self.options, self.model = options, model
        self.kinds: Counter[str] = Counter()
        self.bad: list[int] = []
        self.took: list[float] = []
        self.refused = 0

    def run(self) -> int:
        options = self.options
        end = time.monotonic() + options.minutes * 60
        numbers = iter(range(options.first, options.first + options.trials))
        if options.trial is not None:
            numbers = iter([options.trial])
        lanes: dict[int, Job] = {}
        left = True
        while left or lanes:
            for lane in range(options.jobs):
                if left and lane not in lanes:
                    number = next(numbers, None) if time.monotonic() < end else None
                    left = number is not None
                    if number is not None:
                        lanes[lane] = Job(options, number, lane, self.model)
                if lane in lanes and lanes[lane].done:
                    self._tell(lanes.pop(lane))
            time.sleep(0.02)
        count = len(self.took)
        took = sum(self.took) / max(1, count)
        print(
            f"seed {options.seed}, {options.world}: {count} trials of {took:.1f} s, a run was "
            f"refused in {self.refused}, {len(self.bad)} broke a promise {self.bad or ''} "
            f"{dict(self.kinds) or ''}"
        )
        return int(bool(self.bad))

    def _tell(self, job: Job) -> None:
        self.took.append(time.monotonic() - job.begun)
        broken = job.broken()
        plan = job.plan
        self.refused += job.refused
        if self.options.verbose or broken:
            mark = "BROKEN" if broken else "ok"
            print(f"{plan.number} {mark} {self.took[-1]:.1f} s, {plan.words()}", flush=True)
        if broken:
            self.bad.append(plan.number)
            self.kinds.update(line.partition(":")[0] for line in broken)
            acts = job.root / "acts"
            said = acts.read_text().splitlines()[1:] if acts.exists() else []
            print(*(f"    {line}" for line in [*broken, *said]), sep="\n")
            again = f"--seed {plan.seed} --world {plan.world} --trial {plan.number}"
            print(f"    kept: {job.root}; again: python -m tests.chaos {again}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--trials", type=int, default=100)
    add("--minutes", type=float, default=10, help="begin no trial after")
    add("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    add("--first", type=int, default=0, help="the number of the first trial")
    add("--trial", type=int, help="this one alone")
    add("--world", choices=WORLDS, default="plain")
    add("--jobs", type=int, default=2)
    add("--keep", action="store_true", help="the directories of trials that kept every promise too")
    add("--verbose", action="store_true")
    options = parser.parse_args(argv)
    if options.world not in ("plain", "stop") and os.getuid() != 0:
        parser.error(f"the world {options.world} needs root")
    with tempfile.TemporaryDirectory(prefix="omni-chaos-model-") as place:
        os.chmod(place, 0o755)
        model = Path(place) / "tiny.gguf"
        tiny_llama(model)
        return Driver(options, model).run()


if __name__ == "__main__":
    sys.exit(main())
