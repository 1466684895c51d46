"""What a rollback prints: a line for each stage, and at the end whether the baseline serves."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TextIO

from console.common import redact
from console.common.progress import Figures, Pace, Progress, advanced, far_words, left_s
from console.common.text import clean
from console.common.units import number
from console.recovery.rollback.progress import Result


def on_line(printer: Printer) -> Callable[[dict[str, Any]], None]:
    """What prints each line of a rollback as it comes: seconds since it began, stage, state, and
    what is to be said."""
    load, seconds = LoadNotes(), Seconds()

    def emit(line: dict[str, Any]) -> None:
        if line.get("state") == "begin" or line.get("rung") == "done":
            return
        progress = load.take(line)
        if progress is None:
            return
        printer.say(
            f"{seconds.of(line):7.2f} s  {line.get('rung', ''):<10} {line.get('state', ''):<8}"
            f"{clean(str(line.get('detail', '')), 300)}{progress}"
        )

    return emit


def print_result(result: Result, printer: Printer, *, as_json: bool) -> None:
    """Print how it ended, with the commands to type where it failed; as JSON to stdout, too."""
    lines = [_verdict(result), *(f"  {clean(command)}" for command in result.manual)]
    with contextlib.suppress(OSError):
        if as_json:
            print(redact.dumped({**result.fields(), "detail": result.detail}), flush=True)
        print("\n".join(lines), file=printer.out, flush=True)
    let_go_of_dead_output()


class Seconds:
    """Seconds since a rollback was asked for. Whoever takes it over, as a standby does, counts from
    its own beginning: its lines go by the time of day, and never back."""

    def __init__(self) -> None:
        self._first: tuple[object, float] | None = None
        self._last = 0.0

    def of(self, line: dict[str, Any]) -> float:
        own, at = number(line.get("t")) or 0.0, number(line.get("at"))
        if self._first is None and at is not None:
            self._first = line.get("trigger"), at - own
        if self._first is not None and at is not None and line.get("trigger") != self._first[0]:
            own = at - self._first[1]
        self._last = max(self._last, own)
        return self._last


class LoadNotes:
    """How far the load is that a rollback waits for, where that is worth a line."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._pace = Pace()

    def take(self, line: dict[str, Any]) -> str | None:
        """Words to add to a line: "" for one without figures; None: it is not to be printed."""
        done, at = number(line.get("done")), number(line.get("at"))
        if done is None or at is None:
            return ""
        figures = Figures(done, number(line.get("total")), str(line.get("unit", "")))
        self._progress = advanced(self._progress, figures, at)
        if not self._pace.due("load", self._progress, at):
            return None
        return f", {far_words(self._progress, left_s(self._progress, 0.0, None, at))}"


class Printer:
    """Prints in a thread of its own, so that a blocked terminal (Ctrl-S, a dead line) delays the
    words, not the rollback."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, daemon=True)
        try:
            self._thread.start()
        except (OSError, RuntimeError):
            self._thread = None

    def say(self, text: str) -> None:
        if self._thread is not None:
            self._lines.put(text)
        else:
            self._print(text)

    def close(self) -> None:
        """Wait until everything is printed; the rollback is over, so a slow reader is no harm."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            self._print(text)

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self.out, flush=True)


def let_go_of_dead_output() -> None:
    """Drop output that a dead terminal did not take, which would else make Python exit 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def _verdict(result: Result) -> str:
    notes = "".join(f"; {clean(note)}" for note in result.notes)
    if result.nothing_to_do:
        return (clean(result.detail) or "nothing to do") + notes
    if not result.serving:
        words = f"ROLLBACK FAILED: {clean(result.detail)}"
        return f"{words}\nby hand:" if result.manual else words
    rate = f", {result.tok_s:.1f} tok/s" if result.tok_s is not None else ""
    reference = f" of {result.reference:g}" if result.reference is not None else ""
    slow = "DEGRADED, below its reference: " if result.degraded else ""
    took = f", back in {result.restore_s:.2f} s" if result.restore_s is not None else ""
    return f"{slow}the baseline serves{took}{rate}{reference}{notes}"
