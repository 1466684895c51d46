"""The sentinel beside Debian's earlyoom on the same hogs, and what it costs while nothing happens.

`python -m tests.benchmarks.sentinel --trials 200` runs the hog that often against the sentinel
alone and writes what was seen into docs/measurements/sentinel.md.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from console.common.clock import SystemClock
from console.recovery.guard.config import Limit, defaults
from console.recovery.guard.daemon import NICE
from console.recovery.guard.decide.policy import Policy
from console.recovery.guard.kill.targets import Deny, sort_out
from console.recovery.guard.observe.memory import MEMINFO, PRESSURE, MemoryCollector
from console.recovery.guard.observe.service_memory import ServiceMemoryCollector
from console.recovery.guard.observe.snapshot import Snapshot
from console.recovery.guard.record.recorder import Recorder
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Figure, Measured, Row, percentile
from tests.benchmarks.surroundings import CannotRun
from tests.guard.yard import hogs
from tests.guard.yard.memory import GIB, MIB
from tests.guard.yard.post import posted, until
from tests.guard.yard.trial import Trial, again, against_earlyoom, against_sentinel, entry

PEER = "earlyoom 1.7 -s 100 -p"
PAIRS, HARD_PAIRS = 10, 6
SIZE, MARGIN = 4 * GIB, 2 * GIB
TRIAL_MARGIN = 512 * MIB
BURNERS_A_CORE = 4
IDLE_MS, HARD_MS = 100.0, 250.0
MAX_RATIO = 1.1
FAST_US, SLOW_US, CPU_PERCENT, RSS_MB = 20.0, 150.0, 0.5, 20.0
LOOKS, SECONDS, WATCH_S = 20_000, 2_000, 30.0
LOG, LINE_EVERY_S = "cand.log", 0.1
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "sentinel.md"
BEGIN, END = "<!-- trials: written by the benchmark -->\n", "<!-- end of trials -->"


def run(say: Callable[[str], None]) -> list[Measured]:
    """Costs of a look, a second and a watch while nothing else runs; then pairs in turns, idle and
    with every core burning, which the host of a virtual machine makes up for minutes later."""
    if os.geteuid() != 0:
        raise CannotRun("a hog in a cgroup and a pid namespace of its own needs root")
    burners = BURNERS_A_CORE * (os.cpu_count() or 1)
    with surroundings.workplace() as place:
        costs = [*_a_look(place), *_a_second(), *_watching(place, say)]
        idle = _pairs(place, PAIRS, 0, say)
        hard = _pairs(place, HARD_PAIRS, burners, say)
        return [
            *_compared("idle", idle, MAX_RATIO, IDLE_MS),
            *_compared(f"{burners} burners", hard, math.inf, HARD_MS),
            *costs,
        ]


# -- beside earlyoom -------------------------------------------------------------------------------


def _pairs(
    place: Path, count: int, burners: int, say: Callable[[str], None]
) -> list[tuple[Trial, Trial]]:
    """(ours, peer), who goes first in turns; one pair before them counts for nothing."""
    found = []
    for number in range(-1, count):
        sides: list[Callable[[], Trial]] = [
            partial(against_sentinel, place, SIZE, MARGIN, burners=burners),
            partial(against_earlyoom, SIZE, MARGIN, burners=burners),
        ]
        order = [0, 1] if number % 2 == 0 else [1, 0]
        got = {at: again(sides[at]) for at in order}
        if number >= 0:
            found.append((got[0], got[1]))
    for name, trials in (("ours", [a for a, _ in found]), (PEER, [b for _, b in found])):
        say(f"{burners} burners, {name}: {words(trials)}")
    return found


def words(trials: list[Trial]) -> str:
    """What the hogs were like, for how far to trust the rest."""
    rate = statistics.median(trial.seen.rate for trial in trials) / GIB
    below = max(trial.below for trial in trials) / MIB
    late = max(trial.seen.late for trial in trials) / 1e6
    return (
        f"hogs of {rate:.2f} GiB/s (median), MemAvailable at most {below:.0f} MiB below the "
        f"threshold, the observer at most {late:.1f} ms late"
    )


def _compared(
    name: str, pairs: list[tuple[Trial, Trial]], most: float, most_ms: float
) -> list[Measured]:
    kills = [ours.kill_s * 1e3 for ours, _ in pairs]

    def row(what: str, get: Callable[[Trial], float], most: float = math.inf) -> Row:
        ours, peer = [get(a) for a, _ in pairs], [get(b) for _, b in pairs]
        return Row(f"crossing -> {what}, {name}", PEER, ours, peer, most)

    return [
        Figure(f"crossing -> kill written, {name}", "ms", kills, most_ms, "p99"),
        row("dying", lambda trial: trial.dying_s),
        row("cgroup empty", lambda trial: trial.empty_s, most),
    ]


# -- what it costs ---------------------------------------------------------------------------------


def _a_look(place: Path) -> list[Measured]:
    """A fast sample alone, and with all that one tick does with it, in microseconds."""
    reader, clock = MemoryCollector(), SystemClock()
    recorder = Recorder(place / "ring", "bench", clock)
    first = reader.read(time.monotonic())
    assert first is not None
    policy = Policy((), defaults(first.total, first.swap_total))
    policy.arm(Snapshot(first.at, first))
    samples, bare, ticks = [], [], []
    files = [os.open(f"/{name}", os.O_RDONLY) for name in (MEMINFO, PRESSURE)]
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, NICE)  # as the sentinel has it: the others' turns are theirs
    for _ in range(LOOKS):
        begun = time.perf_counter_ns()
        seen = reader.read(time.monotonic())
        read = time.perf_counter_ns()
        assert seen is not None
        judgement = policy.decide(Snapshot(seen.at, seen))
        recorder.tick(seen, None, None, judgement.level)
        samples.append((read - begun) / 1e3)
        ticks.append((time.perf_counter_ns() - begun) / 1e3)
        begun = time.perf_counter_ns()
        for one in files:
            os.pread(one, 1024, 0)
        bare.append((time.perf_counter_ns() - begun) / 1e3)
    os.setpriority(os.PRIO_PROCESS, 0, before)
    reader.close()
    recorder.close()
    for one in files:
        os.close(one)
    return [
        Figure("fast sample", "us", _thinned(samples), FAST_US, "p99"),
        Figure("the same two files read and thrown away", "us", _thinned(bare), of="p99"),
        Figure("fast sample, judged and recorded", "us", _thinned(ticks), of="p99"),
    ]


def _a_second() -> list[Measured]:
    """The slow tier in this process: swap traffic and one container's control groups."""
    with hogs.waiting(["alloc", "4096", "0"]) as hog:
        reader, found = ServiceMemoryCollector(), []
        reader.watch(sort_out([entry(hog)], Deny())[0])
        before = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
        for _ in range(SECONDS):
            begun = time.perf_counter_ns()
            reader.swap(time.monotonic())
            loads = reader.loads(time.monotonic())
            found.append((time.perf_counter_ns() - begun) / 1e3)
            assert loads
            assert loads[0].ram is not None, loads
        os.setpriority(os.PRIO_PROCESS, 0, before)
        reader.close()
    return [
        Figure("slow tier, once a second", "us", _thinned(found), SLOW_US),
        Figure("the same", "us", _thinned(found), of="p99"),
    ]


