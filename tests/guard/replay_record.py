"""Records what a load does to this machine's memory, as a small file that the replay can read.

    python -m tests.guard.replay_record OUT.csv.gz -- COMMAND...      run it and record
    python -m tests.guard.replay_record OUT.csv.gz --seconds 60       record what happens anyway

The first line is JSON: the command, RAM and swap of the machine in KiB, kernel. Each line after it:
milliseconds, MemAvailable and used swap in KiB, PSI totals of `some` and `full` in microseconds.
"""

import gzip
import json
import math
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

from console.recovery.guard.observe.snapshot import Memory

CURVES = Path(__file__).with_name("curves")
STEP_S = 0.05
QUIET_S = 2.0  # before the command starts and after it ended
KIB = 1024
Row = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded curve: `what` was run, RAM and swap of the machine in bytes, and the samples."""

    name: str
    what: str
    total: int
    swap_total: int
    rows: tuple[Row, ...]

    @property
    def seconds(self) -> float:
        return (self.rows[-1][0] - self.rows[0][0]) / 1000

    def lowest(self) -> int:
        return min(row[1] for row in self.rows) * KIB

    def memories(self) -> Iterator[Memory]:
        """Return the samples as the sentinel would have read them."""
        for ms, available, swap, some, full in self.rows:
            at = 1000.0 + ms / 1000
            yield Memory(at, self.total, available * KIB, self.swap_total, swap * KIB, some, full)


def read(path: Path) -> Recorded:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head = json.loads(file.readline())
        rows = [cast("Row", tuple(map(int, line.split(",")))) for line in file]
    name = path.name.removesuffix(".csv.gz")
    total, swap_total = head["total_kib"] * KIB, head["swap_kib"] * KIB
    return Recorded(name, head["what"], total, swap_total, tuple(rows))


def all_curves() -> list[Recorded]:
    return [read(path) for path in sorted(CURVES.glob("*.csv.gz"))]


HOUR_S = 3600.0


def idle_hour(seed: int = 7) -> tuple[Iterator[Memory], int, int]:
    """Make an hour of idle from a recorded minute: its changes are repeated in another order each
    time, so that no jump appears that was not recorded. Returns samples, and RAM and swap of the
    machine in bytes."""
    minute = read(CURVES / "idle.csv.gz")
    steps = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairwise(minute.rows)]
    shuffled = random.Random(seed)

    def samples() -> Iterator[Memory]:
        at, available, swap, some, full = 0.0, minute.rows[0][1], minute.rows[0][2], 0, 0
        while at < HOUR_S:
            # the minute's total gain or loss is given back, or an hour of it would drift
            available, swap = minute.rows[0][1], minute.rows[0][2]
            for ms, more, swapped, waited, stalled in shuffled.sample(steps, len(steps)):
                at += ms / 1000
                available, swap = available + more, swap + swapped
                some, full = some + waited, full + stalled
                yield Memory(
                    1000.0 + at, minute.total, available * KIB, minute.swap_total, swap * KIB,
                    some, full,
                )  # fmt: skip

    return samples(), minute.total, minute.swap_total


def sample() -> tuple[dict[str, int], int, int]:
    """Read meminfo in KiB, and the PSI totals of `some` and `full`."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    meminfo = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    pressure = Path("/proc/pressure/memory").read_text("ascii").splitlines()
    some, full = (int(line.rpartition("=")[2]) for line in pressure)
    return meminfo, some, full


def record(command: list[str], seconds: float) -> tuple[dict[str, object], list[Row]]:
    """Sample until `seconds` are over, or until the command ended and was quiet for a while."""
    begun, rows = time.monotonic(), list[Row]()
    child: subprocess.Popen[bytes] | None = None
    ended: float | None = None
    while True:
        now = time.monotonic() - begun
        meminfo, some, full = sample()
        swap = meminfo["SwapTotal"] - meminfo["SwapFree"]
        rows.append((round(now * 1000), meminfo["MemAvailable"], swap, some, full))
        if command and child is None and now >= QUIET_S:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if child is not None and ended is None and child.poll() is not None:
            ended = now
        over = math.inf if ended is None else ended + QUIET_S
        if now >= (over if command else seconds):
            break
        time.sleep(max(0.0, begun + len(rows) * STEP_S - time.monotonic()))
    if child is not None and child.returncode:
        raise SystemExit(f"the command ended with {child.returncode}")
    head: dict[str, object] = {
        "total_kib": meminfo["MemTotal"], "swap_kib": meminfo["SwapTotal"],
        "cores": os.cpu_count(), "kernel": platform.release(),
    }  # fmt: skip
    return head, rows


def main(arguments: list[str]) -> int:
    out, how, *rest = arguments
    what = os.environ.get("WHAT", " ".join(rest))
    command, seconds = (rest, 0.0) if how == "--" else ([], float(rest[0]))
    head, rows = record(command, seconds)
    text = json.dumps({"what": what, **head}) + "\n"
    text += "".join(",".join(map(str, row)) + "\n" for row in rows)
    Path(out).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{out}: {len(rows)} looks, lowest {min(row[1] for row in rows) / 2**20:.1f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
