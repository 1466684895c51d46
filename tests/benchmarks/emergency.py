"""From the emergency key's byte in the terminal to the first line of the fence, whatever is wrong.

The standby is a real one and rolls back to the end; its own stamp of the first line counts, on the
same clock as the press.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from console.recovery.rollback.progress import Line, read_lines, size_of
from console.recovery.rollback.sealed_plan import EngineAddress
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Figure
from tests.benchmarks.opened import Opened, Show, python, sample, shown
from tests.benchmarks.surroundings import CannotRun
from tests.testbed.nvml import ensure_nvml
from tests.waiting import until

IDLE, HARD = 60, 8
IDLE_MS, HARD_MS = 100.0, 1000.0
KEYS = ("f12", "ctrl+backslash")
STEP_S = 0.137
LINES_S = 10_000
BLOCK_S = 10.0
BLOCKED = """
import sys, time
from pathlib import Path
from console.frontends.tui.app import ConsoleApp
from console.cli import main

place, mounted = Path(sys.argv.pop(1)), ConsoleApp.on_mount

def look():
    for word in ("sleep", "spin"):
        if (place / word).exists():
            (place / word).rename(place / "blocked")
            end = time.monotonic() + {block_s}
            while time.monotonic() < end:
                if word == "sleep":
                    time.sleep(end - time.monotonic())
            (place / "blocked").unlink()

def on_mount(self):
    mounted(self)
    self.set_interval(0.02, look)

ConsoleApp.on_mount = on_mount
sys.exit(main())
"""


class Scene:
    """A live run with its standby, and a console open on it."""

    def __init__(self, show: Show, opened: Opened) -> None:
        self.show = show
        self.opened = opened

    def press(self, number: int, *, to_the_end: bool = True) -> float:
        """One press: milliseconds until the fence began; then the rollback goes to its end."""
        path = self.show.run.ladder
        before, at = size_of(path), time.time()
        self.opened.press(KEYS[number % len(KEYS)])

        def said(stage: str) -> list[Line]:
            return [line for line in read_lines(path, before)[0] if line.get("rung") == stage]

        fence = until(lambda: said("fence"), f"press {number} comes to something")
        if to_the_end:
            until(lambda: said("done"), f"the rollback of press {number} ends")
        return (float(fence[0]["at"]) - at) * 1e3

    def back(self) -> None:
        """Away from the stages: the next press meets the first screen again."""
        since = time.monotonic()
        self.opened.press("escape")
        self.opened.seen("5/12 steps", since=since)


def run(say: Callable[[str], None]) -> list[Figure]:
    """Idle many presses; then a blocked loop, a flood of log lines, a hung NVML, a dead engine."""
    with surroundings.workplace() as place:
        return [
            Figure("idle", "ms", _idle(place), IDLE_MS, "p99"),
            Figure(f"UI loop blocked {BLOCK_S:g} s", "ms", _blocked(place), HARD_MS, "worst"),
            Figure(f"{LINES_S:,} log lines/s", "ms", _flooded(place, say), HARD_MS, "worst"),
            Figure("NVML hung", "ms", _hung(place), HARD_MS, "worst"),
            Figure("dockerd stopped", "ms", _stopped(place), HARD_MS, "worst"),
        ]


def _idle(place: Path) -> list[float]:
    with _scene(place / "idle") as scene:
        return _presses(scene, IDLE)


def _presses(scene: Scene, count: int) -> list[float]:
    """Presses at ever other moments of the console's second, each with a runner to end, and with a
    standby: the one before has left."""
    found = []
    for number in range(count):
        with ExitStack() as stack:
            if number:
                stack.enter_context(scene.show.running())
                stack.enter_context(scene.show.waiting())
            # the rollback before has to be over for the console too, and its phases are all met
            time.sleep(0.4 + number * STEP_S % 1.0)
            found.append(scene.press(number))
        scene.back()
    return found


def _blocked(place: Path) -> list[float]:
    """Half of the presses meet a loop that sleeps, half one that spins and keeps the interpreter's
    lock as well. A blocked console is of no use afterwards: each press has one of its own."""
    found = []
    for number in range(HARD):
        signs = place / f"signs-{number}"
        signs.mkdir()
        code = BLOCKED.format(block_s=BLOCK_S)
        with _scene(place / f"blocked-{number}", [*python(code), str(signs)]) as scene:
            (signs / ("sleep", "spin")[number % 2]).touch()
            until((signs / "blocked").exists, "the loop is blocked")
            time.sleep(0.1 + number * STEP_S % 1.0)
            found.append(scene.press(number, to_the_end=False))
            if not (signs / "blocked").exists():
                raise CannotRun("the loop was not blocked any more")
    return found


def _flooded(place: Path, say: Callable[[str], None]) -> list[float]:
    """Lines into the output of the step on show, a hundredth of a second's at a time."""
    count, each = 0, LINES_S // 100
    lines = sample(LINES_S).splitlines(keepends=True)
    blocks = [b"".join(lines[at : at + each]) for at in range(0, len(lines), each)]

    def flood(over: threading.Event) -> None:
        nonlocal count
        begun = time.monotonic()
        with scene.show.output.open("ab", buffering=0) as file:
            while not over.wait(0.01):
                while count < (time.monotonic() - begun) * LINES_S:
                    file.write(blocks[count // each % len(blocks)])
                    count += each

    with _scene(place / "flood") as scene, surroundings.meanwhile(flood):
        scene.opened.seen("Engine 000")
        begun, before = time.monotonic(), count
        found = _presses(scene, HARD)
        rate = (count - before) / (time.monotonic() - begun)
        if rate < 0.8 * LINES_S:
            raise CannotRun(f"only {rate:,.0f} lines/s could be written")
        say(f"the flood wrote {rate:,.0f} lines/s")
        return found


def _hung(place: Path) -> list[float]:
    """NVML answers first and hangs from then on, with the console open."""
    library = ensure_nvml()
    cards = library.write(place / "cards")
    with _scene(place / "hung", env=library.env(cards)) as scene:
        scene.opened.seen("GiB", "RTX PRO 6000")
        library.write(cards, hang={"all": 3600})
        time.sleep(2.0)
        return _presses(scene, HARD)


def _stopped(place: Path) -> list[float]:
    """The engine takes connections and never answers; the baseline is a container of it. Such a
    rollback takes long, so each press has a standby of its own."""
    found = []
    for number in range(HARD):
        where = place / f"stopped-{number}"
        where.mkdir()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(where / "e.sock"))
            silent.listen(64)
            engine = EngineAddress(str(where / "e.sock"), f"unix://{where}/e.sock")
            changes: dict[str, Any] = {
                "kind": "container", "container_name": "baseline", "process": None,
                "plan": {"engine": engine},
            }  # fmt: skip
            with _scene(where / "run", **changes) as scene:
                time.sleep(0.1 + number * STEP_S % 1.0)
                found.append(scene.press(number, to_the_end=False))
    return found


@contextmanager
def _scene(
    place: Path, argv: list[str] | None = None, *, env: dict[str, str] | None = None, **changes: Any
) -> Iterator[Scene]:
    with shown(place, alive=True, **changes) as show, show.waiting():
        environment = show.environment(**(env or {}))
        with Opened(argv or surroundings.command(), environment) as opened:
            opened.seen("F12", "5/12 steps", "SERVING")
            time.sleep(0.5)
            yield Scene(show, opened)
