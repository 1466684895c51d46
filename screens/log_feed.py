"""The logs of a run and of the baseline's container: which is followed, and into which pane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from console.common.logs.line import LogLine, marker
from console.common.logs.tail import Tail
from console.journal.run_files import SERVICE, STEP, LogFile
from widgets.log_pane import LogPane

if TYPE_CHECKING:
    from console.frontends.tui.watch.baseline_container import BaselineLog

BEHIND = 4
"""Most batches on their way to the screen; with more, the reader waits."""
CONTAINER = "container"
"""The kind of a log that is followed only while somebody reads it."""


def sources(logs: tuple[LogFile, ...], container: BaselineLog | None = None) -> list[LogFile]:
    """A run's logs in their order, the baseline container's after the services."""
    log_files = list(logs)
    if container is not None:
        at = max((n for n, log in enumerate(log_files) if log.kind == SERVICE), default=-1) + 1
        at = at or min(1, len(log_files))
        log_files.insert(at, LogFile("baseline", container.path, CONTAINER))
    return log_files


class LogFeed:
    """One tail at a time, its lines passed to the pane on the UI loop."""

    def __init__(self, pane: LogPane, call: Callable[..., object]) -> None:
        """`call` runs a function on the UI loop from any thread."""
        self.pane = pane
        self._call = call
        self._tail: Tail | None = None
        self._waiting = 0
        self._turn = 0
        self.container: BaselineLog | None = None
        self.sources: list[LogFile] = []
        self.source: LogFile | None = None
        self.chosen = False

    def offer(self, log_files: list[LogFile]) -> None:
        """Take the current list of sources; follow the run unless the operator chose one."""
        changed = [log.name for log in log_files] != [log.name for log in self.sources]
        self.sources = log_files
        paths = [log.path for log in log_files]
        if changed and self.source is not None and self.source.path in paths:
            self._name_others()
        if self.source is not None and self.chosen and self.source.path in paths:
            return
        filled = (log for log in log_files if log.filled)  # the first that has something in it
        wanted = next(filled, log_files[0] if log_files else None)
        if wanted is None or self.source is None or wanted.path != self.source.path:
            self.chosen = False
            self.show(wanted)

    def turn(self, by: int) -> None:
        """Show the next or previous source, and stay there."""
        if self.sources:
            self.choose(self.sources[(self._at(self.source) + by) % len(self.sources)])

    def _at(self, source: LogFile | None) -> int:
        """The index of a source, else 0."""
        paths = [log.path for log in self.sources]
        return paths.index(source.path) if source is not None and source.path in paths else 0

    def choose(self, source: LogFile) -> None:
        self.chosen = True
        self.show(source)

    def output_of(self, step: str) -> bool:
        """Show a step's output; False if it has none."""
        for source in self.sources:
            if source.kind == STEP and source.step == step:
                self.choose(source)
                return True
        return False

    def show(self, source: LogFile | None) -> None:
        """End the current tail and begin the next."""
        self.close()
        self.source = source
        self._turn += 1
        if source is None:
            self.pane.attach("log", "there is no log yet")
            return
        if source.kind == CONTAINER and self.container is not None:
            self.container.start()
        self.pane.attach(source.name, source.note or "nothing in it yet")
        if source.note and source.filled:
            self.pane.take([marker(source.note)])
        self._name_others()
        turn = self._turn
        self._tail = Tail(source.path, lambda batch: self._deliver(turn, batch))
        self._tail.start()

    def _name_others(self) -> None:
        """Name the other logs in the order of the key that turns to them."""
        at = self._at(self.source)
        self.pane.name_others(log.name for log in (*self.sources[at + 1 :], *self.sources[:at]))

    def _deliver(self, turn: int, batch: list[LogLine]) -> bool:
        """In the tail's thread: pass a batch on unless the screen is behind."""
        if self._waiting >= BEHIND:
            return False
        self._waiting += 1
        self._call(self._take, turn, batch)
        return True

    def _take(self, turn: int, batch: list[LogLine]) -> None:
        self._waiting -= 1
        if turn == self._turn:
            self.pane.take(batch)

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None
