"""What the console costs while nothing happens, beside nvitop on the same cards."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Figure, Measured, Row, in_turns
from tests.benchmarks.opened import Opened, shown
from tests.benchmarks.surroundings import CannotRun
from tests.testbed.nvml import MIB, WORKSTATION, Nvml, ensure_nvml

TURNS = 3
SETTLE_S = 6.0
WATCH_S = 30.0
MAX_CPU = 1.0
BYTES_S, TREE_MB = 1000.0, 120.0
WIDE, WIDE_BYTES_S = "a run that is over, 200x60", 2000.0
"""A large window with all panels, whose curves move."""
PEER = "nvitop, 1 s"


@dataclass(frozen=True)
class Look:
    """One look: CPU seconds and bytes a second, RSS in MB of the tree and of its first process."""

    cpu: float
    bytes_s: float
    tree_mb: float
    own_mb: float


def run(say: Callable[[str], None]) -> list[Measured]:
    """80x24 unless a name says more, two scripted cards whose figures move every second, one sample
    a second."""
    library = ensure_nvml()
    peer = Path(sys.executable).with_name("nvitop")
    if not peer.exists():
        raise CannotRun("nvitop is not installed: it comes with the development extra")
    with ExitStack() as stack:
        place = stack.enter_context(surroundings.workplace())
        script = stack.enter_context(moving(library, place / "cards"))
        over = stack.enter_context(shown(place / "over"))
        paused = stack.enter_context(shown(place / "paused", alive=True))
        nvml = library.env(script)
        argv = [str(peer), "--monitor", "auto", "--interval", "1"]
        ways: dict[str, Callable[[], Opened]] = {
            "a run that is over": lambda: over.console(**nvml),
            PEER: lambda: Opened(argv, over.environment(**nvml)),
            "a paused live run": lambda: paused.console(**nvml),
            WIDE: lambda: over.console(200, 60, **nvml),
        }
        marks = {
            "a run that is over": ("● SERVING", "last run SUCCEEDED", "RTX"),
            PEER: ("NVITOP", "MEM"),
            "a paused live run": ("● SERVING", "5/12 steps", "RTX"),
            WIDE: ("● SERVING", "last run SUCCEEDED", "RTX", "util"),
        }
        for name, way in ways.items():  # once for the bytecode, whose making costs memory as well
            with way() as opened:
                opened.seen(*marks[name])
        looks: dict[str, list[Look]] = {name: [] for name in ways}

        def look(name: str) -> float:
            looks[name].append(_look(ways[name], marks[name]))
            return looks[name][-1].cpu

        in_turns({name: partial(look, name) for name in ways}, TURNS, warm_up=0)
    return _rows(looks)


def _rows(looks: dict[str, list[Look]]) -> list[Measured]:
    peer = [one.cpu for one in looks[PEER]]
    rows: list[Measured] = []
    for name, found in looks.items():
        if name != PEER:
            rows.append(Row(f"CPU a second, {name}", PEER, [x.cpu for x in found], peer, MAX_CPU))
    for name, found in looks.items():
        bytes_s, tree_mb = (math.inf, math.inf) if name == PEER else (BYTES_S, TREE_MB)
        bytes_s = WIDE_BYTES_S if name == WIDE else bytes_s
        sent, tree = [x.bytes_s for x in found], [x.tree_mb for x in found]
        rows.append(Figure(f"to the terminal, {name}", "bytes/s", sent, bytes_s))
        rows.append(Figure(f"RSS of the tree, {name}", "MB", tree, tree_mb))
        rows.append(Figure(f"RSS of the process, {name}", "MB", [x.own_mb for x in found]))
    return rows


def _look(way: Callable[[], Opened], marks: tuple[str, ...]) -> Look:
    """Open it, let it settle, and watch."""
    with way() as opened:
        opened.seen(*marks)
        time.sleep(SETTLE_S)
        begun, before = time.monotonic(), _cpu(opened.child.pid)
        time.sleep(WATCH_S)
        took, spent = time.monotonic() - begun, _cpu(opened.child.pid) - before
        sent = len(opened.written(begun, begun + took))
        sizes = [one.memory_info().rss / 1e6 for one in _tree(opened.child.pid)]
        if opened.child.poll() is not None:
            raise CannotRun(f"it ended: {opened.written()[-500:]!r}")
        return Look(spent / took, sent / took, sum(sizes), sizes[0])


def _tree(pid: int) -> list[psutil.Process]:
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def _cpu(pid: int) -> float:
    """CPU seconds of a tree so far, of children that have ended too."""
    return sum(sum(one.cpu_times()[:4]) for one in _tree(pid))


@contextmanager
def moving(library: Nvml, script: Path) -> Iterator[Path]:
    """Two cards at work: every second load, memory, heat and power are a little different."""

    def write(second: int) -> None:
        cards = [
            card.but(
                mem_used=(20_000 + 37 * (second * 7 % 11)) * MIB,
                util=60 + second * 13 % 31, temp=61 + second * 3 % 5,
                power=(310 + second * 17 % 41) * 1000,
            )
            for card in WORKSTATION
        ]  # fmt: skip
        library.write(script, cards)

    def move(over: threading.Event) -> None:
        second = 0
        while not over.wait(1.0):
            second += 1
            write(second)

    write(0)
    with surroundings.meanwhile(move):
        yield script
