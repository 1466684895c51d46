"""What the watch over a baseline leaves on disk, and its readers: its state, and its memory.

The state is one small file that the watch replaces after every look. The memory is a list of
looks, changes and events, a JSON line each, in two files of bounded size. Both are beside the
records of the site's host processes; their names do not end in `.json`, so nobody takes them for
such a record.

Standard library only: the watch has a budget of memory.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from console.common import paths, record
from console.common.files import append_line, json_lines, write_atomically
from console.common.record import RecordError
from console.common.text import one_line
from console.common.units import format_duration
from console.host import process

STATE, MEMORY, EARLIER = "watch.state", "watch.jsonl", "watch.jsonl.1"
PLAN, LOCK = "watch.plan", "watch.lock"
MEMORY_LIMIT = 2 << 20
"""Bytes of one file of the memory. Two of them hold some three weeks of looks, one a minute."""
SIZE_LIMIT = 1 << 20
DAY_S = 86_400.0

SERVING, BUSY, LOADING, DOWN, GARBLED = "serving", "busy", "loading", "down", "garbled"
SUSPECT, PLANNED, CUT_OVER, UNJUDGED = "suspect", "planned", "cut over", "unjudged"
WORDS = (SERVING, BUSY, LOADING, SUSPECT, DOWN, GARBLED, PLANNED, CUT_OVER, UNJUDGED)
"""What a look may say of the baseline. `suspect`: it did not answer once, or not with an answer.
`garbled`: what it answers twice is none, as a broken engine makes it. `planned`: a run or a
rollback holds it. `unjudged`: it answers, and refuses the question."""
UP, NOT_SERVING = (SERVING, BUSY), (DOWN, GARBLED)


Line = Annotated[str, lambda text: one_line(text, 400)]


@dataclass(slots=True)
class WatchState:
    """What the watch knows; texts are clean, times in Unix seconds (0.0 for never), rates in tokens
    a second. `pid` and `start` identify the watch itself."""

    word: Line = UNJUDGED
    detail: Line = ""
    since: float = 0.0
    at: float = 0.0
    next_at: float = 0.0
    interval_s: float = 60.0
    due_by: float = 0.0
    """When the next look, or the restore that goes on, is over at the latest; 0.0: not known."""
    pid: int = 0
    start: int = 0
    tok_s: float | None = None
    ttft_s: float | None = None
    asked_at: float = 0.0
    level: float | None = None
    """The median of the last figures."""
    reference: float | None = None
    """What the figures are judged by: the median of the reference window."""
    site_reference: float | None = None
    learning: int = 0
    """How many figures the reference window still lacks."""
    slow_since: float = 0.0
    why: list[Line] = field(default_factory=list)
    """What changed with the last shift of the speed, in words."""
    changed: Line = ""
    """The newest change of machine or server, in words."""
    changed_at: float = 0.0
    restores: list[float] = field(default_factory=list)
    """When the watch had the baseline restored, the last ones."""
    at_most: int = 0
    """How many restores a day are allowed; 0: none."""
    looks: int = 0
    asks: int = 0
    restored: int = 0
    events: dict[Line, int] = field(default_factory=dict)
    """How often each kind of event was told."""
    trouble: Line = ""

    def restores_today(self, now: float) -> int:
        return sum(1 for at in self.restores if now - DAY_S < at <= now)

    @property
    def alive(self) -> bool:
        """Whether the watch that wrote this still runs."""
        return self.pid > 0 and process.alive(self.pid, self.start)

    def stands_still(self, now: float) -> str:
        """Why the watch, although it lives, looks no more, in words; "" for one that does."""
        if not self.alive:
            return ""
        if process.is_stopped(self.pid):
            return f"a signal has stopped it: kill -CONT {self.pid}"
        if 0.0 < self.due_by < now:
            return f"nothing came from it since {format_duration(now - self.at)}"
        return ""

    def looks_on(self, now: float) -> bool:
        """Whether the watch that wrote this lives and goes on looking."""
        return self.alive and not self.stands_still(now)


@dataclass(frozen=True, slots=True)
class Saved:
    """The file of the state: what everybody reads of it, and what the watch keeps for itself."""

    state: WatchState
    own: dict[str, Any]


def file(site: str, name: str) -> Path:
    """One of the watch's files for a site."""
    return paths.records_dir(site) / name


def read(site: str) -> WatchState | None:
    """The state of a site's watch; None if there is none or the file is invalid. Never raises."""
    record = read_all(site)
    return None if record is None else record[0]


def read_all(site: str) -> tuple[WatchState, dict[str, Any]] | None:
    """The same, with what the watch keeps for itself."""
    try:
        saved = record.read(Saved, file(site, STATE), SIZE_LIMIT)
    except (OSError, RecordError):
        return None
    return saved.state, saved.own


def write(site: str, state: WatchState, own: dict[str, Any]) -> None:
    """Replace the state. Raises OSError."""
    path = file(site, STATE)
    paths.make(path.parent)
    write_atomically(path, record.text(Saved(state, own)), 0o600, durable=False)


def remember(site: str, at: float, kind: str, **more: Any) -> None:
    """Add a line to the memory; `kind` is look, change, event or restore. Raises OSError."""
    path = file(site, MEMORY)
    paths.make(path.parent)
    with contextlib.suppress(OSError):
        if path.stat().st_size > MEMORY_LIMIT:
            os.replace(path, path.with_name(EARLIER))
    kept = {key: value for key, value in more.items() if value not in (None, "")}
    line = json.dumps({"at": round(at, 3), "kind": kind, **kept})
    append_line(path, line, 0o600, durable=kind != "look")


def memory(site: str) -> Iterator[dict[str, Any]]:
    """Every line of the memory, the oldest first; broken lines are left out. Never raises."""
    for name in (EARLIER, MEMORY):
        with contextlib.suppress(OSError):
            yield from json_lines(file(site, name))


def event_keys(site: str) -> set[str]:
    """The keys of the events that the memory holds."""
    return {str(line.get("key")) for line in memory(site) if line.get("kind") == "event"}
