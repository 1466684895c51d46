"""What others did while a run measured, and nobody saw in its figures: it makes a GO doubtful.

A benchmark discards what was measured beside requests of others, where the servers tell of them. A
server that does not tell may have answered the clients that were connected to it; that makes its
figures worse, so a candidate that is compared with them may owe its GO to it. A rollback of another
site, or of the same baseline under another site's name, loads a model or ends one on this machine.
A baseline that something starts again while the run has it stopped has its memory, and its cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common import paths, record
from console.common.errors import ConsoleError, EngineError, ServiceError
from console.common.files import read_end
from console.common.text import clean
from console.common.units import plural
from console.host import process
from console.host.ports import listeners
from console.journal import events
from console.journal.run_dir import all_runs
from console.journal.run_view import RunView
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import time_words
from console.recovery.rollback.progress import PROGRESS_FILE
from console.runner.context import Context
from console.runtime.spec import Handle, Status

TOLERANCE_S = 2.0
"""What two readings of the same start may differ by: the clock may have been set meanwhile."""
MAX_RUNS = 20
"""How many of the newest runs are looked at for a rollback of their own."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A rollback by another plan: whose, and when its first and its last line were written, in Unix
    seconds. `over`: it has ended."""

    whose: str
    began_at: float
    last_at: float
    over: bool


def disturbances(context: Context, scopes: Sequence[str]) -> list[str]:
    """Why the figures of these scopes, of benchmarks that made a GO, may be those of servers that
    were at work for others, in clean words; empty if nothing says so."""
    return [*connected(context.view, scopes), *rolled_back(context), *came_back(context)]


def connected(view: RunView, scopes: Sequence[str]) -> list[str]:
    """Which measured servers had clients of others and did not tell what they asked."""
    sentences: dict[str, None] = {}
    for scope in scopes:
        seen = (view.measurement(scope).benchmark.get("context") or {}).get("requests") or ()
        for row in seen:
            if row.get("measured") is True and row.get("connected"):
                sentences[clean(connected_words(row), 200)] = None
    return list(sentences)


def connected_words(row: dict[str, Any]) -> str:
    """What a record of `console.bench.beside.users` says of clients of others, in words."""
    looks = plural(int(row["connected"]), "look")
    return (
        f"clients of others were connected to {row.get('name')} at {looks} while it was measured, "
        "and it does not say what they asked"
    )


def came_back(context: Context) -> list[str]:
    """What listens at the address of the baseline while this run has it stopped: a loop or a
    supervisor may have started it again, and then it had a share of the machine."""
    url = context.plan.site.model.baseline.url
    if not context.view.outage:
        return []
    return [
        f"pid {other.pid}, {other.words}, listens at {clean(url, 80)}, where this run has stopped "
        "the baseline: it has a share of this machine"
        for other in listeners(url)
        if not other.is_engine_proxy and not process.has_cookie(other.pid)
    ]


class Restarts:
    """Names a baseline that others have started again while the run had not stopped it, by looks
    between its steps: its supervisor after it died, or a person. Each is named once."""

    def __init__(self) -> None:
        self._before: tuple[object, Handle, Status, float] | None = None

    def look(self, context: Context) -> None:
        """Look now, and record what has changed since the last look. Never raises: an engine that
        does not answer says nothing of it."""
        view, before = context.view, self._before
        mine = (view.down_s, view.restored_s)  # this run has started it itself since
        self._before = None
        if view.outage:
            return
        try:
            now = context.services.baseline_now()
        except (EngineError, ServiceError):
            return
        if now is None:
            self._before = before
            return
        self._before = (mine, *now)
        if before is None or before[0] != mine:
            return
        if words := restarted(before[1:], now, context.clock.now()):
            context.record(events.RunNote(text=words, by_others=True))


def restarted(
    before: tuple[Handle, Status, float], now: tuple[Handle, Status, float], at: float
) -> str:
    """How a server was started again between two looks, in clean words; "" if it was not."""
    (old, was, began_then), (new, is_, began) = before, now
    if began - began_then < TOLERANCE_S and old == new and is_.restarts == was.restarts:
        return ""
    when = time_words(began, at)
    times = is_.restarts - was.restarts
    if old.container == new.container and times > 0:
        again = plural(times, "time")
        return f"the baseline died, and its supervisor started it again {again}, last at {when}"
    what = "its container was made anew" if old.container != new.container else "it was started"
    return f"the baseline was not the same any more: {what} by others, at {when}"


def rolled_back(context: Context) -> list[str]:
    """The rollbacks by other plans of this user that went on while this run did."""
    begun, now = context.view.created, context.clock.now()
    sentences = []
    for passed in _rollbacks(context.run.path):
        if passed.last_at >= begun and passed.began_at <= now:
            when = time_words(passed.last_at, now)
            ended = f"ended at {when}" if passed.over else f"was under way at {when}"
            sentences.append(
                f"a rollback of {clean(passed.whose, 80)} {ended}, while this run went on"
            )
    return sentences


def _rollbacks(own: Path) -> Iterator[Passed]:
    """The newest rollback of each other plan that started or stopped anything."""
    with contextlib.suppress(OSError):
        for place in sorted((paths.state_dir() / sealed.ROLLBACK / sealed.SITES).iterdir()):
            yield from _newest(place / PROGRESS_FILE, f"site {place.name}")
    for run in all_runs()[:MAX_RUNS]:
        if run.path != own:
            site = ""
            with contextlib.suppress(ConsoleError, OSError):
                site = sealed.read(run.sealed).site_name
            whose = f"site {site} (run {run.id})" if site else f"run {run.id}"
            yield from _newest(run.path / sealed.ROLLBACK / PROGRESS_FILE, whose)


def _newest(file: Path, whose: str) -> Iterator[Passed]:
    """The newest rollback in a file of lines. One that found nothing to do is none."""
    lines: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, ValueError):
        for row in read_end(file)[0].splitlines():
            line = record.table(row) or {}
            if isinstance(line.get("at"), int | float):
                lines.append(line)
    if not lines:
        return
    mine = [line for line in lines if line.get("trigger") == lines[-1].get("trigger")]
    if mine[-1].get("nothing_to_do") is not True:
        over = mine[-1].get("rung") == "done"
        yield Passed(whose, float(mine[0]["at"]), float(mine[-1]["at"]), over)