def _thinned(samples: list[float]) -> list[float]:
    """A hundredth of them with the same percentiles: every hundredth in order of size."""
    return sorted(samples)[50::100]


def _watching(place: Path, say: Callable[[str], None]) -> list[Measured]:
    """Half a minute each, armed and idle: with the console's own limits alone, with one on the RAM
    of the service, and with a pattern on its log, which gets ten lines a second."""
    log = place / LOG
    log.touch()
    ram = Limit("service.ram_used", above=64.0 * GIB, of="cand", source="bench")
    line = Limit(log="cand", matches="CUDA error|out of memory", source="bench")
    followed = {"logs": {"cand": str(log)}}
    return [
        *_armed(place, "armed and idle", say),
        *_armed(place, "armed, a limit on RAM of the service", say, ram),
        *_armed(place, "armed, a pattern on its log", say, line, extra=followed),
    ]


def _armed(
    place: Path, name: str, say: Callable[[str], None], *limits: Limit, **more: Any
) -> list[Measured]:
    bar = math.inf if limits else CPU_PERCENT
    with posted(place, *limits, **more) as post, hogs.waiting(["alloc", "4096", "0"]) as hog:
        post.arm(entry(hog))
        until(lambda: post.armed, "it is armed")
        time.sleep(3.0)
        one = psutil.Process(post.pid)
        tree = [one, *one.children(recursive=True)]
        before, files = _cpu(tree), one.num_fds()
        begun = time.monotonic()
        _pass(place / LOG)
        took = time.monotonic() - begun
        spent = [b - a for a, b in zip(before, _cpu(tree), strict=True)]
        more_files = one.num_fds() - files
        sizes = [each.memory_info().rss / 1e6 for each in tree]
        shares = [100 * used / took for used in spent]
        say(f"{name}: {len(tree) - 1} children, {files} descriptors")
        return [
            Figure(f"CPU of the sentinel, {name}", "% of a core", shares[:1], CPU_PERCENT),
            Figure(f"CPU with its children, {name}", "% of a core", [sum(shares)], bar),
            Figure(f"RSS of the sentinel, {name}", "MB", sizes[:1], RSS_MB),
            Figure(f"RSS with its children, {name}", "MB", [sum(sizes)]),
            Figure(f"descriptors more than before, {name}", "", [float(more_files)], 0.0),
        ]


