"""What the console costs while nothing happens, beside nvitop on the same cards."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from console.journal.state import RunState
from console.runner.control import Control, Server
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Figure, Measured, Row
from tests.benchmarks.opened import Opened, Show, shown, until
from tests.benchmarks.surroundings import CannotRun
from tests.testbed.nvml import MIB, WORKSTATION, Nvml, ensure_nvml

TURNS = 3
SETTLE_S = 6.0
WATCH_S = 30.0
CPU = Bar(most_ratio=1.0)
BYTES_S, TREE_MB = 1000.0, 120.0
PEER = "nvitop, 1 s"


@dataclass(frozen=True, slots=True)
class Look:
    """One look: CPU seconds and bytes a second, RSS in MB of the tree and of its first process."""

    cpu: float
    bytes_s: float
    tree_mb: float
    own_mb: float
    processes: int


def run(say: Callable[[str], None]) -> list[Measured]:
    """80x24, two scripted cards whose figures move every second, one sample a second."""
    library = ensure_nvml()
    peer = Path(sys.executable).with_name("nvitop")
    if not peer.exists():
        raise CannotRun("nvitop is not installed: it comes with the development extra")
    with ExitStack() as stack:
        place = stack.enter_context(surroundings.workplace())
        script = stack.enter_context(moving(library, place / "cards"))
        over = stack.enter_context(shown(place / "over"))
        paused = stack.enter_context(shown(place / "paused", alive=True))
        stack.enter_context(answering(paused))
        nvml = library.env(script)
        argv = [str(peer), "--monitor", "auto", "--interval", "1"]
        ways: dict[str, Callable[[], Opened]] = {
            "a run that is over": lambda: over.console(**nvml),
            PEER: lambda: Opened(argv, over.environment(**nvml)),
            "a paused live run": lambda: paused.console(**nvml),
        }
        marks = {
            "a run that is over": ("● SERVING", "12/12 steps", "RTX"),
            PEER: ("NVITOP", "MEM"),
            "a paused live run": ("● SERVING", "5/12 steps", "RTX"),
        }
        for name, way in ways.items():  # once for the bytecode, whose making costs memory as well
            with way() as opened:
                opened.seen(*marks[name])
        looks: dict[str, list[Look]] = {name: [] for name in ways}
        for turn in range(TURNS):
            names = list(ways)
            for name in names if turn % 2 == 0 else reversed(names):
                looks[name].append(_look(ways[name], marks[name]))
    for name, found in looks.items():
        say(f"{name}: {_words(found)}")
    return _rows(looks)


def _rows(looks: dict[str, list[Look]]) -> list[Measured]:
    peer = [one.cpu for one in looks[PEER]]
    rows: list[Measured] = []
    for name, found in looks.items():
        if name != PEER:
            rows.append(Row(f"CPU a second, {name}", PEER, [x.cpu for x in found], peer, CPU))
    for name, found in looks.items():
        mine = name != PEER
        sent, tree = [x.bytes_s for x in found], [x.tree_mb for x in found]
        rows.append(Figure(f"to the terminal, {name}", "bytes/s", sent, BYTES_S if mine else None))
        rows.append(Figure(f"RSS of the tree, {name}", "MB", tree, TREE_MB if mine else None))
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
        return Look(spent / took, sent / took, sum(sizes), sizes[0], len(sizes))


def _tree(pid: int) -> list[psutil.Process]:
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def _cpu(pid: int) -> float:
    """CPU seconds of a tree so far, of children that have ended too."""
    return sum(sum(one.cpu_times()[:4]) for one in _tree(pid))


def _words(looks: list[Look]) -> str:
    middle = Look(*(statistics.median(values) for values in zip(*map(_values, looks), strict=True)))
    return (
        f"{middle.cpu * 100:.2f} % of a core, {middle.bytes_s:.0f} bytes/s, "
        f"{middle.tree_mb:.0f} MB in {middle.processes:.0f} processes"
    )


def _values(look: Look) -> tuple[float, ...]:
    return look.cpu, look.bytes_s, look.tree_mb, look.own_mb, look.processes


@contextmanager
def moving(library: Nvml, script: Path) -> Iterator[Path]:
    """Two cards at work: every second load, memory, heat and power are a little different."""
    stop = threading.Event()

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

    def move() -> None:
        second = 0
        while not stop.wait(1.0):
            second += 1
            write(second)

    write(0)
    mover = threading.Thread(target=move, name="cards")
    mover.start()
    try:
        yield script
    finally:
        stop.set()
        mover.join()


@contextmanager
def answering(show: Show) -> Iterator[None]:
    """The runner's side of a paused run: it says where it stands when it is asked."""
    control = Control()
    control.set(state=RunState.PAUSED, reason="operator", step="step-6", attempt=0, mode="step")
    server = Server(show.run.socket, control)
    try:
        until(show.run.socket.exists, "no control socket")
        yield
    finally:
        server.close()
