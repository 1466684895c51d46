"""How soon the screen is full: the console with a run in it against an empty Textual app."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Row, in_turns
from tests.benchmarks.opened import STEPS, Opened, Show, python, shown

PAIRS = 12
BAR = Bar(most_ratio=1.6)
STATUS = f"{STEPS}/{STEPS} steps"
FULL = (f"✓ step-{STEPS}", "● SERVING", STATUS)
"""The last step in view, the baseline's word and the status line."""
EMPTY = """
from textual.app import App
from textual.widgets import Static

class Empty(App):
    def compose(self):
        yield Static("READY")

Empty().run()
"""
MOST = 8
_IMPORT = re.compile(rb"import time:\s+(\d+) \|\s+(\d+) \|\s+([\w.]+)\s")


def run(say: Callable[[str], None]) -> list[Row]:
    """From exec to the last of the marks in the bytes of a pty, 80x24, bytecode cached."""
    with surroundings.workplace() as place, shown(place / "run") as show:
        first: list[float] = []
        ways = {"ours": lambda: _ours(show, first), "empty": lambda: _empty(show)}
        times = in_turns(ways, PAIRS)
        drawn = statistics.median(first[-PAIRS:]) * 1e3
        say(f"steps and status stand after {drawn:.0f} ms; the baseline's word is the last to come")
        own, others = _imports(show)
        say(f"our modules that cost most before it: {own}")
        say(f"other packages: {others}")
    return [Row("first full frame", "empty Textual app", times["ours"], times["empty"], BAR)]


def _ours(show: Show, first: list[float]) -> float:
    with show.console() as opened:
        full = opened.seen(*FULL)
        first.append(opened.seen(FULL[0], STATUS))
        return full


def _empty(show: Show) -> float:
    with Opened(python(EMPTY), show.environment()) as opened:
        return opened.seen("READY")


def _imports(show: Show) -> tuple[str, str]:
    """What -X importtime says until the first full frame: own time of our modules, and whole
    packages of others."""
    argv = surroundings.command()
    program = argv if Path(argv[0]).name == "omni-console" else argv[1:]
    with Opened([sys.executable, "-X", "importtime", *program], show.environment()) as opened:
        opened.seen(*FULL)
        raw = opened.written()
    ours: list[tuple[int, str]] = []
    packages: dict[str, int] = {}
    for alone, _, name in _IMPORT.findall(raw):
        module = name.decode()
        package = module.partition(".")[0]
        if package in ("console", "screens", "widgets"):
            ours.append((int(alone), module))
        packages[package] = packages.get(package, 0) + int(alone)
    whole = sorted(((micros, name) for name, micros in packages.items()), reverse=True)
    return _words(sorted(ours, reverse=True)), _words(whole)


def _words(found: list[tuple[int, str]]) -> str:
    return ", ".join(f"{name} {micros / 1e3:.1f} ms" for micros, name in found[:MOST])