def _pass(log: Path) -> None:
    """WATCH_S, with lines into the log as a server that answers writes them."""
    until_s = time.monotonic() + WATCH_S
    with log.open("a", buffering=1) as file:
        while time.monotonic() < until_s:
            file.write("srv  update_slots: all slots are idle, prompt eval time = 12.5 ms\n")
            time.sleep(LINE_EVERY_S)


def _cpu(tree: list[psutil.Process]) -> list[float]:
    return [sum(each.cpu_times()[:2]) for each in tree]


# -- many trials -----------------------------------------------------------------------------------


def many(count: int, say: Callable[[str], None]) -> list[Trial]:
    """`count` hogs, one after the other, each killed soon after its start."""
    found: list[Trial] = []
    with surroundings.workplace() as place:
        for number in range(count):
            container = number % 2 == 0
            # MemAvailable does not count free pages on the processors' own lists, a gibibyte and
            # more after a hog's end: the next one takes those first
            way = partial(
                against_sentinel, place, SIZE, TRIAL_MARGIN, container=container, warm=GIB
            )
            found.append(again(way))
            if (number + 1) % 20 == 0:
                say(f"{number + 1}: {words(found)}")
    return found


def told(trials: list[Trial]) -> str:
    """The section of docs/measurements/sentinel.md."""
    about = surroundings.machine()
    rows = [
        ("crossing → kill written", [t.kill_s for t in trials]),
        ("crossing → it is dying", [t.dying_s for t in trials]),
        ("crossing → dead, its memory back", [t.empty_s for t in trials]),
    ]
    lines = ["| ms | min | median | p99 | max |", "|---|---|---|---|---|"]
    for name, taken in rows:
        ms = [one * 1e3 for one in taken]
        cells = (min(ms), statistics.median(ms), percentile(ms, 0.99), max(ms))
        lines.append(f"| {name} | {' | '.join(f'{one:.1f}' for one in cells)} |")
    lowest = max(trials, key=lambda t: t.below)
    rate = statistics.median(t.seen.rate for t in trials) / GIB
    return (
        f"{time.strftime('%Y-%m-%d')}, {about['cores']} cores, {about['system']}, kernel "
        f"{about['kernel']}: {len(trials)} hogs at {rate:.2f} GiB/s (median), half of "
        f"them in a cgroup like a container's, half as a host process; a limit 512 MiB below what "
        f"was available.\n\n" + "\n".join(lines) + "\n\n"
        f"The lowest MemAvailable seen was {lowest.below / MIB:.0f} MiB below the limit (median "
        f"{statistics.median(t.below for t in trials) / MIB:.0f} MiB).\n"
    )


def write(text: str) -> None:
    """Put it between its marks."""
    page = DOCUMENT.read_text()
    head, _, rest = page.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise CannotRun(f"{DOCUMENT.name} has no marks for the trials")
    DOCUMENT.write_text(head + BEGIN + text + END + tail)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.sentinel", description=__doc__
    )
    parser.add_argument("--trials", type=int, required=True)
    trials = many(parser.parse_args(arguments).trials, lambda text: print(text, flush=True))
    text = told(trials)
    print(text)
    write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
