"""How far a server's load is: by its own log where that says so, else by the memory it holds beside
the size of its weights.

Standard library only, because the emergency side waits for loads too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from console.common.clock import Clock
from console.common.errors import EngineError
from console.common.progress import Figures, loaded
from console.common.text import decode
from console.host import process
from console.host.memory import pids_of_container, resident
from console.host.process import Group
from console.runtime.spec import ContainerSpec, Handle, Mount, Runs, weights

EVERY_S = 1.0
LOG_BYTES = 2048
"""Bytes at the end of a log that are read."""
MIN_WEIGHTS = 256 << 20
"""An interpreter with its libraries holds about as much: of smaller weights RSS tells nothing."""

COMPUTES, MOVES = 0.05, 128 << 10
"""Of a core, and bytes a second: what counts as work."""


class Loading:
    """Looks at one load, once a second at most; never raises."""

    def __init__(
        self, pids: Callable[[], Iterable[int]], size: int, log: Path | None, clock: Clock
    ) -> None:
        """`pids`: the processes that load; `size`: bytes of their weights, 0 if unknown."""
        self._pids, self._size, self._log, self._clock = pids, size, log, clock
        self._skip = _size(log)
        self._looked = float("-inf")
        self._figures: Figures | None = None

    def look(self) -> Figures | None:
        """How far it is now; None if nothing tells it."""
        now = self._clock.monotonic()
        if now - self._looked >= EVERY_S:
            self._looked = now
            with contextlib.suppress(OSError, ValueError):
                self._figures = self._from_log() or self._held()
        return self._figures

    def _from_log(self) -> Figures | None:
        """What the log tells since the load began."""
        end = _size(self._log)
        if self._log is None or end <= self._skip:
            return None
        with self._log.open("rb") as file:
            file.seek(max(self._skip, end - LOG_BYTES))
            return loaded(decode(file.read(LOG_BYTES)))

    def _held(self) -> Figures | None:
        held = resident(self._pids()).total
        if not held:
            return self._figures
        known = self._size >= MIN_WEIGHTS
        return Figures(min(held, self._size) if known else held, self._size if known else None, "B")


class Work:
    """Whether processes work: they compute, or hold, read or write more than a moment ago. Those
    of a load do; those of a server that hangs do not."""

    def __init__(self) -> None:
        self.known = False
        """Processes were seen at all."""
        self.seen_at: float | None = None
        """When they were last seen to work; None for never."""
        self._before: tuple[float, float, int] | None = None

    def look(self, pids: Collection[int], now: float) -> None:
        """Look at them at this moment of a monotonic clock. Raises OSError."""
        if not pids:
            return
        cpu_s, moved = process.cpu_s(pids), resident(pids).total + process.bytes_moved(pids)
        before, self._before, self.known = self._before, (now, cpu_s, moved), True
        if before is None or now <= before[0]:
            return
        seconds = now - before[0]
        if cpu_s - before[1] >= COMPUTES * seconds or moved - before[2] >= MOVES * seconds:
            self.seen_at = now


def of_service(
    handle: Handle, runs: Runs, log: Path | None, clock: Clock, *, cookie: str = "",
    inspected: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> Loading:  # fmt: skip
    """The load of a service. `inspected`: its container as the engine describes it, asked if its
    specification does not say which weights it loads."""
    if not handle.container:
        group = Group(handle.pid, handle.start, cookie)

        def members() -> list[int]:
            return [member.pid for member in group.members()] if handle.pid else []

        return Loading(members, weights_of(runs), log, clock)
    if not isinstance(runs, ContainerSpec):
        with contextlib.suppress(EngineError):
            runs = of_container(inspected() or {})
    return Loading(lambda: pids_of_container(handle.container), weights_of(runs), log, clock)


def of_container(inspected: Mapping[str, Any]) -> ContainerSpec:
    """As much of an inspected container as says which weights it loads."""
    config = inspected.get("Config") or {}
    return ContainerSpec(
        image="",
        command=(str(inspected.get("Path") or ""), *map(str, inspected.get("Args") or ())),
        mounts=tuple(
            Mount(str(mount.get("Source", "")), str(mount.get("Destination", "")))
            for mount in inspected.get("Mounts") or ()
        ),
        env=tuple(str(variable).partition("=")[::2] for variable in config.get("Env") or ()),
    )  # fmt: skip


def weights_of(runs: Runs) -> int:
    """Bytes of the weights that a specification names; 0 if it names none that is here."""
    sizes = {}
    for file in weights(runs):
        with contextlib.suppress(OSError):
            info = os.stat(file)
            sizes[info.st_dev, info.st_ino] = info.st_size
    return sum(sizes.values())


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path is not None else 0
    except OSError:
        return 0
